import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.profiles.schema import PointLink
from profiler.driver.plan import (
    SOLO,
    NoRoomError,
    PlannedHost,
    PlannedRack,
    RankSpread,
    only_hosts,
    parse_shape,
    plan_runs,
    same_job_spreads,
    spreads_for,
    usual_spreads,
)
from profiler.spec import MeasurementSpec
from workloads.settings import Backend

ORDER = MeasurementSpec(("resnet18",), Backend.GLOO)
FAST, SLOW = PointLink(10e9, 1e-6), PointLink(1e9, 2e-6)


def make_racks(*sizes: int, ranks: int = 8) -> tuple[PlannedRack, ...]:
    return tuple(
        PlannedRack(tuple(PlannedHost(f"r{rack}h{host}", ranks, FAST) for host in range(size)), SLOW)
        for rack, size in enumerate(sizes)
    )


def names(spreads: tuple[RankSpread, ...]) -> list[str]:
    return [spread.name for spread in spreads]


def wanted(*texts: str) -> list[tuple[RankSpread, ...]]:
    return [parse_shape(text) for text in texts]


def test_a_cluster_of_racks_is_measured_in_a_machine_a_rack_and_the_network() -> None:
    assert names(usual_spreads(make_racks(2, 2))) == [
        "machine-1x1",
        "machine-1x8",
        "rack-2x1",
        "rack-2x8",
        "network-2x1",
        "network-2x8",
        "network-4x1",
    ]


def test_racks_of_four_hosts_are_measured_on_four_too() -> None:
    found = names(usual_spreads(make_racks(4)))
    assert found == ["machine-1x1", "machine-1x8", "rack-2x1", "rack-2x8", "rack-4x1", "rack-4x8"]


def test_hosts_with_one_gpu_are_measured_once_in_each_shape() -> None:
    assert names(usual_spreads(make_racks(2, 2, ranks=1))) == [
        "machine-1x1",
        "rack-2x1",
        "network-2x1",
        "network-4x1",
    ]


def test_tiers_that_a_cluster_has_not_are_left_out() -> None:
    assert names(usual_spreads(make_racks(2, ranks=1))) == ["machine-1x1", "rack-2x1"]
    assert names(usual_spreads(make_racks(1, 1, ranks=1))) == ["machine-1x1", "network-2x1"]


def test_a_shape_asked_for_is_measured_in_every_tier_it_fits_and_one_rank_is_measured_besides() -> None:
    assert names(spreads_for(wanted("2x4", "1x2"), make_racks(2, 1))) == [
        "machine-1x1",
        "rack-2x4",
        "network-2x4",
        "machine-1x2",
    ]
    assert names(spreads_for(wanted("4x1"), make_racks(2, 2))) == ["machine-1x1", "network-4x1"]


def test_a_shape_that_fits_nowhere_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        InputError,
        match="rack-4x1 or network-4x1 fits nowhere; the run has 3 hosts in 2 racks, at most 2 in one",
    ):
        spreads_for(wanted("4x1"), make_racks(2, 1))


def test_a_shape_may_name_its_tier() -> None:
    assert names(spreads_for(wanted("network-2x1"), make_racks(2, 2))) == ["machine-1x1", "network-2x1"]
    with pytest.raises(InputError, match="cannot be: 2 hosts are in tier rack or network"):
        parse_shape("machine-2x1")


