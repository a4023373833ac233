"""A real local Slurm with the controller as a process of its own, as users and administrators see it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_plugin.asking import NoControllerError, ask_page
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.config import load_config
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.unavailable_gpus import RESERVATION_PREFIX
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.service.partition_lock import PREFIX as LOCK_PREFIX
from tests.patience import LONGEST_S, wait_until
from tests.slurm_plugin.bench import processor_s

_ROOT = Path(__file__).parents[2]
_SBATCH = "from slurm_plugin.submit.sbatch import main; main()"


class LiveSite:
    """A local cluster and its controller, which can be killed and started anew.

    Args:
        local_slurm: The cluster, up.
        partitions: Those that are Dally's.
        settings: Further lines of dally.toml, by name.

    Attributes:
        said: Where controllers write what they tell.
    """

    def __init__(self, local_slurm: LocalSlurm, partitions: tuple[str, ...], **settings: object) -> None:
        self.local_slurm, self.slurm = local_slurm, CommandLine(local_slurm.environment, timeout_s=60.0)
        self.state_dir = local_slurm.spec.folder / "dally"
        self.said = local_slurm.spec.folder / "controller.out"
        self._url = f"http://127.0.0.1:{local_slurm.reserve_ports(1)}"
        config = local_slurm.work / "dally.toml"
        values = {
            "cluster": str(local_slurm.spec.conf.parent),
            "state_dir": str(self.state_dir),
            "listen": self._url.removeprefix("http://"),
            "url": self._url,
            "user": local_slurm.spec.user,
            "poll_s": 0.5,
            "start_timeout_s": 15.0,
            "backoff_s": 3.0,
            **settings,
        }
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        config.write_text(f"partitions = {json.dumps(partitions)}\n{''.join(lines)}", encoding="utf-8")
        self.environment = {
            **local_slurm.environment,
            "DALLY_CONFIG": str(config),
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        self._controller: subprocess.Popen[bytes] | None = None

    # The controller.

    def start_controller(self) -> None:
        """Start a controller and wait until a cycle of it went well."""
        with self.said.open("ab") as out:
            self._controller = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "dally", "controller"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.wait_for(lambda: self.page("/health").get("age_s") is not None, "the controller's first cycle")

    def end_controller(self, number: int = signal.SIGTERM) -> None:
        """Send the controller a signal that ends it."""
        if self._controller is not None:
            self._controller.send_signal(number)
            self._controller.wait()
            self._controller = None

    def controller_s(self) -> float:
        """Processor time that the controller and its commands have used, seconds."""
        assert self._controller is not None, "it runs"
        return processor_s(self._controller.pid, children=True)

    def page(self, path: str) -> dict[str, Any]:
        """A page of the controller, as its own user sees it; nothing if nobody answers."""
        try:
            return dict(ask_page(load_config(Path(self.environment["DALLY_CONFIG"])), path, 10.0).told or {})
        except NoControllerError:
            return {}

    def managed(self) -> dict[str, dict[str, Any]]:
        """The jobs that the controller looks after, as `dally queue` has them, by number."""
        return {job["job"]: job for job in self.page("/queue").get("jobs", ())}

    def cycles(self, count: int) -> None:
        """Wait until the controller has looked at Slurm so many times more."""
        seen: set[float] = set()

        def looked() -> bool:
            seen.add(self.page("/queue").get("now_s", 0.0))
            return len(seen) > count

        self.wait_for(looked, "the controller to look at Slurm")

    def events(self, *kinds: str, since_s: float = 0.0) -> list[dict[str, Any]]:
        """Events of the journal, oldest first, of the last ten thousands."""
        found = read_events(self.state_dir) if (self.state_dir / "journal.sqlite").exists() else []
        return [event for event in found if event["event"] in kinds and event["t"] >= since_s]

    # Users.

    def submit(self, *words: str) -> str:
        """`dally-sbatch`, as root; the job's number.

        Raises:
            AssertionError: It was refused; the message is what was said.
        """
        command = [sys.executable, "-c", _SBATCH, "--parsable", "--output=/dev/null", *words]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.local_slurm.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
        assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
        return done.stdout.strip()

    def jobs(self) -> dict[str, SlurmJob]:
        """All jobs that Slurm remembers, by number."""
        return {job.job_id: job for job in self.slurm.jobs()}

    def wait_for(self, holds: Callable[[], object], what: str, timeout_s: float = LONGEST_S) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: It does not in time.
        """

        def looked() -> object:
            assert self._controller is None or self._controller.poll() is None, self.last_said()
            return holds()

        wait_until(looked, what, timeout_s)

    def last_said(self) -> str:
        """The end of what controllers wrote."""
        return self.said.read_text(errors="replace")[-2000:]

    def leaked(self) -> str:
        """What is still held although no job is left; empty if nothing is."""
        if left := [job.job_id for job in self.slurm.jobs() if job.state is not State.ENDED]:
            return f"jobs {', '.join(left)} are left"
        if used := [node.name for node in self.slurm.nodes() if node.gpus_used]:
            return f"GPUs of {', '.join(used)} are held in Slurm"
        now = time.time()  # Slurm shows those that are over for a while
        names = [each.name for each in self.slurm.reservations() if each.end_s > now]
        ours = [name for name in names if name.startswith(RESERVATION_PREFIX)]
        if kept := [name for name in ours if not name.startswith(LOCK_PREFIX)]:
            return f"reservations {', '.join(kept)} are left"
        if managed := self.managed():
            return f"the controller still has {', '.join(managed)}"
        gpus = self.page("/status").get("gpus", {})
        return "" if gpus.get("free") == gpus.get("total") else f"the controller counts {gpus}"
