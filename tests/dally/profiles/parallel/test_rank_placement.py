"""Where ranks are on a cluster, and over which of its links they send."""

from dataclasses import replace

from dally.cluster.links import NvlinkRack
from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.profiles.parallel.rank_placement import RankPlacer

GB_S = 8e9
"""Bits per second of a gigabyte per second."""

CARDS = Link(400 * GB_S)


def cluster(names: str = "n1 n2 n3 n4", uplink: Link = CARDS, gpu_type: str = "h100") -> Topology:
    """Two racks with two machines of 8 GPUs each, with 600 GB/s out of a rack."""
    machines = [
        Attached(Machine(name, 8, gpu_type, Link(450 * GB_S)), f"r{number // 2}", uplink)
        for number, name in enumerate(names.split())
    ]
    switches = [
        Switch("top", None, None),
        *(Switch(f"r{rack}", "top", Link(600 * GB_S)) for rack in range(2)),
    ]
    return build_topology("c", machines, switches)


def test_a_gang_has_its_share_of_machines_links_and_all_of_racks() -> None:
    near, far = (RankPlacer(cluster()).place(gang) for gang in (((0, 4), (1, 8)), ((0, 8), (2, 8))))
    assert near.machines == (4, 8)
    (machines,) = near.links
    assert machines.bytes_per_s == 4 * 50e9
    assert machines.rank_bytes_per_s == 50e9
    assert near.inside_bytes_per_s == 450e9
    assert [tier.bytes_per_s for tier in far.links] == [400e9, 600e9]
    assert [tier.domains for tier in far.links] == [(0, 1), (0, 1)]


def test_inside_a_machine_no_links_are_crossed() -> None:
    assert RankPlacer(cluster()).place(((2, 5),)).links == ()


def test_ranks_go_by_the_names_of_machines_as_slurm_sorts_them() -> None:
    """With these names the racks are met in turns."""
    placed = RankPlacer(cluster("n2 n10 n9 n1")).place(((0, 8), (1, 7), (2, 6), (3, 5)))
    assert placed.machines == (5, 8, 6, 7)
    assert placed.links[1].domains == (0, 1, 0, 1)


def test_equal_machines_give_equal_placements() -> None:
    placer = RankPlacer(cluster())
    assert placer.place(((0, 8), (1, 4))) == placer.place(((2, 8), (3, 4)))


def test_machines_whose_uplinks_are_nvlink_are_one_domain() -> None:
    placer = RankPlacer(cluster(uplink=Link(8 * 450 * GB_S)))
    together, apart = placer.place(((0, 8), (1, 8))), placer.place(((0, 8), (1, 8), (2, 8)))
    assert (together.machines, together.links) == ((16,), ())
    assert (apart.machines, apart.lowest) == ((16, 8), 1)
    assert [tier.bytes_per_s for tier in apart.links] == [8 * 600e9 / 16]


def test_cards_of_an_nvlink_rack_are_those_of_all_its_machines() -> None:
    """The reader of Slurm's files gives the rack the cards of one machine."""
    rack = NvlinkRack(72, 7.2e12, 400e9)
    topology = cluster(uplink=rack.uplink(8), gpu_type="gb200")
    domains = [
        replace(domain, uplink=rack.outside(8)) if domain.level == 1 else domain
        for domain in topology.domains
    ]
    machines = tuple(replace(machine, fabric=rack.fabric) for machine in topology.machines)
    topology = replace(topology, domains=tuple(domains), machines=machines)
    (tier,) = RankPlacer(topology).place(((0, 8), (1, 8), (2, 8), (3, 8))).links
    assert tier.bytes_per_s == 16 * 50e9


def test_a_slots_own_fabric_counts_where_a_slot_holds_the_gang() -> None:
    topology = cluster()
    slotted = tuple(
        replace(machine, slots=2, slot_fabric=Link(450 * GB_S), fabric=Link(30 * GB_S))
        for machine in topology.machines
    )
    placer = RankPlacer(replace(topology, machines=slotted))
    assert placer.place(((0, 4),)).inside_bytes_per_s == 450e9
    assert placer.place(((0, 5),)).inside_bytes_per_s == 30e9


def test_a_rack_without_an_uplink_limits_nothing() -> None:
    topology = cluster()
    domains = tuple(
        replace(domain, uplink=None) if domain.level == 1 else domain for domain in topology.domains
    )
    _, rack = RankPlacer(replace(topology, domains=domains)).place(((0, 8), (2, 8))).links
    assert rack.bytes_per_s == float("inf")
