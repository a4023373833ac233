"""Shipped clusters, telling kinds of files apart, and a congested network."""

from pathlib import Path

import pytest

from dally.cluster import load_cluster, scaled_links, shipped_clusters, write_toml
from dally.cluster.toml_file import read_toml
from dally.cluster.topology import Link, Ring
from dally.errors import InputError


def test_the_shipped_clusters_are_listed_smallest_first() -> None:
    assert shipped_clusters() == (
        "dally-128",
        "dally-256",
        "dally-512",
        "dally-1024",
        "demo",
        "ethernet-512",
        "gb200-1152",
        "gb200-20016",
        "hadar-5",
        "hadar-60",
        "infiniband-512",
        "pollux-64",
        "venus",
    )


@pytest.mark.parametrize(("name", "gpus", "racks"), [("dally-128", 128, 4), ("dally-1024", 1024, 32)])
def test_a_dally_cluster_has_the_gpus_in_its_name(name: str, gpus: int, racks: int) -> None:
    cluster = load_cluster(name)
    assert (cluster.name, cluster.gpus, len(cluster.level_domains[1])) == (name, gpus, racks)


@pytest.mark.parametrize("name", shipped_clusters())
def test_every_shipped_cluster_survives_writing_and_reading(name: str) -> None:
    cluster = load_cluster(name)
    assert read_toml(write_toml(cluster), "x", "x") == cluster


def test_the_authors_links_are_those_of_the_paper() -> None:
    scattered = load_cluster("dally-256").shape(((0, 8), (1, 8), (4, 8)))
    assert scattered.rings == (
        Ring(4, Link(4.8e12), 1),
        Ring(2, Link(4.8e12, 500e-9), 1),
        Ring(2, Link(8 * 1.6e12, 2.5e-6), 2, 3),
        Ring(2, Link(32 * 3.2e12, 50e-6), 2),
    )


def test_an_unknown_name_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(InputError, match=r"'dally-64' is neither .*shipped: dally-128, .*demo"):
        load_cluster("dally-64")


def test_a_shipped_name_wins_over_a_file_but_not_over_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("nonsense")
    assert load_cluster("demo").gpus == 64
    with pytest.raises(InputError, match="not valid TOML"):
        load_cluster("./demo")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(b"\x1f\x8b")
    with pytest.raises(InputError, match="byte 0x8b is not UTF-8"):
        load_cluster(path)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_bytes("\ufeffNodeName=n[1-2] \\\r\n Gres=gpu:4\r\n".encode())
    assert load_cluster(path).gpus == 8


def test_scaling_slows_all_uplinks_and_no_fabric() -> None:
    demo = load_cluster("demo")
    slow = scaled_links(demo, 0.1)
    assert slow.machines == demo.machines
    assert {domain.uplink for domain in slow.level_domains[0]} == {Link(1e9, 5e-6)}
    assert {domain.uplink for domain in slow.level_domains[1]} == {Link(0.5e9, 10e-6)}
    assert slow.root == demo.root


def test_scaling_one_level_leaves_the_others() -> None:
    demo = load_cluster("demo")
    slow = scaled_links(demo, {"rack": 0.5})
    assert slow.level_domains[0] == demo.level_domains[0]
    assert slow.level_domains[1][0].uplink == Link(2.5e9, 10e-6)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (0.0, "bandwidth factor 0 of level machine must be a positive number"),
        (float("nan"), "bandwidth factor nan"),
        ({"rack": -1.0}, "bandwidth factor -1 of level rack"),
        ({"pod": 0.5}, "level 'pod' has no uplinks; levels that have: machine, rack"),
        ({"network": 0.5}, "level 'network' has no uplinks"),
    ],
)
def test_a_wrong_factor_is_named(factors: float | dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scaled_links(load_cluster("demo"), factors)
