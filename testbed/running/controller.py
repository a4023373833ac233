"""Dally's controller for one run: its configuration, and the daemon, kept running on the head node."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dally.errors import DallyError
from dally.hosts.processes import Command, Running
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.running.folder import CONTROLLER
from testbed.running.restarter import daemon_file, restarting_command

HEALTHY_S = 90.0
_ASK_EVERY_S = 0.5
PORT_AND_USER = (
    "import os, socket; probe = socket.socket(); probe.bind(('127.0.0.1', 0)); "
    "print(probe.getsockname()[1], os.geteuid())"
)
"""A program that prints a port of the head node at which nobody listens, and the number of its user."""

_SHORT_JOBS = {"poll_s": 0.5, "start_timeout_s": 20.0, "backoff_s": 5.0, "restart_gap_s": 2.0}
"""For jobs of seconds to minutes; at a site, jobs last for hours and Slurm is asked less often."""


class RunControllerError(DallyError):
    """The controller of a run does not come up."""


class ControllerFiles:
    """Where the controller of a run has its files, on the head node.

    Attributes:
        base: The run's folder there.
        config: Its dally.toml.
        log: Its events, as JSON lines.
        facts: What `dally replay` reads.
        cluster: Its cluster file.
        profiles: Folder of its profiles.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.config, self.log, self.facts = base / "dally.toml", base / CONTROLLER, base / "facts.jsonl"
        self.cluster, self.profiles = base / "cluster.toml", base / "profiles"


def configuration(paths: ControllerFiles, policy: str, partition: str, port: int, user: str) -> str:
    """The text of dally.toml for a run; the controller, run by this user, listens on the head node alone."""
    values: dict[str, Any] = {
        "partitions": [partition],
        "cluster": str(paths.cluster),
        "profiles": str(paths.profiles),
        "policy": policy,
        "state_dir": str(paths.base / "state"),
        "record": str(paths.facts),
        "listen": f"127.0.0.1:{port}",
        "url": f"http://127.0.0.1:{port}",
        "user": user,
        "fallback": "refuse",
        **_SHORT_JOBS,
    }
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


class RunController:
    """A controller on a cluster's head node, restarted whenever it dies; its dally.toml must be there."""

    def __init__(self, cluster: Cluster, paths: ControllerFiles) -> None:
        self._cluster, self._paths = cluster, paths
        self._running: Running | None = None

    def start(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Start it and wait until it is healthy, or `stop` says not to.

        Raises:
            RunControllerError: It does not come up.
            ProcessError: The head node cannot start it.
        """
        log = self._paths.log
        argv = restarting_command(self._cluster.python, log, self._dally("controller"))
        self._running = self._cluster.start(Command("controller", argv))
        until_s = time.monotonic() + HEALTHY_S
        while not self.is_healthy() and not stop():
            if time.monotonic() > until_s:
                try:
                    last = self._cluster.ask("tail", "-n", "1", str(daemon_file(log, "err"))).strip()
                except ClusterError as error:
                    last = str(error)
                raise RunControllerError(
                    f"the controller is not well after {HEALTHY_S:g} s: {last or 'it says nothing'}"
                )
            time.sleep(_ASK_EVERY_S)

    def is_healthy(self) -> bool:
        """Whether it answers and takes jobs."""
        try:
            return bool(json.loads(self._cluster.ask(*self._dally("status", "--json")))["healthy"])
        except (ClusterError, ValueError, KeyError):
            return False

    def stop(self) -> None:
        """End it; the jobs stay as they are."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def _dally(self, *arguments: str) -> tuple[str, ...]:
        """A command of Dally for this run's configuration."""
        return (self._cluster.python, "-P", "-m", "dally", *arguments, "--config", str(self._paths.config))
