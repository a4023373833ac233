"""The tree: a gang's shape by hand, uneven depths, and what is refused."""

import pytest

from dally.cluster.topology import Link, Machine, Ring, Shape, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology, switch_heights
from dally.errors import InputError

FABRIC = Link(900e9, 1e-6)
SLOT = Link(1800e9)
NIC = Link(100e9, 2e-6)
SLOW_NIC = Link(50e9, 3e-6)
RACK = Link(400e9, 5e-6)
POD = Link(800e9, 9e-6)


def machine(name: str, switch: str, uplink: Link = NIC, gpus: int = 8, gpu_type: str = "a100") -> Attached:
    return Attached(Machine(name, gpus, gpu_type, FABRIC, slots=2, slot_fabric=SLOT), switch, uplink)


@pytest.fixture
def two_racks() -> Topology:
    """Machines 0 and 1 in rack r1, machine 2 with a slow NIC in rack r2."""
    return build_topology(
        "two",
        [machine("a", "r1"), machine("b", "r1"), machine("c", "r2", SLOW_NIC, gpu_type="h100")],
        [Switch("top", None), Switch("r1", "top", RACK), Switch("r2", "top", RACK)],
    )


def test_a_gang_in_one_slot_has_one_ring_over_the_slot_fabric(two_racks: Topology) -> None:
    assert two_racks.shape(((0, 3),)) == Shape(0, (3,), (), (Ring(3, SLOT, 1),), ("a100",))


def test_a_gang_over_both_slots_has_a_second_ring_over_the_machine_fabric(two_racks: Topology) -> None:
    rings = (Ring(4, SLOT, 1), Ring(2, FABRIC, 1))
    assert two_racks.shape(((1, 6),)) == Shape(0, (6,), (), rings, ("a100",))


def test_one_gpu_has_no_ring(two_racks: Topology) -> None:
    assert two_racks.shape(((2, 1),)).rings == ()


def test_a_gang_in_a_rack_steps_over_two_machine_uplinks(two_racks: Topology) -> None:
    rings = (Ring(4, SLOT, 1), Ring(2, NIC, 2))
    assert two_racks.shape(((0, 4), (1, 2))) == Shape(1, (4, 2), (2,), rings, ("a100",))


def test_a_gang_over_racks_is_held_back_by_its_slowest_links(two_racks: Topology) -> None:
    shape = two_racks.shape(((0, 1), (1, 1), (2, 5)))
    rings = (Ring(4, SLOT, 1), Ring(2, FABRIC, 1), Ring(2, SLOW_NIC, 2, 3), Ring(2, RACK, 2))
    assert shape == Shape(2, (5, 1, 1), (2, 1), rings, ("a100", "h100"))


def test_levels_and_domains_count_up(two_racks: Topology) -> None:
    assert two_racks.levels == ("machine", "rack", "network")
    assert [domain.name for domain in two_racks.domains] == ["a", "b", "c", "r1", "r2", "top"]
    assert [domain.gpus for domain in two_racks.domains] == [8, 8, 8, 16, 8, 24]
    assert two_racks.root.children == (3, 4)


def test_shallow_switches_get_pass_through_domains_without_uplink() -> None:
    uneven = build_topology(
        "uneven",
        [machine("deep", "rack"), machine("mid", "shallow"), machine("x", "pod")],
        [
            Switch("top", None),
            Switch("pod", "top", POD),
            Switch("rack", "pod", RACK),
            Switch("shallow", "top", SLOW_NIC),
        ],
    )
    names = [[(domain.name, domain.uplink) for domain in level] for level in uneven.level_domains[1:]]
    assert names == [
        [("rack", RACK), ("shallow", SLOW_NIC), ("pod", None)],
        [("pod", POD), ("top", None)],
        [("top", None)],
    ]
    assert [len(path) for path in uneven.ancestors] == [4, 4, 4]


