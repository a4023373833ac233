"""What a live controller records is decided again the same, restarts, refusals and kills included."""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings

from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.policies.registry import policy_names
from dally.profiles.files import load_profiles
from dally.scheduling.recording.recorder import FACTS_TOLD
from dally.scheduling.recording.replay import replay
from dally.testing.worlds import World, worlds
from slurm_plugin.controller import controller
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.controller.journal import read_events
from tests.dally.recording.recorded import read
from tests.slurm_plugin.controller.test_crashes import STORIES, TIRESIAS, Story, job, refusing, struck
from tests.slurm_plugin.controller.test_same_decisions import as_slurm_numbers, submit
from tests.slurm_plugin.daemons import DaemonSite
from tests.slurm_plugin.worlds import RACKS, Action, FakeSite, Killed

AUTHOR = load_profiles("dally")
MORE_STORIES = {
    "not to be stopped again": Story(
        ((0.0, job(4, 300.0)), (100.0, lambda site: site.slurm.requeue("1")), (200.0, job(1))),
        {**TIRESIAS, "max_requeues": 1},
    ),
    "cannot be put back": Story(
        ((0.0, job(4, 300.0)), (100.0, refusing("Invalid job id")), (150.0, job(1, 50.0))), TIRESIAS
    ),
    "two racks of models": Story(
        tuple((9.0 * n, job(1 + n % 3, 120.0, model="resnet50", signal="USR1")) for n in range(6))
    ),
}
ALL_STORIES = {**STORIES, **MORE_STORIES}


def story_site(folder: Path, story: Story) -> FakeSite:
    return FakeSite(folder, profiles=AUTHOR, record=str(folder / "facts.jsonl"), **story.settings)


def assert_decided_again(path: Path, segments: int) -> int:
    """Every decision comes out the same; how many there were."""
    found = replay(path)
    assert found.differences == []
    assert (found.differing, found.segments) == (0, segments)
    return found.decisions


def test_a_cluster_with_partitions_is_recorded(tmp_path: Path) -> None:
    cluster = replace(RACKS, partitions={"gpu": frozenset(RACKS.machine_index)})
    site = FakeSite(tmp_path, cluster, record=str(tmp_path / "facts.jsonl"))
    site.submit(gpus_per_node=8)
    site.run_to(100)
    assert assert_decided_again(tmp_path / "facts.jsonl", 1)


@pytest.mark.parametrize("name", ALL_STORIES)
def test_a_story_with_restarts_of_the_controller_is_decided_again(name: str, tmp_path: Path) -> None:
    story = ALL_STORIES[name]
    site = story_site(tmp_path, story)
    restarts: list[Action] = [(at_s, lambda site: site.restart()) for at_s in (2.0, 151.0)]
    site.live(story.end_s, [*story.actions, *restarts], poll_s=15.0)
    segments = sum("schema" in line for line in read(tmp_path / "facts.jsonl"))
    assert segments > 1
    assert assert_decided_again(tmp_path / "facts.jsonl", segments) > 2


def kill(site: FakeSite) -> None:
    raise Killed


@pytest.mark.parametrize("name", ["stop with grace", "migrate", "refused"])
@pytest.mark.parametrize("step", [1, 3, 5])
def test_a_controller_killed_at_a_step_leaves_a_recording(name: str, step: int, tmp_path: Path) -> None:
    story = ALL_STORIES[name]
    site = story_site(tmp_path, story)
    site.restart(struck(step, kill)(site))
    site.live(story.end_s, story.actions, away_s=3.0, poll_s=15.0)
    assert_decided_again(tmp_path / "facts.jsonl", 2)


def test_the_stories_tell_every_fact_but_the_simulator_s(tmp_path: Path) -> None:
    path, told = tmp_path / "facts.jsonl", set[str]()
    for number, name in enumerate(("stop with grace", "not to be stopped again", "refused")):
        folder = tmp_path / str(number)
        folder.mkdir()
        site = story_site(folder, ALL_STORIES[name])
        site.live(1500.0, [*ALL_STORIES[name].actions, (52.0, lambda site: site.restart())], poll_s=15.0)
        told |= {line["fact"] for line in read(folder / path.name) if "fact" in line}
    assert told == FACTS_TOLD.keys() - {"repace", "steps", "report_progress"}, "reports: their own tests"


def live(policy: str, topology: Topology, jobs: Sequence[Job], folder: Path) -> None:
    """Jobs arrive at a fake Slurm whose controller is started anew with each third of them."""
    site = FakeSite(folder, topology, policy, AUTHOR, record=str(folder / "facts.jsonl"))
    coming, wakeup_s = list(jobs), inf
    for _ in range(3000):
        if not (coming or site.controller.reconciler.managed_jobs):
            return
        event_s = inf if site.slurm.next_event_s is None else site.slurm.next_event_s
        arrival_s = coming[0].submit_s if coming else inf
        site.now_s = max(site.now_s, min(wakeup_s, arrival_s, event_s))
        site.slurm.advance(site.now_s)
        while coming and coming[0].submit_s <= site.now_s:
            if len(coming) % 3 == 0:
                site.restart()
            submit(site, coming.pop(0))
        wakeup_s = site.controller.cycle()


