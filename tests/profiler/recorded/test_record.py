import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dally.atomic_file import user_name
from dally.errors import InputError
from dally.profiles.collectives import CollectiveKind
from profiler.recorded.record import Collective, read_record, read_run
from tests.profiler.recorded.jobs import entry, write

ME = os.geteuid()
PAIR: dict[str, tuple[Sequence[int], str]] = {"0": ((0, 1), "default_pg")}


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (CollectiveKind.ALL_REDUCE, 2 * 3 / 4 * 400),
        (CollectiveKind.ALL_GATHER, 3 * 400),
        (CollectiveKind.REDUCE_SCATTER, 3 / 4 * 400),
        (CollectiveKind.ALL_TO_ALL, 3 / 4 * 400),
        (CollectiveKind.BROADCAST, 3 / 4 * 400),
        (CollectiveKind.REDUCE, 3 / 4 * 400),
        (CollectiveKind.SCATTER, 3 / 4 * 400),
        (CollectiveKind.GATHER, 3 / 4 * 400),
        (CollectiveKind.SEND, 400),
        (CollectiveKind.OTHER, 0),
    ],
)
def test_a_rank_of_a_ring_of_four_sends(kind: CollectiveKind, sent: float) -> None:
    assert Collective("0", kind, 100, 4, True, 0.0).sent_bytes(4) == sent


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl:all_reduce", CollectiveKind.ALL_REDUCE),
        ("nccl:_all_gather_base", CollectiveKind.ALL_GATHER),
        ("nccl:all_gather_into_tensor_coalesced", CollectiveKind.ALL_GATHER),
        ("nccl:_reduce_scatter_base", CollectiveKind.REDUCE_SCATTER),
        ("nccl:all_to_all", CollectiveKind.ALL_TO_ALL),
        ("gloo:broadcast", CollectiveKind.BROADCAST),
        ("nccl:_broadcast_oop", CollectiveKind.BROADCAST),
        ("nccl:_reduce_oop", CollectiveKind.REDUCE),
        ("gloo:reduce", CollectiveKind.REDUCE),
        ("gloo:scatter", CollectiveKind.SCATTER),
        ("gloo:gather", CollectiveKind.GATHER),
        ("nccl:send 0->1", CollectiveKind.SEND),
        ("nccl:recv 0<-1", CollectiveKind.RECEIVE),
    ],
)
def test_the_names_of_nccl_and_gloo_are_known(tmp_path: Path, name: str, kind: CollectiveKind) -> None:
    record = read_record(write(tmp_path, 0, 2, PAIR, [entry("0", name, [512])]), ME)
    assert [each.kind for each in record.step] == [kind]
    assert record.step[0].peer == (1 if "1" in name else -1)


def test_messages_that_flight_recorder_sees_are_not_counted_twice(tmp_path: Path) -> None:
    step = [entry("0", "nccl:send 0->1", [512])]
    record = read_record(write(tmp_path, 0, 2, PAIR, step, sent=[("0", 1024, 1)]), ME)
    assert len(record.step) == 1


def test_a_group_without_ranks_is_none(tmp_path: Path) -> None:
    groups: dict[str, tuple[Sequence[int], str]] = {**PAIR, "1": ((), "of others")}
    assert list(read_record(write(tmp_path, 0, 2, groups, []), ME).groups) == ["0"]


def test_a_step_is_what_lies_between_two_steps_of_the_optimizer(tmp_path: Path) -> None:
    step = [entry("0", "nccl:all_reduce", [1000]), entry("0", "nccl:all_reduce", [24], "Float")]
    record = read_record(write(tmp_path, 0, 2, PAIR, step), ME)
    assert [(each.elements, each.element_bytes) for each in record.step] == [(1000, 2), (24, 4)]
    assert record.step_s == pytest.approx(1.0)


def test_a_job_that_made_one_step_is_refused_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 2, PAIR, [], steps=1)
    with pytest.raises(InputError, match="no two steps of an optimizer"):
        read_record(path, ME)