def test_traffic_of_a_pass_through_domain_crosses_the_uplinks_below_it() -> None:
    uneven = build_topology(
        "uneven",
        [machine("deep", "rack"), machine("mid", "shallow")],
        [
            Switch("top", None),
            Switch("pod", "top", POD),
            Switch("rack", "pod", RACK),
            Switch("shallow", "top", SLOW_NIC),
        ],
    )
    below, across = Ring(1, Link(50e9, 5e-6), 2, 2), Ring(2, Link(50e9, 9e-6), 2)
    assert uneven.shape(((0, 1), (1, 1))).rings == (Ring(1, NIC, 2, 2), below, across)


def test_a_gang_on_machines_of_two_high_switches_has_a_shape() -> None:
    uneven = build_topology(
        "uneven",
        [machine("a", "r1"), machine("b", "r2"), machine("x", "p1"), machine("y", "p2")],
        [
            Switch("top", None),
            Switch("p1", "top", POD),
            Switch("p2", "top", POD),
            Switch("r1", "p1", RACK),
            Switch("r2", "p2", RACK),
        ],
    )
    shape = uneven.shape(((2, 1), (3, 1)))
    alone = Ring(1, NIC, 2, 2)
    assert (shape.level, shape.racks, shape.rings) == (3, (1, 1), (alone, alone, Ring(2, POD, 2)))


def test_a_flat_cluster_has_two_levels() -> None:
    flat = build_topology("flat", [machine("a", "net"), machine("b", "net")], [Switch("net", None)])
    assert flat.levels == ("machine", "network")
    assert flat.shape(((0, 1), (1, 1))).racks == (2,)


def test_switch_heights_leave_out_switches_without_machines() -> None:
    parents = {"top": None, "r1": "top", "r2": "top"}
    assert switch_heights(["r1", "top"], parents) == {"r1": 1, "top": 2}


@pytest.mark.parametrize(
    ("attached", "switches", "message"),
    [
        ([], [Switch("s", None)], "no machines"),
        ([machine("a", "s"), machine("a", "s")], [Switch("s", None)], "machine a is defined twice"),
        ([machine("a", "t")], [Switch("s", None)], "machine a hangs on unknown switch t"),
        ([machine("a", "s")], [Switch("s", None), Switch("s", None)], "switch s is defined twice"),
        ([machine("a", "s")], [Switch("s", "t", RACK)], "switch s hangs on unknown switch t"),
        ([machine("a", "s")], [Switch("s", None), Switch("t", "s")], "switch t has no uplink to s"),
        ([machine("a", "s")], [Switch("s", None, RACK)], "switch s is at the top"),
        ([machine("a", "s")], [Switch("s", None), Switch("t", "s", RACK)], "switch t has no machines"),
        ([machine("a", "s")], [Switch("s", "t", RACK), Switch("t", "s", RACK)], "part of a cycle"),
        (
            [machine("a", "s"), machine("b", "t")],
            [Switch("s", None), Switch("t", None)],
            r"not connected: 2 top switches \(s, t\)",
        ),
    ],
)
def test_a_wrong_tree_is_refused_by_name(
    attached: list[Attached], switches: list[Switch], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build_topology("bad", attached, switches)


def test_a_switch_below_a_cycle_is_not_called_part_of_it() -> None:
    with pytest.raises(InputError, match=r"switch (t|u) is part"):
        switch_heights(["s"], {"s": "t", "t": "u", "u": "t"})


def test_the_number_of_level_names_must_match() -> None:
    with pytest.raises(InputError, match="3 level names for a tree of 2 levels"):
        build_topology("x", [machine("a", "s")], [Switch("s", None)], ["a", "b", "c"])


@pytest.mark.parametrize(("bandwidth_bps", "latency_s"), [(0, 0), (-1, 0), (float("nan"), 0), (1, -1)])
def test_a_link_needs_sane_numbers(bandwidth_bps: float, latency_s: float) -> None:
    with pytest.raises(InputError, match="must be"):
        Link(bandwidth_bps, latency_s)


def test_slots_must_divide_the_gpus() -> None:
    with pytest.raises(InputError, match="machine m: slots is 3, must divide its 8 GPUs"):
        Machine("m", 8, "", FABRIC, slots=3)
