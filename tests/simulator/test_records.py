"""Blocks of jobs by submission: the same jobs under every policy."""

from dataclasses import replace

from dally.policies.registry import parse_policy
from dally.runs.records import JobRecord
from simulator.inputs import Inputs, load_scenario
from simulator.records import BLOCKS, Blocks
from simulator.scenario import simulate

ENDED = JobRecord(
    job_id="j",
    user="",
    group="",
    model="",
    gpus=1,
    submit_s=0.0,
    start_s=0.0,
    end_s=10.0,
    ideal_s=10.0,
    run_s=10.0,
    queue_s=0.0,
    comm_s=0.0,
    restart_s=0.0,
    lost_s=0.0,
    preemptions=0,
    failures=0,
    levels="machine:1",
    status="COMPLETED",
)


def test_equally_many_jobs_by_submission_whatever_the_order_of_their_ends() -> None:
    """Of 16 jobs two make a block; job n takes 10 n s; the last does not end."""
    blocks = Blocks(16, together=False)
    for number in (9, *range(9), *range(10, 15)):
        blocks.add(number, replace(ENDED, end_s=10.0 * number))
    blocks.add(15, replace(ENDED, status="REJECTED", end_s=None))
    means = blocks.means_s()
    assert len(means) == BLOCKS
    assert (means[0], means[4], means[7]) == (5.0, 85.0, 140.0)


def test_jobs_that_come_at_once_or_are_few_are_one_block() -> None:
    assert [len(Blocks(100, together=True).means_s()), len(Blocks(7, together=False).means_s())] == [1, 1]


def test_the_blocks_of_a_run_hold_its_jobs() -> None:
    scenario = load_scenario(Inputs("philly-like:jobs=50,load=1,cluster_gpus=64", "demo"))
    run = simulate(scenario, parse_policy("fifo:backfill=easy"), None)
    jobs = (7, 6, 6, 6, 7, 6, 6, 6)
    mean_s = sum(count * block_s for count, block_s in zip(jobs, run.blocks_s, strict=True)) / 50
    assert abs(mean_s - run.summary.jct_s.mean) < 1e-6 * mean_s