def test_a_record_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rank-00000.json.gz"
    for content in (
        b"no gzip",
        gzip.compress(b"{}"),
        gzip.compress(b'{"rank": 0}\n[]'),
        gzip.compress(b"7\n{}"),
        gzip.compress(b"[" * 100_000 + b"\n{}"),
        gzip.compress(b"{}\n[" + b"[]," * 12_000_000 + b"[]]"),
        gzip.compress(b'{"schema": 1, "world": 1' + b"0" * 4_000 + b"}\n{}"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=": not a record of a rank"):
            read_record(path, ME)


@pytest.mark.parametrize(
    ("world", "size", "told"),
    [
        (10**9, [512], "a job has 1 to 100,000, counted from 0"),
        (0, [512], "a job has 1 to 100,000, counted from 0"),
        (2.5, [512], "no whole number"),
        (2, [2**63] * 50_000, "more than 64 bits of elements"),
    ],
)
def test_numbers_beyond_all_jobs_are_refused(
    tmp_path: Path, world: int, size: Sequence[int], told: str
) -> None:
    path = write(tmp_path, 0, world, PAIR, [entry("0", "nccl:all_reduce", size)])
    with pytest.raises(InputError, match=told):
        read_record(path, ME)


def test_records_of_another_user_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But by root, who is told whose they are; no link leads to others' folders."""
    write(tmp_path, 0, 2, PAIR, [])
    others = tmp_path / "others"
    (others / "1").mkdir(parents=True)
    (others / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"no files rank-\*.json.gz$"):
        read_run(others)
    for reader, owner in ((0, ME), (ME, ME)):
        monkeypatch.setattr(os, "geteuid", lambda reader=reader: reader)
        assert read_run(tmp_path).owner == user_name(owner)
    monkeypatch.setattr(os, "geteuid", lambda: ME + 1)
    with pytest.raises(InputError, match=r"another user; only .* are read; copy others'"):
        read_run(tmp_path)


def test_the_folder_of_several_jobs_names_them(tmp_path: Path) -> None:
    for folder in ("17", "ann/18/run-0-batch-0-0"):
        (tmp_path / folder).mkdir(parents=True)
        write(tmp_path / folder, 0, 2, PAIR, [])
    with pytest.raises(InputError, match=r"no files rank-\*.json.gz; it has records of jobs 17, ann/18$"):
        read_run(tmp_path)


def test_records_of_two_jobs_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path, 0, 2, PAIR, [])
    write(tmp_path, 1, 4, PAIR, [])
    with pytest.raises(InputError, match="records of jobs of 2 and 4 ranks"):
        read_run(tmp_path)


def test_a_record_that_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path, 0, 2, PAIR, [])
    (tmp_path / "rank-00001.json.gz").write_bytes(b"cut off")
    run = read_run(tmp_path)
    assert [record.rank for record in run.records] == [0]
    assert "rank-00001.json.gz: not a record of a rank" in run.notes[0]


def test_a_record_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 2, PAIR, [], schema=4)
    with pytest.raises(InputError, match="schema 4 is not known; update Dally"):
        read_record(path, ME)


def test_the_last_run_that_trained_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    for run, begun_ns, steps in (
        ("run-0-batch-0-1", 5, 8),
        ("run-1-batch-0-1", 9, 8),
        ("run-1-batch-1-1", 11, 1),
    ):
        (tmp_path / run).mkdir()
        write(tmp_path / run, 0, 1, {}, [], steps=steps, begun_ns=begun_ns)
    found = read_run(tmp_path)
    assert found.folder.name == "run-1-batch-0-1"
    assert found.notes == (
        "this is run-1-batch-0-1, the last that trained; other runs: run-0-batch-0-1, run-1-batch-1-1",
    )
    assert read_run(tmp_path / "run-0-batch-0-1").notes == ()


def test_a_step_with_more_collectives_than_are_remembered_is_told(tmp_path: Path) -> None:
    write(tmp_path, 0, 2, PAIR, [entry("0", "nccl:all_reduce", [8])], kept=1)
    assert "rank 0: one step has more collectives than PyTorch remembers" in read_run(tmp_path).notes[0]


def test_a_job_that_sends_every_fourth_step_only_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 2, PAIR, [entry("0", "gloo:all_reduce", [512])])
    with gzip.open(path) as file:
        about, trace = (json.loads(line) for line in file)
    with gzip.open(path, "wt") as file:
        file.write(f"{json.dumps(about)}\n{json.dumps({'entries': trace['entries'][::4]})}")
    assert read_run(tmp_path).notes == (
        "rank 0: its typical step sends nothing, and what its other steps send is not counted",
    )
