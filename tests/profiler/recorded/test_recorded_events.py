from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dally.cluster import load_cluster, write_toml
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.event_iteration import replay_events
from dally.profiles.local_batch import compute_pass
from dally.profiles.parallel.rank_placement import RankPlacer
from dally.profiles.schema import Profile, ProfileMode
from dally.testing.worlds import racks
from profiler.recorded.record import read_run
from profiler.recorded.recorded_profile import RecordedJob, recorded_profile
from tests.profiler.recorded.jobs import entry, write

MS = 1_000_000
LAYER = [1_000_000]


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    path = tmp_path / "cluster.toml"
    path.write_text(write_toml(racks([[4, 4], [4]])))
    return load_cluster(str(path))


def profile(
    folder: Path,
    topology: Topology,
    hosts: Sequence[str],
    step: Sequence[dict[str, Any]],
    **about_too: Any,
) -> Profile:
    """The profile of a job that does this in each step of a second; `at_ms` of each call is in its entry."""
    for rank, host in enumerate(hosts):
        groups = {"1": (range(len(hosts)), "mesh_dp")}
        write(folder, rank, len(hosts), groups, [dict(each) for each in step], host=host, **about_too)
    return recorded_profile(RecordedJob("m"), [read_run(folder)], topology)


def call(name: str, at_ms: int, **more: Any) -> dict[str, Any]:
    return {**entry("1", name, LAYER), "at_ns": at_ms * MS, **more}


FSDP = (
    call("gloo:all_gather", 100),  # forward of two layers
    call("gloo:all_gather", 200),
    call("gloo:all_gather", 400),  # for backward of the first, while the second's computes
    call("gloo:all_reduce", 600),
    call("gloo:all_reduce", 800),
)


def test_fsdp_waits_for_weights_at_once_in_forward_and_for_a_layers_backward_in_backward(
    tmp_path: Path, topology: Topology
) -> None:
    found = profile(tmp_path, topology, ["r0m0"] * 4, FSDP)
    assert (found.plan, found.provenance.mode) == ("dp=4,zero=3", ProfileMode.GLOO)
    ready = [event.ready_s for event in found.events]
    assert [event.needed_s for event in found.events] == [ready[0], ready[1], ready[3], None, None]
    assert ready == pytest.approx([0.1, 0.2, 0.4, 0.6, 0.8], abs=1e-3)  # inside a machine it takes no time
    assert [event.bytes for event in found.events] == [8_000_000] * 3 + [2_000_000] * 2


@pytest.mark.parametrize("hosts", [["r0m0"] * 4, ["r0m0", "r0m0", "r0m1", "r0m1"], ["r0m0", "r1m0"]])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_the_replay_of_where_it_was_recorded_takes_as_long_as_it_took(
    tmp_path: Path, topology: Topology, hosts: Sequence[str], backend: str
) -> None:
    step = [{**each, "profiling_name": each["profiling_name"].replace("gloo", backend)} for each in FSDP]
    found = profile(tmp_path, topology, hosts, step)
    place = tuple((machine, hosts.count(each.name)) for machine, each in enumerate(topology.machines))
    place = tuple((machine, count) for machine, count in place if count)
    ranks = RankPlacer(topology).place(place)
    again = replay_events(found, topology.shape(place), ranks, compute_pass(found), 1.0, 1.0)
    assert again.iteration_s == pytest.approx(1.0, rel=1e-9)


def test_with_nccl_gathers_are_launched_a_layer_ahead(tmp_path: Path, topology: Topology) -> None:
    step = [{**each, "profiling_name": each["profiling_name"].replace("gloo", "nccl")} for each in FSDP]
    found = profile(tmp_path, topology, ["r0m0"] * 4, step)
    assert found.provenance.mode is ProfileMode.NCCL
    first, second = found.events[:2]
    assert second.ready_s == first.ready_s
    assert second.needed_s == pytest.approx(0.2, abs=1e-3)


AT_ONCE = (
    call("nccl:_allgather_base", 900),  # forward of two layers
    call("nccl:_allgather_base", 902),
    call("nccl:_allgather_base", 904),  # for backward of the second
    call("nccl:_allgather_base", 906),  # and of the first, while the second's computes
    call("nccl:_reduce_scatter_base", 908),
    call("nccl:_reduce_scatter_base", 910),
)


BUCKETS = [
    {**call("nccl:all_reduce", 900 + at), "input_sizes": [[size]]}
    for at, size in enumerate((1_000_000, 2_000_000, 3_000_000))
]


def test_calls_that_are_launched_in_one_go_lie_where_the_gpu_computes(
    tmp_path: Path, topology: Topology
) -> None:
    found = profile(tmp_path, topology, ["r0m0"] * 4, AT_ONCE)
    compute_s = found.compute.total_s
    assert compute_s == pytest.approx(1.0, abs=0.01)
    sixths = [
        (round(6 * event.ready_s), event.needed_s and round(6 * event.needed_s)) for event in found.events
    ]
    forward, backward = [(0, 0), (0, 1)], [(1, 2), (2, 4)]
    assert sixths == [*forward, *backward, (4, None), (6, None)]


