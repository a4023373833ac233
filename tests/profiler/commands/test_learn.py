import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from profiler.commands import main
from tests.profiler.recorded.jobs import entry, write


def test_a_recorded_job_is_told_in_words_and_as_json(tmp_path: Path) -> None:
    for rank in range(16):
        node = [*range(rank - rank % 8, rank - rank % 8 + 8)]
        groups: dict[str, tuple[Sequence[int], str]] = {
            "1": (node, "mesh_tp"),
            "2": ([rank % 8, rank % 8 + 8], "mesh_dp"),
        }
        step = [entry("1", "nccl:all_reduce", [8, 512, 64])] * 4 + [
            entry("2", "nccl:all_reduce", [1_000_000])
        ]
        write(tmp_path, rank, 16, groups, step)
    told = CliRunner().invoke(main, ["learn", str(tmp_path)])
    assert told.exit_code == 0
    assert "Plan     tp=8,dp=2\nRanks    16 on 2 hosts\nStep     1 s" in told.stdout
    groups_told = json.loads(CliRunner().invoke(main, ["learn", "--json", str(tmp_path)]).stdout)["groups"]
    assert [(each["axis"], each["hosts"], each["sent_bytes"]) for each in groups_told] == [
        ("tp", 1, 4 * 2 * 7 / 8 * 8 * 512 * 64 * 2),
        ("dp", 2, 2 * 1 / 2 * 2_000_000),
    ]


def test_a_folder_without_records_is_one_line(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["learn", str(tmp_path)])
    assert told.exit_code == 1
    assert told.output.count("\n") == 1
    assert "has no files rank-*.json.gz" in told.output


@pytest.mark.parametrize(("durations_ms", "lasted_s"), [((1.5, 2.5), 0.004), ((1.5, None), None)])
def test_times_of_collectives_are_told_where_nccl_tells_all(
    tmp_path: Path, durations_ms: Sequence[float | None], lasted_s: float | None
) -> None:
    call = entry("1", "nccl:all_reduce", [1_000_000])
    step = [call if each is None else {**call, "duration_ms": each} for each in durations_ms]
    for rank in range(2):
        write(tmp_path, rank, 2, {"1": ([0, 1], "mesh_dp")}, step)
    (group,) = json.loads(CliRunner().invoke(main, ["learn", "--json", str(tmp_path)]).stdout)["groups"]
    assert group["lasted_s"] == lasted_s
    told = CliRunner().invoke(main, ["learn", str(tmp_path)]).stdout
    assert ("ms a step" in told, " 4.00 " in told) == (lasted_s is not None, lasted_s is not None)
