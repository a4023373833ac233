import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.errors import InputError
from profiler.commands import main
from profiler.recorded.predicted_steps import predict_steps
from profiler.recorded.record import read_run
from tests.profiler.recorded.jobs import entry, write

MB = 1_000_000
CLUSTER = """
top_level = "network"
[[levels]]
name = "machine"
uplink = { bandwidth_bps = 8e6, latency_s = 0 }
[[levels]]
name = "rack"
uplink = { bandwidth_bps = 2e6, latency_s = 0 }
[[machines]]
names = "a,b,c,d"
gpus = 4
fabric = { bandwidth_bps = 1e12, latency_s = 0 }
[[switches]]
name = "r1"
machines = "a,b"
[[switches]]
name = "r2"
machines = "c,d"
[[switches]]
name = "top"
switches = "r1,r2"
"""
"""A host's link carries a megabyte in a second, a rack's a quarter."""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture
def topology(cluster: Path) -> Topology:
    return load_cluster(str(cluster))


def recorded(folder: Path, hosts: Sequence[str], step_s: float) -> Path:
    """Tensor pairs all-reduce half a megabyte, data pairs one; of two ranks each sends as much."""
    folder.mkdir()
    for rank, host in enumerate(hosts):
        groups: dict[str, tuple[Sequence[int], str]] = {
            "1": ([rank - rank % 2, rank - rank % 2 + 1], "mesh_tp"),
            "2": ([rank % 2, rank % 2 + 2], "mesh_dp"),
        }
        step = [entry("1", "all_reduce", [MB // 2], "Byte"), entry("2", "all_reduce", [MB], "Byte")]
        write(folder, rank, 4, groups, step, host=host, step_ns=round(step_s * 1e9))
    return folder


@pytest.mark.parametrize(
    ("hosts", "step_s", "steps"),
    [
        # Recorded without links: what they carry comes to the step, or passes while GPUs compute.
        ("aaaa", 3.0, [("machine", 1, 0, 3, 3), ("rack", 2, 2, 3, 5), ("network", 2, 8, 8, 11)]),
        # Recorded in a rack, where links were busy for 2 of 3 s.
        ("ccdd", 3.0, [("machine", 1, 0, 1, 3), ("rack", 2, 2, 3, 3), ("network", 2, 8, 8, 9)]),
        # Recorded in two racks with tensor pairs apart; two machines in each rack come as near.
        ("abcd", 9.0, [("machine", 1, 0, 0.5, 9), ("network", 4, 8.5, 9, 9)]),
    ],
)
def test_a_step_elsewhere_takes_longer_by_none_to_all_of_what_links_are_busy_longer(
    tmp_path: Path,
    topology: Topology,
    hosts: str,
    step_s: float,
    steps: list[tuple[str, int, float, float, float]],
) -> None:
    found = predict_steps(read_run(recorded(tmp_path / "17", hosts, step_s)), topology)
    assert [(each.level, each.machines) for each in found] == [step[:2] for step in steps]
    for each, step in zip(found, steps, strict=True):
        assert (each.busy_s, each.least_s, each.most_s) == pytest.approx(step[2:])


def test_they_are_told_in_words_and_as_json(tmp_path: Path, cluster: Path) -> None:
    argv = ["learn", str(recorded(tmp_path / "17", "aaaa", 3.0)), f"--cluster={cluster}"]
    told = CliRunner().invoke(main, argv).stdout
    assert [line.split()[1:] for line in told.splitlines() if "one network" in line] == [
        ["one", "network", "│", "2x2", "│", "8", "│", "8", "to", "11", "│"]
    ]
    steps = json.loads(CliRunner().invoke(main, [*argv, "--json"]).stdout)["predicted_steps"]
    assert steps[-1] == {"level": "network", "machines": 2, "busy_s": 8.0, "least_s": 8.0, "most_s": 11.0}


def test_all_ranks_and_hosts_must_be_known(tmp_path: Path, topology: Topology) -> None:
    with pytest.raises(InputError, match="it ran on z, which is not in cluster"):
        predict_steps(read_run(recorded(tmp_path / "17", "aazz", 3.0)), topology)
    folder = recorded(tmp_path / "18", "aabb", 3.0)
    (folder / "rank-00003.json.gz").unlink()
    with pytest.raises(InputError, match="18: 3 of 4 ranks left a record, all must"):
        predict_steps(read_run(folder), topology)
