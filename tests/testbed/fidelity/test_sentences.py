"""Sentences of a comparison name what was different, the largest first, and nothing that was not."""

from pathlib import Path

import pytest

from dally.jobs.job import Job
from dally.words import plural
from testbed.fidelity import sentences
from testbed.fidelity.comparison import Comparison, compare
from testbed.fidelity.live_run import read_live_run
from tests.testbed.fidelity.live_folders import Change, live_folder

JOBS = (
    Job("long", submit_s=0.0, gpus=8, duration_s=5000.0, model="resnet18"),
    Job("short", submit_s=1000.0, gpus=8, duration_s=100.0, model="resnet18"),
)


def compared(folder: Path, change: Change, really: str = "fifo") -> Comparison:
    live = live_folder(folder / "run", JOBS, change, policy=really)
    path = live / "run.json"
    path.write_text(path.read_text().replace(f'"{really}"', '"fifo"'))
    return compare(read_live_run(live), contention=False)


def test_the_cause_of_a_job_tells_the_largest_parts_first(tmp_path: Path) -> None:
    change = Change(wait_s=2.0, startup_s=9.0, rest_s=0.05)
    told = sentences.cause(compared(tmp_path, change).jobs[0])
    assert told == "took 9.0 s longer to its first step; waited 2.0 s longer for its first start"


def test_a_job_that_went_as_simulated_has_no_cause(tmp_path: Path) -> None:
    comparison = compared(tmp_path, Change())
    assert {sentences.cause(job) for job in comparison.jobs} == {"as simulated"}
    assert sentences.main_causes(comparison) == "Real and simulated lives of the jobs hardly differ."


def test_preemptions_that_were_not_simulated_are_told(tmp_path: Path) -> None:
    comparison = compared(tmp_path, Change(), really="tiresias")
    (long,) = (job for job in comparison.jobs if job.real.job_id == "long")
    assert f"was preempted {plural(long.real.preemptions, 'time')}, not 0" in sentences.cause(long)
    assert "and 1 had another number of preemptions" in sentences.decisions(comparison)


def test_the_main_causes_are_shares_of_the_parts(tmp_path: Path) -> None:
    told = sentences.main_causes(compared(tmp_path, Change(wait_s=1.0, startup_s=3.0)))
    assert told == "The differences come from starting (75 %), waiting (25 %), by the mean size of each part."


@pytest.mark.parametrize(
    ("names", "told"), [(["rack"], "rack"), (["rack", "machine", "machine"], "rack, machine x2")]
)
def test_levels_are_told_in_order_with_repeated_ones_counted(names: list[str], told: str) -> None:
    assert sentences.levels(names) == told