@pytest.mark.parametrize("text", ["hall-2x1", "", "4", "0x1", "4x0", "4x1x1", "axb", "-1x1"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="must be HOSTSxRANKS"):
        parse_shape(text)


def test_machines_of_one_rack_are_taken_for_the_rack_and_of_two_for_the_network() -> None:
    runs = plan_runs(usual_spreads(make_racks(1, 2, ranks=1)), make_racks(1, 2, ranks=1), ORDER)

    assert {run.name: run.hosts for run in runs} == {
        "machine-1x1": ("r0h0",),
        "rack-2x1": ("r1h0", "r1h1"),
        "network-2x1": ("r0h0", "r1h0"),
    }


def test_the_link_of_a_run_is_the_slowest_it_crosses() -> None:
    racks = make_racks(2, 2)
    runs = plan_runs((SOLO, RankSpread("rack", 2, 1), RankSpread("network", 2, 1)), racks, ORDER)

    assert [run.link for run in runs] == [None, FAST, PointLink(1e9, 2e-6)]


def test_an_unknown_link_makes_that_of_the_run_unknown() -> None:
    racks = (PlannedRack((PlannedHost("a", 1, FAST), PlannedHost("b", 1))),)
    (run,) = plan_runs((RankSpread("rack", 2, 1),), racks, ORDER)

    assert run.link is None


def test_runs_between_hosts_are_repeated_under_background_flows() -> None:
    runs = plan_runs((SOLO, RankSpread("rack", 2, 1)), make_racks(2), ORDER, background=2)

    flows = {run.name: run.spec.background_flows for run in runs}
    assert flows == {"machine-1x1": 0, "rack-2x1": 0, "rack-2x1-bg2": 2}


def test_background_flows_need_two_hosts() -> None:
    with pytest.raises(InputError, match="2 background flows have no two hosts to run between"):
        plan_runs((SOLO,), make_racks(1), ORDER, background=2)


def test_hosts_that_are_busy_are_not_used() -> None:
    free = only_hosts(make_racks(2, 2), {"r0h1", "r1h0"})
    (run,) = plan_runs((RankSpread("network", 2, 8),), free, ORDER)

    assert run.hosts == ("r0h1", "r1h0")


def test_that_no_free_hosts_lie_right_is_said_with_those_there_are() -> None:
    free = only_hosts(make_racks(2, 2), {"r0h1", "r1h0"})
    with pytest.raises(NoRoomError, match="no free hosts for rack-2x1; the run has 2 hosts in 2 racks"):
        plan_runs((RankSpread("rack", 2, 1),), free, ORDER)


def test_that_nothing_is_free_is_said() -> None:
    with pytest.raises(NoRoomError, match="no free hosts for machine-1x1; there are none"):
        plan_runs((SOLO,), (), ORDER)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    ranks=st.integers(1, 4),
    shapes=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 4)), max_size=3),
)
def test_every_run_lies_in_its_tier_and_takes_each_host_once(
    sizes: list[int], ranks: int, shapes: list[tuple[int, int]]
) -> None:
    racks = make_racks(*sizes, ranks=ranks)
    try:
        spreads = spreads_for(wanted(*(f"{hosts}x{each}" for hosts, each in shapes)), racks)
    except InputError:
        return
    for run in plan_runs(spreads, racks, ORDER):
        used = {host.split("h")[0] for host in run.hosts}
        assert len(set(run.hosts)) == len(run.hosts) == run.shape.nodes
        assert run.shape.racks == len(used)
        assert (len(run.hosts) == 1) == (run.tier == "machine")
        assert (len(used) > 1) == (run.tier == "network")


def test_a_job_of_the_users_has_as_many_ranks_as_a_machine_in_every_shape() -> None:
    racks = make_racks(4, 2)
    found = names(same_job_spreads((), racks))
    assert found == ["machine-1x8", "rack-2x4", "network-2x4", "rack-4x2", "network-4x2"]
    assert names(same_job_spreads((), make_racks(1, 1, ranks=2))) == ["machine-1x2", "network-2x1"]
    assert names(same_job_spreads((), make_racks(2, ranks=1))) == ["rack-2x1"]
    assert names(same_job_spreads((), make_racks(4, ranks=3))) == ["machine-1x3"]


def test_shapes_that_a_user_asks_for_are_run_and_no_others() -> None:
    assert names(same_job_spreads(wanted("2x1", "1x2"), make_racks(2, 2))) == [
        "rack-2x1",
        "network-2x1",
        "machine-1x2",
    ]
