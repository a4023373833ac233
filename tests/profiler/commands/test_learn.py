import json
from collections.abc import Sequence
from pathlib import Path

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
