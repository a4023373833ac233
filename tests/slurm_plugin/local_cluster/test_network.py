"""A lab whose nodes have a network of their own: jobs use its links, and it takes the same disturbances."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dally.hosts.network_spec import NetworkSpec, Rack
from dally.hosts.processes import Command
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from slurm_plugin.local_cluster.local_slurm import LabError, LocalSlurm
from slurm_plugin.local_cluster.processes import find_processes
from slurm_plugin.local_cluster.slurm_files import LabSpec

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
def netlab(lab_folder: Path) -> Iterator[LocalSlurm]:
    """Two racks of two nodes with shaped links."""
    network = NetworkSpec((Rack(2, 1e9, 200e6), Rack(2, 1e9, 200e6)))
    lab = LocalSlurm(LabSpec(lab_folder, gpus=2, network=network))
    lab.start()
    yield lab
    lab.stop()


def talk(cluster: Cluster, nodes: str) -> dict[str, int]:
    """Let the first node of two hear the second; what each link has sent for that."""
    before = cluster.traffic()
    ranks = (f"--nodelist={nodes}", "--nodes=2", "--ntasks=2", "--gres=gpu:1")
    said = cluster.ask("srun", *ranks, cluster.python, "-c", TALK)
    assert said == f"{SENT_BYTES}\n"
    after = cluster.traffic()
    return {name: after[name].sent_bytes - before[name].sent_bytes for name in after}


def test_ranks_meet_by_their_nodes_names_and_use_only_the_links_between_them(netlab: LocalSlurm) -> None:
    within, across = talk(netlab.cluster, "r1h1,r1h2"), talk(netlab.cluster, "r1h1,r2h2")
    assert {name for name, sent in within.items() if sent > SENT_BYTES} == {"r1h2"}
    assert {name for name, sent in across.items() if sent > SENT_BYTES} == {"r2h2", "r2"}


def test_it_takes_what_any_lab_takes(netlab: LocalSlurm, users: tuple[str, ...]) -> None:
    assert netlab.run("id", "-un", user=users[0]) == f"{users[0]}\n"
    netlab.pause_controller()
    with pytest.raises(LabError, match=r"squeue took longer than 0\.5 s"):
        netlab.run("squeue", timeout_s=0.5)
    netlab.resume_controller()
    netlab.wait_for(netlab.controller_answers, "slurmctld to answer again")
    netlab.kill_controller()
    assert not netlab.controller_answers()
    netlab.start_controller()
    netlab.rewrite(replace(netlab.spec, extra_conf=("KillWait=7",)))
    assert "KillWait                = 7 sec" in netlab.run("scontrol", "show", "config")
    netlab.kill_node("r1h1")
    marks = {"SLURM_CONF": str(netlab.spec.conf)}
    assert not find_processes({**marks, "SLURMD_NODENAME": "r1h1"})
    assert find_processes({**marks, "SLURMD_NODENAME": "r1h2"})
    netlab.start_node("r1h1")
    assert netlab.run("srun", "--nodelist=r1h1", "echo", "back") == "back\n"


def test_what_is_started_ends_as_it_wishes_and_what_fails_says_why(netlab: LocalSlurm) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo $GIVEN $SLURM_CONF; while :; do sleep 0.05; done"
    running = netlab.cluster.start(Command("script", ("sh", "-c", script), {"GIVEN": "this"}))
    lines = iter(running.stdout)
    assert next(lines) == f"this {netlab.spec.conf}\n".encode()
    running.stop()
    assert list(lines) == [b"bye\n"]
    with pytest.raises(ClusterError, match=r"sh -c .* failed \(3\): no"):
        netlab.cluster.ask("sh", "-c", "echo no >&2; exit 3")
    with pytest.raises(ClusterError, match=r"sleep 300 took longer than 0\.2 s"):
        netlab.cluster.ask("sleep", "300", timeout_s=0.2)