@pytest.mark.parametrize("policy", policy_names())
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(models=("", "resnet50", "bert-large"), failing=False))
def test_every_policy_live_decides_again(policy: str, world: World) -> None:
    jobs = as_slurm_numbers(world)
    with TemporaryDirectory() as folder:
        live(policy, world.topology, jobs, Path(folder))
        if jobs:
            found = replay(Path(folder) / "facts.jsonl")
            assert (found.differing, found.differences) == (0, [])


def lone(folder: Path, mode: ControllerMode | None = None, name: str = "facts.jsonl") -> FakeSite:
    site = FakeSite(folder, mode=mode, record=str(folder / name) if name else "")
    site.submit(nodes=1, gpus_per_node=8, run_time_s=500.0)
    return site


def test_quiet_cycles_take_two_short_lines(tmp_path: Path) -> None:
    site = lone(tmp_path)
    site.live(100.0)
    before = (tmp_path / "facts.jsonl").stat().st_size
    for _ in range(100):
        site.now_s += 2.0
        site.controller.cycle()
    grown = (tmp_path / "facts.jsonl").stat().st_size - before
    assert grown <= 100 * 80
    assert assert_decided_again(tmp_path / "facts.jsonl", 1) >= 100


def test_a_shadow_does_not_write_to_the_recording_of_the_real_one(tmp_path: Path) -> None:
    site = lone(tmp_path, mode=ControllerMode(shadow=True))
    site.controller.cycle()
    assert not (tmp_path / "facts.jsonl").exists()
    assert assert_decided_again(tmp_path / "shadow-facts.jsonl", 1) == 1


def test_nothing_is_recorded_where_nobody_asked(tmp_path: Path) -> None:
    site = lone(tmp_path, name="")
    site.controller.cycle()
    assert {path.name for path in tmp_path.iterdir()} == {"journal.sqlite", "lock"}


Spoil = Callable[[Path, pytest.MonkeyPatch], object]


def fill_the_disk(path: Path, patch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **more: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr("dally.scheduling.recording.recorder.open", full, raising=False)


def make_full(path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller, "MOST_BYTES", 2000)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (fill_the_disk, "No space left on device"),
        (make_full, "is full: 2,000 bytes are the most"),
        (lambda path, patch: path.mkdir(), "Is a directory"),
        (lambda path, patch: os.mkfifo(path), "No such device or address"),
        (lambda path, patch: path.symlink_to("/dev/null"), "is not a plain file"),
        (lambda path, patch: path.symlink_to("/none/none"), "No such file or directory"),
    ],
)
def test_a_recording_that_cannot_be_written_ends_and_the_controller_goes_on(
    spoil: Spoil, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(tmp_path / "facts.jsonl", monkeypatch)
    site = lone(tmp_path)
    site.live(1000.0)
    assert [event for event, _ in site.events("start", "end")] == ["start", "end"]
    (ended,) = (event for event in read_events(tmp_path) if event["event"] == "recording_ended")
    assert ended["reason"] == f"{tmp_path / 'facts.jsonl'}: {reason}"


def test_a_reloaded_controller_begins_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    site = DaemonSite(tmp_path, record=str(path))
    site.submit(gpus_per_node=8)

    def change() -> None:
        site.configure(policy="tiresias")
        site.signals.reload = True

    site.run(change, lambda: site.submit(gpus_per_node=4), lambda: None)
    assert_decided_again(path, 2)
    assert replay(path).policies == ["fifo", "tiresias"]


def test_a_reload_that_is_refused_leaves_the_recording_whole(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    site = DaemonSite(tmp_path, record=str(path))
    site.submit(gpus_per_node=8)

    def change() -> None:
        site.configure(partitions=["none"])
        site.signals.reload = True

    site.run(change, lambda: site.submit(gpus_per_node=4), lambda: None)
    assert site.events("configuration_rejected")
    assert not site.events("recording_ended")
    assert_decided_again(path, 1)


def test_a_recording_is_switched_on_and_off_by_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    site = DaemonSite(tmp_path, record=str(path))

    def off() -> None:
        site.configure(record="")
        site.signals.reload = True

    sizes: list[int] = []
    site.run(off, lambda: sizes.append(path.stat().st_size), lambda: None)
    assert sizes == [path.stat().st_size]


def test_the_topology_that_was_cut_is_the_one_recorded(tmp_path: Path) -> None:
    """The cluster's files have a node, and a rack, that Slurm does not show."""
    path = tmp_path / "facts.jsonl"
    site = DaemonSite(tmp_path, record=str(path))
    site.describe(
        "n[1-5]",
        "SwitchName=rack0 Nodes=n[1-4]\nSwitchName=rack1 Nodes=n5\nSwitchName=spine Switches=rack[0-1]\n",
    )
    site.submit(gpus_per_node=8)
    site.run(lambda: None)
    assert [machine["name"] for machine in read(path)[0]["cluster"]["machines"]] == ["n1", "n2", "n3", "n4"]
    assert_decided_again(path, 1)
