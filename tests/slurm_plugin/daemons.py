"""A daemon over the fake Slurm on a virtual clock, for tests."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from dally.commands import main
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.controller.wall_clock import WallClock
from slurm_plugin.request import Request, encode
from slurm_plugin.service.daemon import Daemon
from slurm_plugin.service.signals import Signals
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeNode, SubmitSpec

TOPOLOGY = (
    "SwitchName=rack0 Nodes=n[1-2]\nSwitchName=rack1 Nodes=n[3-4]\nSwitchName=spine Switches=rack[0-1]\n"
)
NODES = tuple(FakeNode(f"n{number}", 8, ("gpu",)) for number in range(1, 5))

Turn = Callable[[], object]


class Pauses(Signals):
    """Lets the time of its site pass instead of waiting; between cycles it takes turns, then ends all."""

    def __init__(self, site: "DaemonSite", turns: tuple[Turn, ...]) -> None:
        super().__init__()
        self._site, self._turns = site, list(turns)
        self.paused_s: list[float] = []
        self._looks = 0

    def wait(self, seconds: float) -> None:
        """Time passes; a wait for nothing is a look in the middle of a cycle."""
        if seconds <= 0:
            return
        self._site.now_s += seconds
        self.paused_s.append(seconds)
        if self._turns:
            self._turns.pop(0)()
        else:
            self.end = True


class DaemonSite:
    """Four nodes in two racks, a configuration, and daemons that are run for some turns."""

    def __init__(self, folder: Path, slurm: FakeSlurm | None = None, **settings: Any) -> None:
        self.folder, self.now_s, self.ahead_s = folder, 1000.0, 0.0
        self.slurm = slurm or FakeSlurm(NODES, clock=lambda: self.now_s)
        self.config, self.state = folder / "dally.toml", folder / "state"
        self.settings: dict[str, Any] = {
            "partitions": ["gpu"],
            "cluster": str(folder),
            "state_dir": str(self.state),
            "policy": "fifo",
            "listen": "",
            **settings,
        }
        self.configure()
        self.describe("n[1-4]", TOPOLOGY)
        self.mode = ControllerMode()
        self.out = io.StringIO()
        self.daemon: Daemon | None = None
        self.pauses = Pauses
        self.signals = Pauses(self, ())

    def configure(self, **settings: Any) -> None:
        """Write the configuration, with changes."""
        self.settings |= settings
        lines = (f"{key} = {json.dumps(value)}\n" for key, value in self.settings.items())
        self.config.write_text("".join(lines), encoding="utf-8")

    def describe(self, nodes: str, topology: str) -> None:
        """Write the cluster's files."""
        conf = f"ClusterName=c\nAuthType=auth/none\nNodeName={nodes} Gres=gpu:h100:8\n"
        (self.folder / "slurm.conf").write_text(conf)
        (self.folder / "topology.conf").write_text(topology)

    def start(self, *turns: Turn) -> Daemon:
        """A daemon that takes turns between its cycles, not yet run."""
        self.signals = self.pauses(self, turns)
        clock = WallClock(wall=lambda: self.now_s + self.ahead_s, steady=lambda: self.now_s)
        self.daemon = Daemon(self.config, self.mode, self.signals, lambda _: self.slurm, clock, self.out)
        return self.daemon

    def run(self, *turns: Turn) -> None:
        """Run a daemon for one cycle more than turns."""
        self.start(*turns).run()

    def submit(self, model: str = "", held: bool = False, **spec: Any) -> str:
        """A job of `dally-sbatch`."""
        return self.slurm.submit(SubmitSpec(comment=encode(Request(model=model, held=held)), **spec))

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """What was told on standard output."""
        told = [json.loads(line) for line in self.out.getvalue().splitlines()]
        return [event for event in told if not kinds or event["event"] in kinds]

    def states(self) -> dict[str, str]:
        """The state of each job as Slurm shows it."""
        return {job.job_id: job.state_name for job in self.slurm.jobs()}

    def dally(self, *arguments: str, width: int = 80) -> Result:
        """The output of a command that asks the daemon, which must be taking a turn."""
        assert self.daemon is not None
        assert self.daemon.server is not None
        self.configure(url=f"http://127.0.0.1:{self.daemon.server.port}")
        environment = {"DALLY_CONFIG": str(self.config), "COLUMNS": str(width)}
        return CliRunner().invoke(main, arguments, env=environment)
