"""A persistent cluster, brought up for real: used from other processes, and gone without trace."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from slurm_plugin.local_cluster.processes import find_processes
from testbed.persistent.control import bring_up, find_persistent, open_local, take_down
from testbed.persistent.shape import LocalClusterShape
from tests.dally.hosts.waits import await_gone
from tests.patience import LONGEST_S, wait_until
from tests.slurm_plugin.local_cluster.test_network import SENT_BYTES, talk

SMALL = ("--racks", "1,1", "--gpus", "1", "--rate", "1Gb", "--uplink", "200Mb")
SHAPE = LocalClusterShape((1, 1), 1, 1e9, 200e6)

USER = """
import sys, time
from pathlib import Path
from dally.hosts.processes import Command
from testbed.persistent.control import open_local
running = open_local(Path(sys.argv[1])).start(Command("sleeper", ("sh", "-c", "echo up; exec sleep 1234")))
print(next(iter(running.stdout)).decode(), end="", flush=True)
time.sleep(1000)
"""


def dally(verb: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dally", "testbed", verb, "--folder", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)


def status(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(dally("status", folder, "--json").stdout)
    return said


def processes(folder: Path) -> set[int]:
    """All processes that name the folder in their arguments or environment, but for this one."""
    found = find_processes({"SLURM_CONF": str(folder / "etc" / "slurm.conf")})
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found - {os.getpid()}


def test_it_stays_up_is_used_by_other_processes_and_goes_without_trace(cluster_folder: Path) -> None:
    begun = dally("up", cluster_folder, *SMALL)
    assert begun.stdout.startswith(
        "up: 2 nodes of 1 GPU (h100) in 2 racks (1, 1), 1 Gb/s a node, 200 Mb/s between racks\n"
    )
    assert dally("up", cluster_folder, *SMALL).stdout.startswith("up already: ")
    other = dally("up", cluster_folder, "--racks", "2")
    assert (other.returncode, other.stderr.count("\n")) == (1, 1)
    sent = talk(open_local(cluster_folder), "r1h1,r2h1")
    assert {name for name, count in sent.items() if count > SENT_BYTES} == {"r2h1", "r2"}
    seen = status(cluster_folder)
    assert [(node["name"], node["rack"]) for node in seen["nodes"]] == [("r1h1", "r1"), ("r2h1", "r2")]
    assert {link["name"]: link["rate_bps"] for link in seen["links"]} == {
        "r1h1": 1e9,
        "r2h1": 1e9,
        "r1": 200e6,
        "r2": 200e6,
    }
    assert dally("down", cluster_folder).stdout == f"down: nothing is left in {cluster_folder}\n"
    assert not cluster_folder.exists()
    assert not processes(cluster_folder)
    again = dally("down", cluster_folder)
    assert (again.returncode, again.stdout) == (0, f"nothing is up in {cluster_folder}\n")


def test_a_killed_keeper_takes_all_along_and_the_next_comes_up(cluster_folder: Path) -> None:
    assert bring_up(cluster_folder, SHAPE)
    cluster = open_local(cluster_folder)
    cluster.ask("sbatch", "--nodes=2", "--gres=gpu:1", "--output=/dev/null", "--wrap=srun sleep 1000")
    wait_until(lambda: "RUNNING" in cluster.ask("squeue", "--format=%T"), "the job to run")
    state = find_persistent(cluster_folder)
    assert state
    os.kill(state.supervisor.pid, signal.SIGKILL)
    await_gone(state.supervisor.pid)
    assert bring_up(cluster_folder, SHAPE)
    assert "RUNNING" not in open_local(cluster_folder).ask("squeue", "--format=%T")
    assert take_down(cluster_folder)
    assert not cluster_folder.exists()
    assert not processes(cluster_folder)


def test_what_a_killed_process_has_started_there_ends_and_the_cluster_stays(cluster_folder: Path) -> None:
    assert bring_up(cluster_folder, SHAPE)
    before = processes(cluster_folder)
    command = [sys.executable, "-c", USER, str(cluster_folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout
        assert user.stdout.readline() == "up\n"
        assert processes(cluster_folder) - before - {user.pid}
        user.kill()
    wait_until(lambda: not processes(cluster_folder) - before, "what it started to end")
    assert "idle" in open_local(cluster_folder).ask("sinfo")
    assert take_down(cluster_folder)
