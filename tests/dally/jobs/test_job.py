"""What a job may ask for, and on what it runs."""

from dataclasses import replace
from typing import Any

import pytest

from dally.errors import InputError
from dally.jobs.job import Job, JobKind


def forked(gpus: int = 2, max_copies: int = 3, each: int | None = None) -> Job:
    return Job("f", 0.0, gpus, 100.0, kind=JobKind.FORKED, max_copies=max_copies, gpus_per_machine=each)


def test_a_copy_of_a_forked_job_lies_on_one_machine() -> None:
    assert forked().gang.per_machine == 2
    assert forked(each=2) != forked(), "what was asked for is kept as it was"
    with pytest.raises(InputError, match="gpus_per_machine is 1, but a copy has its 2 GPUs on one machine"):
        forked(each=1)


@pytest.mark.parametrize(
    ("shares", "runs"), [([2], True), ([2, 2, 2], True), ([2] * 4, False), ([1, 1], False), ([], False)]
)
def test_a_forked_job_runs_on_one_to_its_most_copies(shares: list[int], runs: bool) -> None:
    assert forked().runs_on(shares) is runs


@pytest.mark.parametrize(("shares", "runs"), [([2], True), ([1, 1], True), ([2, 2], False)])
def test_another_job_runs_on_its_gang(shares: list[int], runs: bool) -> None:
    assert Job("r", 0.0, 2, 100.0).runs_on(shares) is runs


def test_only_a_forked_job_has_copies() -> None:
    with pytest.raises(InputError, match="max_copies is 2, but only forked jobs have copies"):
        Job("r", 0.0, 2, 100.0, max_copies=2)
    with pytest.raises(InputError, match="max_copies is 0"):
        forked(max_copies=0)


def test_an_elastic_job_runs_on_whole_shares_of_machines() -> None:
    """From 3 to 9 GPUs, 2 on each machine."""
    wide = Job("e", 0.0, 4, 100.0, kind=JobKind.ELASTIC, min_gpus=3, max_gpus=9, gpus_per_machine=2)
    assert (wide.least_gpus, wide.most_gpus) == (4, 8)
    assert (wide.runs_on([2, 2]), wide.runs_on([2])) == (True, False)


def test_the_machines_of_a_job_come_in_segments() -> None:
    job = Job("s", 0.0, 32, 100.0, gpus_per_machine=4, segment=4)
    assert (job.gang.segment, job.gang.units, job.gang.step) == (4, 8, 16)
    assert Job("s", 0.0, 32, 100.0, gpus_per_machine=4, segment=1).gang.segment is None


@pytest.mark.parametrize(
    ("gpus", "segment", "gang"),
    [
        (32, 4, (4, True, True)),
        (32, 8, (8, False, True)),
        (32, 1, (1, True, True)),
        (4, 1, (None, False, False)),
    ],
)
def test_segments_are_apart_or_close_only_where_there_are_several(
    gpus: int, segment: int, gang: tuple[int | None, bool, bool]
) -> None:
    job = Job("s", 0.0, gpus, 100.0, gpus_per_machine=4, segment=segment)
    asked = replace(job, spread_segments=True, consolidate_segments=True).gang
    assert (asked.segment, asked.spread, asked.consolidated) == gang


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gpus_per_machine": 4, "segment": 3}, "segment is 3, must divide its 8 machines"),
        ({"gpus_per_machine": 4, "segment": 16}, "segment is 16, must divide its 8 machines"),
        ({"gpus_per_machine": 4, "segment": 0}, "segment is 0, must divide its 8 machines"),
        ({"segment": 2}, "segment is 2, but gpus_per_machine is not given"),
        ({"spread_segments": True}, "has spread_segments, but no segment"),
        (
            {"gpus_per_machine": 4, "segment": 2, "kind": JobKind.ELASTIC, "max_gpus": 64},
            "segment is 2, but it is elastic, not rigid",
        ),
    ],
)
def test_a_segment_that_cannot_be_is_refused_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"job s: {says}"):
        Job("s", 0.0, 32, 100.0, **fields)


def test_only_rigid_jobs_share_their_blocks_with_nobody() -> None:
    job = Job("w", 0.0, 32, 100.0, whole_blocks=True)
    assert job.gang.whole_blocks
    assert job.gang.layout == ", in blocks that nobody else uses"
    with pytest.raises(InputError, match="job w: has whole_blocks and is elastic, not rigid"):
        replace(job, kind=JobKind.ELASTIC, max_gpus=64)