def test_replicas_reduce_what_was_scattered_at_once(tmp_path: Path, topology: Topology) -> None:
    scatter, reduce = call("nccl:_reduce_scatter_base", 900), call("nccl:all_reduce", 901)
    layer = (scatter, {**reduce, "process_group": ["2", ""]})
    step = [*layer, *({**each, "at_ns": each["at_ns"] + 10 * MS} for each in layer)]
    for rank in range(4):
        shards, replicas = [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]
        groups = {"1": (shards, "mesh_dp_shard"), "2": (replicas, "mesh_dp_replicate")}
        write(tmp_path, rank, 4, groups, [dict(each) for each in step], host="r0m0")
    found = recorded_profile(RecordedJob("m"), [read_run(tmp_path)], topology)
    assert [round(6 * event.ready_s) for event in found.events] == [4, 4, 6, 6]


def test_buckets_that_are_launched_in_one_go_are_reduced_as_backward_fills_them(
    tmp_path: Path, topology: Topology
) -> None:
    found = profile(tmp_path, topology, ["r0m0"] * 4, BUCKETS)
    assert [event.ready_s for event in found.events] == pytest.approx([4 / 9, 6 / 9, 1.0], rel=0.01)


def test_gradients_that_are_accumulated_are_reduced_in_the_last_microbatchs_backward(
    tmp_path: Path, topology: Topology
) -> None:
    found = profile(tmp_path, topology, ["r0m0"] * 4, BUCKETS, backward_passes=4, parameters=6_000_000)
    last = [(3 + share) / 4 for share in (4 / 9, 6 / 9, 1.0)]
    assert [event.ready_s for event in found.events] == pytest.approx(last, rel=0.01)


def test_gradients_that_every_microbatch_reduces_are_no_accumulated_ones(
    tmp_path: Path, topology: Topology
) -> None:
    found = profile(tmp_path, topology, ["r0m0"] * 4, BUCKETS, backward_passes=2, parameters=3_000_000)
    assert [event.ready_s for event in found.events] == pytest.approx([4 / 9, 6 / 9, 1.0], rel=0.01)


def test_weights_are_gathered_for_each_microbatch_whose_gradients_are_accumulated(
    tmp_path: Path, topology: Topology
) -> None:
    weights = [call("nccl:_allgather_base", 880 + at) for at in range(4)]
    found = profile(tmp_path, topology, ["r0m0"] * 4, [*weights, *AT_ONCE], backward_passes=2)
    twelfths = [event.needed_s and round(12 * event.needed_s) for event in found.events]
    first, second = [0, 1, 2, 4], [6, 7, 8, 10]
    assert twelfths == [*first, *second, None, None]
    assert [round(12 * event.ready_s) for event in found.events[-2:]] == [10, 12]


def test_weights_that_are_gathered_once_are_there_before_the_first_microbatch(
    tmp_path: Path, topology: Topology
) -> None:
    step = [call(f"nccl:{name}", 900) for name in ["_allgather_base"] * 4 + ["_reduce_scatter_base"] * 4]
    step = [{**each, "at_ns": each["at_ns"] + place * MS} for place, each in enumerate(step)]
    found = profile(tmp_path, topology, ["r0m0"] * 4, step, backward_passes=2, parameters=4_000_000)
    needed = [event.needed_s and round(24 * event.needed_s) for event in found.events]
    reduced = [round(24 * event.ready_s) for event in found.events[4:]]
    assert (needed[:3], reduced) == ([0, 1, 2], [18, 20, 22, 24])


def test_calls_that_the_gpu_slows_down_lie_where_they_were_launched(
    tmp_path: Path, topology: Topology
) -> None:
    step = [call("nccl:all_reduce", at) for at in (400, 500, 950)]
    found = profile(tmp_path, topology, ["r0m0"] * 4, step)
    assert [event.ready_s for event in found.events] == pytest.approx([0.4, 0.5, 0.95], rel=0.01)


def test_times_that_nccl_told_are_a_curve_and_of_ranks_the_least_counts(
    tmp_path: Path, topology: Topology
) -> None:
    for rank in range(4):
        timed = [call("nccl:all_reduce", 500, duration_ms=40.0 + 10 * rank)]
        write(tmp_path, rank, 4, {"1": (range(4), "mesh_dp")}, timed, host="r0m0")
    found = recorded_profile(RecordedJob("m"), [read_run(tmp_path)], topology)
    (curve,) = found.curves
    assert (curve.size, curve.machines, curve.tier, curve.bandwidth_bps) == (4, 1, "machine", None)
    assert [(each.bytes, each.median_s) for each in curve.times] == [(2_000_000, 0.04)]


def test_records_without_collectives_are_refused_with_their_step_time(
    tmp_path: Path, topology: Topology
) -> None:
    for rank in range(2):
        groups = {"1": (range(2), "mesh_dp")}
        write(tmp_path, rank, 2, groups, [], host="r0m0", lacks="no Flight Recorder")
    with pytest.raises(InputError, match=r"rank 0: no Flight Recorder\. Its step took 1 s: type such times"):
        recorded_profile(RecordedJob("m"), [read_run(tmp_path)], topology)
