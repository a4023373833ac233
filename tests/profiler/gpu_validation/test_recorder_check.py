import os
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.gpu_validation.checks import CheckFolder
from profiler.gpu_validation.commands import StepError
from profiler.gpu_validation.recorder_check import judge_records, record_ranks
from profiler.recorded.record import RankRecord
from tests.patience import LONGEST_S


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[RankRecord, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "OMP_NUM_THREADS", "1")
        return record_ranks(CheckFolder(tmp_path_factory.mktemp("check"), LONGEST_S), "digits", "gloo")


def test_two_ranks_of_this_machine_are_read_as_two_replicas(records: tuple[RankRecord, ...]) -> None:
    assert judge_records(records, "digits").startswith("dp=2, ")


def test_other_bytes_than_the_gradients_are_told(records: tuple[RankRecord, ...]) -> None:
    with pytest.raises(StepError, match=r"of the gradients; 1 give or take 0\.03 is valid"):
        judge_records(records, "resnet8")


def test_a_rank_that_is_missing_or_recorded_nothing_is_told(records: tuple[RankRecord, ...]) -> None:
    with pytest.raises(StepError, match="read as dp=2 from 1 rank, must be dp=2 from 2 ranks"):
        judge_records(records[:1], "digits")
    with pytest.raises(StepError, match="rank 1: no Flight Recorder"):
        judge_records((records[0], replace(records[1], lacks="no Flight Recorder")), "digits")


def test_a_rank_that_fails_is_told_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"rank 0 ended with 2: .*no-such-model"):
        record_ranks(CheckFolder(tmp_path, LONGEST_S), "no-such-model", "gloo")
