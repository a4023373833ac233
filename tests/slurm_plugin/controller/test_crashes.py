"""A controller killed at any step, or cut off from Slurm there, comes to the end of an undisturbed one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from slurm_plugin.client.slurm import Hold
from tests.slurm_plugin.worlds import Action, FakeSite, Killed

At = Callable[[str], None]
Arm = Callable[[FakeSite], At]
"""Gives what a controller tells of each step."""

NODES = ("r0m0", "r0m1", "r1m0", "r1m1")
SHARED = dict.fromkeys(NODES, ("gpu", "other"))
TIRESIAS = {"policy": "tiresias:regroup_s=0,quantum_s=0"}


@dataclass(frozen=True)
class Story:
    """Something that happens, by what people do; the rest is up to Slurm and the controller.

    Attributes:
        actions: What people do, and when.
        settings: Settings of the site.
        end_s: When all has come to its end.
    """

    actions: tuple[Action, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    end_s: float = 1500.0


def job(nodes: int = 1, run_time_s: float = 50.0, **more: Any) -> Callable[[FakeSite], object]:
    return lambda site: site.submit(nodes=nodes, gpus_per_node=8, run_time_s=run_time_s, **more)


def slow_start(delay_s: float) -> Callable[[FakeSite], object]:
    return lambda site: setattr(site.slurm, "start_delay_s", delay_s)


def refusing(words: str | None) -> Callable[[FakeSite], object]:
    def act(site: FakeSite) -> None:
        site.slurm.refuse = {} if words is None else {"1": words}

    return act


TO_STOP = ((0.0, job(4, 300.0, signal="USR1", grace_s=30)), (150.0, job(1, 50.0)))


def exit_on_signal(site: FakeSite) -> None:
    """From here on the first job ends with the exit code of a checkpoint."""
    site.slurm.update("1", checkpoint_exit_s=5.0)


STORIES = {
    "place": Story(((0.0, job()), (1.0, job(2)), (3.0, job(4)))),
    "place in reservations": Story(((0.0, job()), (1.0, job(2)), (3.0, job(4))), {"partitions": SHARED}),
    "refused": Story(
        ((0.0, refusing("Unspecified error")), (0.0, job()), (1.0, job()), (130.0, refusing(None)))
    ),
    "does not start": Story(
        ((0.0, slow_start(1e6)), (0.0, job()), (45.0, slow_start(0.0))), {"start_timeout_s": 20.0}
    ),
    "starts late": Story(((0.0, slow_start(7.0)), (0.0, job()), (1.0, job(4)))),
    "stop with grace": Story(TO_STOP, TIRESIAS),
    "stop without grace": Story(
        ((0.0, job(4, 300.0, signal="USR1", grace_s=0)), (150.0, job(1, 50.0))), TIRESIAS
    ),
    "stop slowly": Story(((0.0, lambda site: setattr(site.slurm, "completing_s", 9.0)), *TO_STOP), TIRESIAS),
    "checkpoint and exit": Story((*TO_STOP, (100.0, exit_on_signal)), TIRESIAS),
    "migrate": Story(
        (
            (0.0, job(1, 500.0)),
            (0.0, job(1, 500.0)),
            (0.0, job(1, 200.0)),
            (50.0, job(2, 300.0, signal="USR1", grace_s=20)),
            (100.0, lambda site: site.slurm.cancel("1")),
        ),
        {"policy": "dally:timers=no-wait,lease_s=200"},
        3000.0,
    ),
    "node fails": Story(
        (
            (0.0, job(2, 100.0)),
            (50.0, lambda site: site.slurm.set_node("r0m0", "down")),
            (90.0, lambda site: site.slurm.set_node("r0m0")),
        )
    ),
    "requeued by its user": Story(((0.0, job(2, 100.0)), (50.0, lambda site: site.slurm.requeue("1")))),
    "administrator": Story(
        (
            *((0.0, job(4, 100.0)), (1.0, job(1))),
            (20.0, lambda site: site.slurm.hold("2", Hold.ADMIN)),
            (150.0, lambda site: site.slurm.hold("2", Hold.NONE)),
        )
    ),
    "array": Story(
        (
            (
                0.0,
                lambda site: site.submit(
                    gpus_per_node=1, array=(1, 2, 3, 4), array_throttle=2, run_time_s=60
                ),
            ),
        )
    ),
    "cancel while starting": Story(
        (
            (0.0, slow_start(1e6)),
            (0.0, job()),
            (0.0, job()),
            (5.0, lambda site: site.slurm.cancel("1")),
            (5.0, slow_start(0.0)),
        ),
        {"start_timeout_s": 20.0},
    ),
    "cancel while stopping": Story(
        (
            (0.0, job(4, 300.0, signal="USR1", grace_s=60)),
            (150.0, job(1, 50.0)),
            (170.0, lambda site: site.slurm.cancel("1")),
        ),
        TIRESIAS,
    ),
    "unplaceable": Story(((0.0, job(4, 50.0)), (1.0, lambda site: site.submit(run_time_s=20.0)))),
}


def struck(step: int, strike: Callable[[FakeSite], None]) -> Arm:
    """Something happens to a controller once, at a step at which it orders something."""

    def arm(site: FakeSite) -> At:
        left = [step]

        def at(name: str) -> None:
            left[0] -= orders(name)
            if orders(name) and left[0] == 0:
                strike(site)

        return at

    return arm


def orders(step: str) -> bool:
    """Whether it is a step before or after an order to Slurm."""
    return not step.startswith(("cycle", "observed", "decided"))


def told(story: Story, folder: Path, arm: Arm, away_s: float = 0.0) -> FakeSite:
    """A story, from its beginning to its end."""
    site = FakeSite(folder, **story.settings)
    site.slurm.remember_s = 1e6
    site.restart(arm(site))
    site.live(story.end_s, story.actions, away_s, poll_s=15.0)
    site.controller._journal.close()
    return site


def steps_of(story: Story, folder: Path) -> tuple[dict[str, tuple[str, int]], int]:
    """How an undisturbed controller ends a story, and how many steps it takes."""
    count = [0]

    def at(name: str) -> None:
        count[0] += orders(name)

    site = told(story, folder, lambda site: at)
    assert all(state in ("COMPLETED", "CANCELLED") for state, _ in site.outcome().values()), site.outcome()
    assert settled(site)
    return site.outcome(), count[0]


def settled(site: FakeSite) -> bool:
    """Whether nothing is left of any job."""
    state = site.controller.scheduler.state
    return not (
        site.controller.reconciler.managed_jobs
        or site.controller.reconciler.pending_starts
        or state.jobs
        or state.withheld
    )


def kill(site: FakeSite) -> None:
    raise Killed


def cut_off(done: int) -> Callable[[FakeSite], None]:
    """Slurm breaks off once, having carried out so many orders."""
    return lambda site: setattr(site.slurm, "breaks_after", done)


@pytest.mark.parametrize("name", STORIES)
def test_killed_anywhere_it_comes_to_the_same_end(name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    end, steps = steps_of(story, tmp_path)
    for step in range(1, steps + 1):
        with TemporaryDirectory() as folder:
            away_s = 15.0 * (step % 2)
            site = told(story, Path(folder), struck(step, kill), away_s)
            assert site.outcome() == end, f"killed at step {step} of {steps}"
            assert settled(site)


@pytest.mark.parametrize("name", STORIES)
def test_cut_off_amid_any_orders_it_comes_to_the_same_end(name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    end, steps = steps_of(story, tmp_path)
    for step in range(1, steps + 1, 2):
        with TemporaryDirectory() as folder:
            done = step // 2 % 3
            site = told(story, Path(folder), struck(step, cut_off(done)))
            assert site.outcome() == end, f"cut off after {done} orders at step {step} of {steps}"
            assert settled(site)
