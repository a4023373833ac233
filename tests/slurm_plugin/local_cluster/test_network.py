"""Nodes with a network of their own: jobs use its links, and the cluster takes the same disturbances."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dally.hosts.network_spec import NetworkSpec, Rack
from dally.hosts.processes import Command
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.processes import find_processes
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

SENT_BYTES = 3_000_000
TALK = f"""
import os, socket, time
if os.environ["SLURM_PROCID"] == "0":
    with socket.create_server(("", 9999)) as server, server.accept()[0] as peer:
        print(len(peer.recv({SENT_BYTES}, socket.MSG_WAITALL)))
else:
    while True:
        try:
            peer = socket.create_connection(("r1h1", 9999), timeout=20)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(bytes({SENT_BYTES}))
"""
"""The second rank sends the first, which it knows by its node's name, some bytes."""


@pytest.fixture
def networked_slurm(cluster_folder: Path) -> Iterator[LocalSlurm]:
    """Two racks of two nodes with shaped links."""
    network = NetworkSpec((Rack(2, 1e9, 200e6), Rack(2, 1e9, 200e6)))
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, gpus=2, network=network))
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


def talk(cluster: Cluster, nodes: str) -> dict[str, int]:
    """Let the first node of two hear the second; what each link has sent for that."""
    before = cluster.traffic()
    ranks = (f"--nodelist={nodes}", "--nodes=2", "--ntasks=2", "--gres=gpu:1")
    said = cluster.ask("srun", *ranks, cluster.python, "-c", TALK)
    assert said == f"{SENT_BYTES}\n"
    after = cluster.traffic()
    return {name: after[name].sent_bytes - before[name].sent_bytes for name in after}


def test_ranks_meet_by_their_nodes_names_and_use_only_the_links_between_them(
    networked_slurm: LocalSlurm,
) -> None:
    within, across = talk(networked_slurm.cluster, "r1h1,r1h2"), talk(networked_slurm.cluster, "r1h1,r2h2")
    assert {name for name, sent in within.items() if sent > SENT_BYTES} == {"r1h2"}
    assert {name for name, sent in across.items() if sent > SENT_BYTES} == {"r2h2", "r2"}


def test_it_takes_what_any_local_cluster_takes(networked_slurm: LocalSlurm, users: tuple[str, ...]) -> None:
    assert networked_slurm.run("id", "-un", user=users[0]) == f"{users[0]}\n"
    networked_slurm.pause_controller()
    with pytest.raises(ClusterError, match=r"squeue took longer than 0\.5 s"):
        networked_slurm.run("squeue", timeout_s=0.5)
    networked_slurm.resume_controller()
    networked_slurm.wait_for(networked_slurm.controller_answers, "slurmctld to answer again")
    networked_slurm.kill_controller()
    assert not networked_slurm.controller_answers()
    networked_slurm.start_controller()
    networked_slurm.rewrite(replace(networked_slurm.spec, extra_conf=("KillWait=7",)))
    assert "KillWait                = 7 sec" in networked_slurm.run("scontrol", "show", "config")
    networked_slurm.kill_node("r1h1")
    marks = {"SLURM_CONF": str(networked_slurm.spec.conf)}
    assert not find_processes({**marks, "SLURMD_NODENAME": "r1h1"})
    assert find_processes({**marks, "SLURMD_NODENAME": "r1h2"})
    networked_slurm.start_node("r1h1")
    assert networked_slurm.run("srun", "--nodelist=r1h1", "echo", "back") == "back\n"


def test_what_is_started_ends_as_it_wishes_and_what_fails_says_why(networked_slurm: LocalSlurm) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo $GIVEN $SLURM_CONF; while :; do sleep 0.05; done"
    running = networked_slurm.cluster.start(Command("script", ("sh", "-c", script), {"GIVEN": "this"}))
    lines = iter(running.stdout)
    assert next(lines) == f"this {networked_slurm.spec.conf}\n".encode()
    running.stop()
    assert list(lines) == [b"bye\n"]
    with pytest.raises(ClusterError, match=r"sh -c .* failed \(3\): no"):
        networked_slurm.cluster.ask("sh", "-c", "echo no >&2; exit 3")
    with pytest.raises(ClusterError, match=r"sleep 300 took longer than 0\.2 s"):
        networked_slurm.cluster.ask("sleep", "300", timeout_s=0.2)
