import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.allreduce import HEADERS
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
        # Both data pairs cross what tensor pairs do not: 2 MB, with headers, over 1 MB/s or 0.25 MB/s.
        (
            "aaaa",
            3.0,
            [("machine", 1, 3.0), ("rack", 2, 3.0 + 2 * HEADERS), ("network", 2, 3.0 + 8 * HEADERS)],
        ),
        # Recorded in a rack, where of 3 s the links took some.
        ("ccdd", 3.0, [("machine", 1, 3.0 - 2 * HEADERS), ("rack", 2, 3.0), ("network", 2, 3 + 6 * HEADERS)]),
    ],
)
def test_a_step_elsewhere_differs_by_what_links_take(
    tmp_path: Path, topology: Topology, hosts: str, step_s: float, steps: list[tuple[str, int, float]]
) -> None:
    """All is called at the start of the step, and only the gradients are not waited for at once."""
    found = predict_steps(read_run(recorded(tmp_path / "17", hosts, step_s)), topology)
    assert [(each.level, each.machines) for each in found] == [step[:2] for step in steps]
    assert [each.step_s for each in found] == pytest.approx([step[2] for step in steps], abs=1e-4)
    assert [each.recorded for each in found] == [each.step_s == step_s for each in found]


def test_they_are_told_in_words_and_as_json(tmp_path: Path, cluster: Path) -> None:
    argv = ["learn", str(recorded(tmp_path / "17", "aaaa", 3.0)), f"--cluster={cluster}"]
    told = CliRunner().invoke(main, argv).stdout
    assert [line.split()[1:] for line in told.splitlines() if "one machine" in line] == [
        ["one", "machine", "│", "1x4", "│", "3", "│", "0", "%", "│", "0", "│", "recorded", "│"]
    ]
    steps = json.loads(CliRunner().invoke(main, [*argv, "--json"]).stdout)["predicted_steps"]
    assert steps[0] == {
        "level": "machine",
        "machines": 1,
        "step_s": 3.0,
        "waiting_s": pytest.approx(0.0, abs=1e-4),
        "network_s": 0.0,
        "recorded": True,
    }


def test_all_ranks_and_hosts_must_be_known(tmp_path: Path, topology: Topology) -> None:
    with pytest.raises(InputError, match="it ran on z, which is not in cluster"):
        predict_steps(read_run(recorded(tmp_path / "17", "aazz", 3.0)), topology)
    folder = recorded(tmp_path / "18", "aabb", 3.0)
    (folder / "rank-00003.json.gz").unlink()
    with pytest.raises(InputError, match="18: 3 of 4 ranks left a record, all must"):
        predict_steps(read_run(folder), topology)
