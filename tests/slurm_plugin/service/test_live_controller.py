"""The controller as a process of its own on real Slurm, and the commands that ask it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.patience import LONGEST_S, wait_until

SBATCH = "import sys; from slurm_plugin.submit.sbatch import main; main()"


class ServedSite:
    """A local cluster with Dally's configuration, whose controller comes and goes."""

    def __init__(self, local_slurm: LocalSlurm) -> None:
        self.local_slurm, self.folder = local_slurm, local_slurm.work
        self.url = f"http://127.0.0.1:{local_slurm.reserve_ports(1)}"
        self.config = self.folder / "dally.toml"
        self.config.write_text(
            f'partitions = ["gpu"]\ncluster = "{local_slurm.spec.conf.parent}"\n'
            f'state_dir = "{self.folder}/state"\nuser = "root"\n'
            f'listen = "{self.url.removeprefix("http://")}"\nurl = "{self.url}"\npoll_s = 0.5\n'
            'policy = "dally:timers=manual,machine=1,rack=600,lease_s=1"\n'
        )
        (self.folder / "job.sh").write_text("#!/bin/sh\nsleep 600\n")
        self.environment = {**local_slurm.environment, "DALLY_CONFIG": str(self.config)}
        self.controller: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        """Start a controller and wait until it is well."""
        with (self.folder / "events").open("a") as out:
            self.controller = subprocess.Popen(
                [sys.executable, "-m", "dally", "controller", *options],
                env=self.environment,
                stdout=out,
                stderr=(self.folder / "errors").open("a"),
                text=True,
            )
        self.wait_for(lambda: "age_s" in self.page("/health") and self.page("/health")["age_s"] is not None)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the controller a signal and wait for its end; its exit code."""
        assert self.controller is not None
        self.controller.send_signal(number)
        code = self.controller.wait(LONGEST_S)
        self.controller = None
        return code

    def page(self, path: str) -> dict[str, Any]:
        """A page as any client of HTTP gets it; nothing if nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            return dict(json.loads(error.read()))
        except OSError:
            return {}

    def dally(self, *arguments: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "dally", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *options: str) -> str:
        """A job by `dally-sbatch`; its number."""
        done = subprocess.run(
            [sys.executable, "-c", SBATCH, "--parsable", "--mem=100", "-o", "/dev/null", *options, "job.sh"],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
        assert done.returncode == 0
        assert done.stderr.startswith("dally-sbatch: note: no --model, so Dally can only guess")
        assert done.stderr.count("\n") == 1
        return done.stdout.strip()

    def job_states(self) -> dict[str, str]:
        """Where each job stands, as `dally queue` says."""
        return {job["job"]: job["state"] for job in json.loads(self.dally("queue", "--json"))}

    def wait_for(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        wait_until(holds, (self.folder / "errors").read_text)

    def events(self) -> list[dict[str, Any]]:
        """What controllers told."""
        return [json.loads(line) for line in (self.folder / "events").read_text().splitlines()]


@pytest.fixture
def site(local_slurm: LocalSlurm) -> Iterator[ServedSite]:
    """A local cluster without a controller; one that a test leaves behind is killed."""
    site = ServedSite(local_slurm)
    yield site
    if site.controller is not None:
        site.end(signal.SIGKILL)


def test_a_user_and_an_administrator_see_what_happens_and_take_over(site: ServedSite) -> None:
    site.start()
    running = [site.submit("-N2", "--gres=gpu:8", "--ntasks=2") for _ in range(4)]
    site.wait_for(lambda: site.job_states() == dict.fromkeys(running, "running"))
    array = site.submit("--gres=gpu:8", "--array=0-1")
    tasks = [f"{array}_0", f"{array}_1"]
    site.wait_for(lambda: [site.job_states().get(task) for task in tasks] == ["pending"] * 2)
    assert "has 8 free GPUs" in site.dally("why", tasks[1])
    site.wait_for(lambda: "any GPUs 9m" in site.dally("queue"))
    assert "64 used by Dally's jobs" in site.dally("status")
    assert site.page("/health")["ok"]

    assert site.end(signal.SIGTERM) == 0
    assert site.dally("release-all", "--if-silent-for", "900", "--yes").startswith("heard the controller")
    assert site.dally("release-all", "--yes") == "handed 2 jobs back to Slurm\n"
    site.local_slurm.run("scancel", *running)
    site.wait_for(lambda: site.local_slurm.run("squeue", "-h", "-t", "R", "-o", "%A").count("\n") == 2)
    assert (site.folder / "errors").read_text() == ""


def test_killed_and_restarted_it_goes_on_where_it_was(site: ServedSite) -> None:
    site.start()
    first = site.submit("-N8", "--gres=gpu:8", "--ntasks=8")
    site.wait_for(lambda: site.job_states() == {first: "running"})
    second = site.submit("--gres=gpu:8")
    site.wait_for(lambda: site.job_states().get(second) == "pending")
    since_s = site.page(f"/why/{second}")["job"]["since_s"]
    assert site.end(signal.SIGKILL) == -signal.SIGKILL
    site.start()
    assert site.job_states() == {first: "running", second: "pending"}
    assert site.page(f"/why/{second}")["job"]["since_s"] == since_s
    site.local_slurm.run("scancel", first)
    site.wait_for(lambda: site.job_states() == {second: "running"})
    assert [event["job"] for event in site.events() if event["event"] == "start"] == [first, second]


def test_another_topology_is_taken_up_while_it_runs(site: ServedSite) -> None:
    site.start()
    job = site.submit("--gres=gpu:8")
    site.wait_for(lambda: site.job_states() == {job: "running"})
    site.local_slurm.rewrite(replace(site.local_slurm.spec, racks=2))
    site.wait_for(lambda: len([event for event in site.events() if event["event"] == "cluster"]) == 2)
    pair = site.submit("-N4", "--gres=gpu:8", "--ntasks=4")
    site.wait_for(lambda: site.job_states() == {job: "running", pair: "running"})
    starts = [event for event in site.events() if event["event"] == "start"]
    assert starts[-1]["level"] == "rack"
    assert site.end(signal.SIGTERM) == 0


def test_the_log_of_a_service_is_json_only(site: ServedSite) -> None:
    site.start("--shadow")
    site.local_slurm.run("sbatch", "--gres=gpu:8", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 600")
    site.wait_for(lambda: any(event["event"] == "submit" for event in site.events()))
    assert site.controller is not None
    os.kill(site.controller.pid, signal.SIGHUP)
    site.wait_for(lambda: any(event["event"] == "reloaded" for event in site.events()))
    assert site.end(signal.SIGINT) == 0
    assert site.events()[-1]["event"] == "controller_ends"
    assert not Path(site.folder / "state" / "journal.sqlite").exists()
