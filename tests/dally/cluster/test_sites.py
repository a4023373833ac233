"""The files of ten kinds of sites are read as they are: what can be used is used, the rest is named."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from dally.cluster import load_cluster, write_toml
from dally.cluster.toml_file import read_toml
from dally.cluster.topology import Link, Topology
from dally.hostlist import fold
from tests.dally.cluster.sites import FOLDER, SITES

NVL72 = Link(28.8e12, 1e-6)
"""Four GPUs of a tray with 900 GB/s each way to the others of their rack."""


@dataclass(frozen=True)
class KnownCluster:
    """What a site's files give: GPUs of each type, levels, what is left out and why, its islands."""

    gpus: Mapping[str, int]
    levels: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    islands: tuple[str, ...] = ()


KNOWN = {
    "university": KnownCluster(
        {"a100": 32, "v100": 24, "k80": 4},
        "machine rack network",
        {
            "gold3": "2 GPUs, of which gres.conf lists 1",
            "gmix1": "GPUs of types a40, rtx3090",
            "gv07": "not in slurm.conf",
            "gdesk": "on no switch",
        },
    ),
    "cloud_fabrics": KnownCluster(
        {"h100": 64, "a100": 32}, "machine rack pod network", islands=("pg-a-spine", "pg-b")
    ),
    "a100_mig": KnownCluster(
        {"a100": 16, "a100_3g.20gb": 16},
        "machine network",
        {"mixed[1-2]": "GPUs of types a100_1g.5gb, a100_3g.20gb"},
    ),
    "superpod": KnownCluster({"h100": 127 * 8}, "machine rack pod network"),
    "gb200_blocks": KnownCluster({"gb200": 54 * 4}, "machine block network", {"r4t[01-18]": "State=FUTURE"}),
    "several_topologies": KnownCluster(
        {"h200": 128, "gb300": 144, "l40s": 24},
        "machine rack pod network",
        islands=("ib.spine", "nvlink.network", "ethernet.network"),
    ),
    "dynamic_cloud": KnownCluster(
        {"a100": 32}, "machine rack network", {"burst-[001-200]": "not in slurm.conf"}
    ),
    "no_plugin": KnownCluster({"rtx4090": 6, "": 1}, "machine network"),
    "many_files": KnownCluster(
        {"mi250x": 40},
        "machine rack network",
        {
            "g01-02,g02-03": "DownNodes, State=DRAIN",
            "g07-[01-04]": "DownNodes, State=DOWN",
            "g08-[01-02]": "State=FUTURE",
        },
    ),
    "gh200": KnownCluster({"gh200": 64}, "machine rack network"),
}


def gpus_by_type(cluster: Topology) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for machine in cluster.machines:
        found[machine.gpu_type] += machine.gpus
    return found


def test_there_are_ten_kinds_of_sites() -> None:
    assert set(SITES) == set(KNOWN)
    assert len(SITES) == 10


@pytest.mark.parametrize("site", SITES)
def test_a_site_gives_what_can_be_used_and_names_the_rest(site: str) -> None:
    known, cluster = KNOWN[site], load_cluster(FOLDER / site)
    assert gpus_by_type(cluster) == known.gpus
    assert " ".join(cluster.levels) == known.levels
    assert {fold(each.names): each.why for each in cluster.left_out} == known.left_out
    children = [cluster.domains[index] for index in cluster.root.children] if cluster.islands else []
    assert {child.name for child in children} == set(known.islands)


def test_nodes_that_are_down_stay_for_those_who_ask_slurm_what_is_up() -> None:
    cluster = load_cluster(FOLDER / "many_files", absent=True)
    assert (len(cluster.machines), cluster.left_out) == (18, ())


def test_machines_of_an_nvl72_rack_have_their_nvlink_between_them() -> None:
    cluster = load_cluster(FOLDER / "gb200_blocks")
    machines, racks = cluster.level_domains[:2]
    assert {domain.uplink for domain in machines} == {NVL72}
    assert cluster.machines[0].fabric == Link(7.2e12, 1e-6)
    assert {domain.uplink for domain in racks} == {Link(1.6e12, 2e-6)}


def test_nvlink_and_infiniband_stand_side_by_side() -> None:
    cluster = load_cluster(FOLDER / "several_topologies")
    uplinks = {
        machine.gpu_type: domain.uplink
        for machine, domain in zip(cluster.machines, cluster.domains, strict=False)
    }
    assert uplinks == {"gb300": NVL72, "h200": Link(200e9, 1e-6), "l40s": Link(200e9, 1e-6)}


@pytest.mark.parametrize("site", SITES)
def test_a_site_written_as_toml_reads_back_the_same(site: str) -> None:
    cluster = load_cluster(FOLDER / site)
    assert read_toml(write_toml(cluster), "copy", "copy") == cluster
