"""Signals at random moments to the controller as a process of its own, over a Slurm in memory."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.patience import LONGEST_S, wait_until
from tests.slurm_plugin.daemons import DaemonSite

REPOSITORY = Path(__file__).parents[3]
BACKEND = """
import subprocess, time
from pathlib import Path
from tests.slurm_plugin.daemons import NODES
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import SubmitSpec

class Slow(FakeSlurm):
    # Each order takes a while, as a command of Slurm's does.
    def __init__(self):
        super().__init__(NODES, clock=time.time)

    def look(self):
        self.submit(SubmitSpec(comment=encode(Request(held=True)), gpus_per_node=1, run_time_s=0.1))
        return super().look()

    def run(self, orders):
        with open(Path(__file__).with_name("orders"), "a", buffering=1) as log:
            print("ordered", file=log)
            command = subprocess.run(("sleep", "0.02"))
            answers = super().run(orders)
            print("answered", command.returncode, file=log)
        return answers
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A controller at work over a Slurm whose orders take a while, in a process group of its own."""
    DaemonSite(folder, backend="slow", poll_s=0.5, policy="srsf-delay").configure()
    (folder / "slow.py").write_text(BACKEND)
    installed = folder / "slow-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[dally.slurm_backends]\nslow = slow:Slow\n")
    usual = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # of the tests
    with (folder / "events").open("w") as out, (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            (sys.executable, "-m", "dally", "controller", "--config", folder / "dally.toml"),
            env={**usual, "PYTHONPATH": f"{folder}:{REPOSITORY}"},
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
    wait_until(lambda: "controller_starts" in (folder / "events").read_text(), (folder / "errors").read_text)
    return process


def orders(folder: Path) -> list[str]:
    """What was ordered and answered, in turn."""
    log = folder / "orders"
    return log.read_text().splitlines() if log.exists() else []


def test_a_thousand_reloads_harm_nothing_and_it_ends_between_orders(tmp_path: Path) -> None:
    moments = random.Random(0)
    with start(tmp_path) as process:
        for _ in range(1000):
            os.killpg(process.pid, signal.SIGHUP)  # also the commands at work, as systemd may
            time.sleep(moments.expovariate(400.0))
        assert process.poll() is None, (tmp_path / "errors").read_text()
        wait_until(lambda: orders(tmp_path)[-1:] == ["ordered"], pause_s=0.001)
        for _ in range(20):
            os.killpg(process.pid, moments.choice((signal.SIGTERM, signal.SIGINT)))
            time.sleep(moments.expovariate(2000.0))
        assert process.wait(LONGEST_S) == 0, (tmp_path / "errors").read_text()
    told = [json.loads(line)["event"] for line in (tmp_path / "events").read_text().splitlines()]
    assert told[-1] == "controller_ends"
    assert "reloaded" in told
    assert orders(tmp_path) == ["ordered", "answered 0"] * (len(orders(tmp_path)) // 2)
    assert (tmp_path / "errors").read_text() == ""
