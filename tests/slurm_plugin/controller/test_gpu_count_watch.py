"""GPUs that Slurm counts as in use and that no job holds are told, and are nobody's until it counts anew."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.client.slurm import SlurmJob, SlurmNode, State
from slurm_plugin.controller.gpu_count_watch import MISCOUNTED_S, GpuCountWatch
from slurm_plugin.service.report import report
from slurm_plugin.service.status_command import miscounted
from tests.slurm_plugin.worlds import FakeSite

OURS = ("n1", "n2")


def node(name: str, used: int, state: str = "mixed") -> SlurmNode:
    return SlurmNode(name, True, state, 8, used, ("gpu",))


class WatchedCounts:
    """A watch and what it told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.watch = GpuCountWatch(lambda now, event, **rest: self.told.append({"event": event, **rest}))

    def look(self, now: float, jobs: list[SlurmJob], *nodes: SlurmNode) -> None:
        self.watch.observe(jobs, nodes, OURS, now)


def job(state: State, **gpus: int) -> SlurmJob:
    return SlurmJob("1", 0.0, state, gpus=gpus)


@pytest.mark.parametrize("state", [State.RUNNING, State.SUSPENDED, State.COMPLETING])
def test_what_jobs_hold_is_counted_right(state: State) -> None:
    watched = WatchedCounts()
    for now in (0.0, MISCOUNTED_S, 2 * MISCOUNTED_S):
        watched.look(now, [job(state, n1=4, n2=2)], node("n1", 4), node("n2", 2), node("other", 8))
    assert watched.told == []


def test_a_node_whose_count_stays_too_high_is_told_once_and_forgotten_when_it_is_right() -> None:
    watched = WatchedCounts()
    running = [job(State.RUNNING, n1=2)]
    watched.look(0.0, running, node("n1", 4), node("n2", 1, "mixed+completing"))
    watched.look(MISCOUNTED_S - 1, running, node("n1", 6))
    assert (watched.told, watched.watch.miscounted) == ([], {})
    for now in (MISCOUNTED_S, MISCOUNTED_S + 1):
        watched.look(now, running, node("n1", 5), node("n2", 0))
        assert watched.watch.miscounted == {"n1": 3}
    watched.look(MISCOUNTED_S + 2, [], node("n1", 0))
    assert watched.watch.miscounted == {}
    watched.look(MISCOUNTED_S + 3, [], node("n1", 1))
    assert watched.told == [{"event": "gpus_miscounted", "node": "n1", "gpus": 3}]


def test_no_job_gets_such_gpus_and_the_status_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = FakeSite(tmp_path)
    right = site.slurm.nodes

    def nodes() -> tuple[SlurmNode, ...]:
        return tuple(replace(each, gpus_used=8) if each.name == "r0m0" else each for each in right())

    monkeypatch.setattr(site.slurm, "nodes", nodes)
    jobs = [site.submit(gpus_per_node=8, run_time_s=1000.0) for _ in range(4)]
    site.live(MISCOUNTED_S + 10)
    assert sorted(name for job in jobs for name in site.nodes(job)) == ["r0m1", "r1m0", "r1m1"]
    assert site.events("gpus_miscounted") == [("gpus_miscounted", "")]
    latest = report(site.controller, "dally", ("gpu",))
    assert miscounted({"miscounted": latest.miscounted}) == (
        "Slurm counts 8 of r0m0 as in use by no job; run: scontrol reconfigure"
    )
