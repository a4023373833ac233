"""A pipeline of two stages, recorded on one machine where messages take no time, elsewhere."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.profiles.allreduce import HEADERS
from dally.profiles.files import load_profiles, write_profile
from dally.profiles.schema import Profile
from profiler.recorded.predicted_steps import predict_steps
from profiler.recorded.record import read_run
from profiler.recorded.recorded_profile import RecordedJob, recorded_profile
from tests.profiler.recorded.jobs import STEPS, entry, write
from tests.profiler.recorded.test_predicted_steps import CLUSTER, MB

S = 1_000_000_000
FORWARD_S, SECOND_S = 0.2, 0.4
"""Until the first stage sends activations, then until the second sends gradients; a step takes 1 s."""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return str(path)


def moments(at_s: float) -> list[int]:
    return [round((number + at_s) * S) for number in range(STEPS)]


def messages(at_s: float, peer: int, *waited_s: float) -> list[tuple[str | int, ...]]:
    """One in each step, and from when until when it was waited for."""
    times = [moments(each) for each in (at_s, *waited_s)]
    return [("1", MB // 2, at_ns, peer, *waited_ns) for at_ns, *waited_ns in zip(*times, strict=True)]


def recorded(folder: Path, noted: bool = True) -> Path:
    """Half a megabyte goes there and back in each step; the second stage steps as soon as it has sent it.

    Args:
        folder: Where.
        noted: The first stage noted what it asked for.
    """
    folder.mkdir()
    groups: dict[str, tuple[Sequence[int], str]] = {"1": ([0, 1], "mesh_pp")}
    there, back = FORWARD_S, FORWARD_S + SECOND_S
    first = {"sent": messages(there, 1), "received": messages(there, 1) if noted else []}
    second = {"sent": messages(back - 1e-6, 0), "received": messages(back - 1 + 1e-6, 0)}
    write(folder, 0, 2, groups, [], host="a", timed=first)
    write(folder, 1, 2, groups, [], host="a", timed=second, steps_ns=moments(back))
    return folder


def profile(folder: Path, cluster: str) -> Profile:
    return recorded_profile(RecordedJob("m"), [read_run(folder)], load_cluster(cluster))


def test_both_messages_are_waited_for_and_nothing_else(tmp_path: Path, cluster: str) -> None:
    found = predict_steps(read_run(recorded(tmp_path / "17")), load_cluster(cluster))
    assert [each.level for each in found] == ["machine", "rack", "network"]
    # 0.5 MB there and 0.5 MB back, over 1 MB/s or 0.25 MB/s.
    assert [each.step_s for each in found] == pytest.approx([1.0, 1 + HEADERS, 1 + 4 * HEADERS], abs=1e-3)


def recorded_waits(folder: Path, late_s: float) -> Path:
    """The same, where ranks noted when they waited, and the second one's clock is late."""
    folder.mkdir()
    groups: dict[str, tuple[Sequence[int], str]] = {"1": ([0, 1], "mesh_pp")}
    there, back, soon = FORWARD_S, FORWARD_S + SECOND_S, 1e-6
    first = {"sent": messages(there, 1, there, there + soon)}
    first["received"] = messages(there + soon, 1, there + 2 * soon, back)
    there, back = there + late_s, back + late_s
    second = {"sent": messages(back - 2 * soon, 0, back - soon, back)}
    second["received"] = messages(back - 1 + soon, 0, back - 1 + 2 * soon, there)
    write(folder, 0, 2, groups, [], host="a", timed=first)
    write(folder, 1, 2, groups, [], host="a", timed=second, steps_ns=moments(back))
    return folder


def test_where_ranks_noted_their_waits_clocks_need_not_agree(tmp_path: Path, cluster: str) -> None:
    run = read_run(recorded_waits(tmp_path / "17", late_s=0.3))
    found = predict_steps(run, load_cluster(cluster))
    assert [each.step_s for each in found] == pytest.approx([1.0, 1 + HEADERS, 1 + 4 * HEADERS], abs=1e-3)


def test_a_message_has_when_its_sender_waits_for_it(tmp_path: Path, cluster: str) -> None:
    found = profile(recorded_waits(tmp_path / "17", late_s=0.0), cluster)
    assert [each.sent_s for each in found.events] == pytest.approx([FORWARD_S, SECOND_S], abs=1e-3)


