"""What a cycle costs grows as the queue does and no faster; what did not change is not worked out again."""

import gc
from cProfile import Profile
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.client.node_text import read_nodes
from slurm_plugin.client.slurm import SlurmUnavailableError, State
from slurm_plugin.controller.node_room import NodeRoom
from tests.slurm_plugin.bench import imagined
from tests.slurm_plugin.worlds import FakeSite

LINE = "NodeName=n{} CPUAlloc={} CPUTot=16 Gres=gpu:8 State=MIXED Partitions=gpu RealMemory=64000"


def calls(jobs: int) -> int:
    """How many calls a cycle makes in which nothing changes: its cost, however busy the machine is."""
    with imagined(16, jobs) as (_, one):
        for _ in range(2):
            one.cycle()
        profile = Profile()
        profile.runcall(one.cycle)
        return sum(each.callcount for each in profile.getstats())


def test_ten_times_the_held_jobs_cost_at_most_eleven_times_as_much() -> None:
    assert calls(1500) < 11 * calls(150)


def test_no_cycle_waits_for_the_collection_of_garbage(tmp_path: Path) -> None:
    site, collecting = FakeSite(tmp_path), list[bool]()
    site.restart(at=lambda step: collecting.append(gc.isenabled()))
    site.submit(gpus_per_node=8)
    site.controller.cycle()
    assert collecting
    assert not any(collecting)
    assert gc.isenabled()
    site.slurm.unavailable = True
    with pytest.raises(SlurmUnavailableError):
        site.controller.cycle()
    assert gc.isenabled()


def test_a_job_that_is_as_it_was_is_one_object_from_look_to_look() -> None:
    with imagined(8, 20) as (slurm, one):
        before = dict(one.reconciler.all_seen)
        changed = next(job_id for job_id, job in before.items() if job.state is State.PENDING)
        slurm.update(changed, excluded=("n1",))
        one.cycle()
        after = one.reconciler.all_seen
        others = [job_id for job_id in before if after[job_id] is not before[job_id]]
        assert others == [job_id for job_id in before if after[job_id] != before[job_id]]
        assert changed in others
        assert len(others) < len(before)


def test_a_node_whose_line_says_what_it_said_is_not_read_again() -> None:
    before = read_nodes("\n".join(LINE.format(number, 4) for number in (1, 2)))
    after = read_nodes("\n".join((LINE.format(1, 4), LINE.format(2, 8))))
    assert after[0] is before[0]
    assert (before[1].cpus_used, after[1].cpus_used) == (4, 8)


def test_a_set_of_nodes_is_one_object_from_look_to_look_until_it_changes() -> None:
    nodes = read_nodes("\n".join(LINE.format(number, 4) for number in range(1, 9)))
    first = NodeRoom(nodes)
    second = NodeRoom([replace(node, cpus_used=8) for node in nodes], first)
    assert second.with_gpus is first.with_gpus
    third = NodeRoom(nodes[:4], second)
    assert sorted(third.with_gpus) == ["n1", "n2", "n3", "n4"]


def test_jobs_that_ask_for_the_same_share_one_set_of_nodes() -> None:
    with imagined(8, 20) as (slurm, one):
        for job in slurm.jobs():
            slurm.update(job.job_id, excluded=("n1",))
        for _ in range(2):
            one.cycle()
            waiting = [one.scheduler.state.jobs[job_id] for job_id in one.scheduler.state.waiting]
            assert len(waiting) == 20
            assert sorted(waiting[0].job.machines or ()) == [f"n{number}" for number in range(2, 9)]
            assert len({id(each.job.machines) for each in waiting}) == 1
