"""What the study of recorded jobs counts, on records that are made up and on trainings that run."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.studies.recorded_jobs import (
    GLOO_BYTES,
    HEADER_BYTES,
    NAMED,
    Place,
    RecordedTraining,
    gloo_messages,
    main,
    run_recorded,
    sent_bytes,
)
from dally.hosts.network import Traffic
from dally.profiles.collectives import CollectiveKind
from profiler.launch.here import count_gpus
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import read_run
from tests.profiler.recorded.jobs import entry, write

MOST = 0.02
"""What is recorded may differ by so much from what is counted."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "plan"),
    [
        (RecordedTraining("messages of 4 KB", "plain.py", ("pp", "20", "256", "0"), 2), "pp=2"),
        (
            RecordedTraining("weights scattered at the start", "plain.py", ("tp", "8", "64", "0", "8"), 4),
            "tp=2,dp=2,zero=1",
        ),
        (
            RecordedTraining("weights spread at the start", "plain.py", ("ddp", "8", "64", "0", "8"), 2),
            "dp=2",
        ),
        (RecordedTraining("all to all", "experts.py", ("8",), 4), "dp=4,ep=2"),
    ],
    ids=lambda value: value.name if isinstance(value, RecordedTraining) else "",
)
def test_ranks_record_what_the_kernel_counts_and_their_plan_is_recognised(
    tmp_path: Path, training: RecordedTraining, plan: str
) -> None:
    place = Place("a rack", ((1,) * training.ranks,), 1e9, 1e9)
    run, links = run_recorded(training, place, tmp_path)
    assert abs(sent_bytes(run.records, links).difference) < MOST
    found = recognise(run.records)
    assert (str(found.plan), found.doubts) == (plan, ())


RACKS_OF_RANKS = (["r1", "r1", "r2", "r2"], ["r1", "r2", "r1", "r2"])


@pytest.mark.parametrize(("place", "racks"), [*zip(NAMED, RACKS_OF_RANKS, strict=True)])
def test_names_are_in_the_order_of_ranks(place: Place, racks: list[str]) -> None:
    assert [host[:2] for host in place.hosts] == racks
    assert [place.names[host] for host in place.hosts] == ["n0", "n1", "n2", "n3"]
    topology = place.topology
    leaves = [topology.ancestors[topology.machine_index[place.names[host]]][1] for host in place.hosts]
    assert len({*zip(racks, leaves, strict=True)}) == 2


def test_headers_and_what_gloo_adds_are_no_tensors(tmp_path: Path) -> None:
    groups: dict[str, tuple[Sequence[int], str]] = {"0": ((0, 1), "")}
    for rank in (0, 1):
        write(tmp_path, rank, 2, groups, [entry("0", "gloo:all_reduce", [500])])  # 1000 bytes, eight times
    messages, packets = 2 * 8 * 4, 100
    counted = 2 * 8 * 1000 + messages * GLOO_BYTES + packets * HEADER_BYTES
    links = [Traffic(counted - 500, 0, packets - 10), Traffic(500, 0, 10)]
    sent = sent_bytes(read_run(tmp_path).records, links)
    assert (sent.recorded, sent.headers, sent.gloo) == (16_000, 6_600, 9_216)
    assert sent.difference == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("kind", "of_all_ranks"),
    [
        (CollectiveKind.ALL_REDUCE, 4 * 12),
        (CollectiveKind.ALL_GATHER, 4 * 6),
        (CollectiveKind.ALL_TO_ALL, 4 * 3),
        (CollectiveKind.BROADCAST, 3),
        (CollectiveKind.SCATTER, 3),
        (CollectiveKind.OTHER, 0),
    ],
)
def test_messages_of_a_group_of_four(kind: CollectiveKind, of_all_ranks: int) -> None:
    assert 4 * gloo_messages(kind, 4) == of_all_ranks


@pytest.mark.skipif(count_gpus() > 0, reason="there is a GPU")
def test_the_table_of_a_gpu_is_refused_without_one() -> None:
    done = CliRunner().invoke(main, ["--only", "recorded-nccl"])
    assert (done.exit_code, done.output) == (
        1,
        "Error: this table needs an NVIDIA GPU: nvidia-smi lists none here\n",
    )