def launched(folder: Path) -> Path:
    """Two microbatches, each 1/9 s forward and twice that backward on both stages, launched in one go.

    On one machine the second stage waits for the first microbatch, and the first stage for its gradients:
    1/9 + 2 * 3/9 + 2/9 s.
    """
    folder.mkdir()
    groups: dict[str, tuple[Sequence[int], str]] = {"1": ([0, 1], "mesh_pp")}
    there, back = ("nccl:send 0->1", "nccl:recv 0<-1"), ("nccl:recv 1<-0", "nccl:send 1->0")
    for rank, names in enumerate(((there[0], there[0], there[1], there[1]), (*back, *back))):
        calls = [entry("1", name, [MB // 2], "Byte") for name in names]
        write(folder, rank, 2, groups, calls, host="a", backend="nccl")
    return folder


def test_messages_that_are_launched_in_one_go_lie_between_the_passes_of_microbatches(
    tmp_path: Path, cluster: str
) -> None:
    found = predict_steps(read_run(launched(tmp_path / "19")), load_cluster(cluster))
    # Both microbatches are sent while the second stage waits for the first; three messages follow in turn.
    in_turn = [1.0, 6 / 9 + 1.5 * HEADERS, 6 / 9 + 6 * HEADERS]
    assert [each.step_s for each in found] == pytest.approx(in_turn, abs=1e-3)
    events = profile(tmp_path / "19", cluster).events
    passes = {(each.stage, round(9 * each.ready_s), round(9 * (each.needed_s or 0.0))) for each in events}
    assert passes == {(0, 1, 0), (0, 2, 3), (1, 3, 2), (1, 6, 4)}


INTERLEAVED = (
    ("send 0->1", "recv 0<-2", "send 0->1", "recv 0<-1", "send 0->2", "recv 0<-1"),
    ("recv 1<-0", "send 1->2", "recv 1<-0", "send 1->2", "recv 1<-2", "send 1->0", "recv 1<-2", "send 1->0"),
    ("recv 2<-1", "send 2->0", "recv 2<-1", "send 2->1", "recv 2<-0", "send 2->1"),
)
"""A microbatch through six parts of a model, of which each rank has two."""


def test_where_stages_are_interleaved_messages_go_round_and_lie_between_the_passes_too(
    tmp_path: Path, cluster: str
) -> None:
    groups: dict[str, tuple[Sequence[int], str]] = {"1": ([0, 1, 2], "mesh_pp")}
    for rank, names in enumerate(INTERLEAVED):
        calls = [entry("1", f"nccl:{name}", [MB // 2], "Byte") for name in names]
        write(tmp_path, rank, 3, groups, calls, host="a", backend="nccl")
    events = profile(tmp_path, cluster).events
    whole_s = max(each.ready_s for each in events)
    sent: list[list[int]] = [[], [], []]
    for each in events:
        sent[each.stage or 0].append(round(12 * each.ready_s / whole_s))
    # Two passes forward, each a sixth, and two backward. Shared out is what sends nothing: the second forward
    # of the last rank, and the second backward of the first.
    assert sent == [[2, 4, 10], [2, 4, 8, 12], [2, 7, 12]]


def test_each_stage_has_its_own_compute(tmp_path: Path, cluster: str) -> None:
    found = profile(recorded(tmp_path / "17"), cluster)
    computes = [each.bwd_s + each.step_s for each in found.compute.stages]
    assert found.plan == "pp=2"
    assert computes == pytest.approx([1 - SECOND_S, SECOND_S], abs=1e-3)
    assert [(each.stage, each.to, each.bytes) for each in found.events] == [(0, 1, MB // 2), (1, 0, MB // 2)]


def test_such_a_profile_is_read_as_it_was_written(tmp_path: Path, cluster: str) -> None:
    found = profile(recorded(tmp_path / "17"), cluster)
    (tmp_path / "set").mkdir()
    write_profile(found, tmp_path / "set" / "m.json")
    assert load_profiles(str(tmp_path / "set")).profiles == (found,)


def test_where_nobody_recorded_what_is_asked_for_one_rank_stands_for_all(
    tmp_path: Path, cluster: str
) -> None:
    found = profile(recorded(tmp_path / "17", noted=False), cluster)
    assert (found.compute.stages, [each.stage for each in found.events]) == ((), [None])


@pytest.mark.parametrize(("shares", "loads"), [((1, 1), ()), ((3, 1), (1.5, 0.5))])
def test_experts_of_uneven_load_send_and_get_what_they_did(
    tmp_path: Path, cluster: str, shares: tuple[int, int], loads: tuple[float, ...]
) -> None:
    """All ranks have as much; the first expert gets so many parts of it, the second the rest."""
    folder = tmp_path / "18"
    folder.mkdir()
    for rank, share in enumerate(shares):
        got = [MB * share * 2 // sum(shares)]
        exchange = {**entry("1", "all_to_all", [MB], "Byte"), "output_sizes": [got]}
        write(folder, rank, 2, {"1": ([0, 1], "mesh_ep")}, [exchange], host="a")
    (event,) = profile(folder, cluster).events
    assert (event.collective, event.bytes, event.loads) == ("all_to_all", MB, loads)
