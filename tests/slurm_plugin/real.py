"""A controller over a real Slurm that dies where it is told to, and jobs that write down what really ran.

As a program it is that controller: `python -m tests.slurm_plugin.real dally.toml --kill-at "reserve done"`.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from dally.cluster import load_cluster
from dally.profiles.costs import CostModel
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.orders import Order, Signal
from slurm_plugin.client.slurm import SlurmUnavailableError
from slurm_plugin.config import load_config
from slurm_plugin.controller.controller import Controller
from slurm_plugin.controller.journal import Journal, JournalError
from slurm_plugin.controller.wall_clock import WallClock

_ROOT = Path(__file__).parents[2]
_SHORTEST_PAUSE_S = 0.05
_COMMAND_S = 8.0

CHECKPOINT_AND_EXIT = "trap 'save; exit 85' USR1"
CHECKPOINT_AND_GO_ON = "trap save USR1; trap 'save; say end; exit 1' TERM"
IGNORE_ALL = "trap '' USR1 TERM"

_JOB = """\
#!/bin/bash
{traps}
save() {{ echo $step > "$saved"; }}
say() {{ echo "$EPOCHREALTIME $who $step $1 $SLURM_JOB_NODELIST" >> ran; }}
who="$SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $$"
saved=step.$SLURM_JOB_ID
step=$(cat "$saved" 2>/dev/null || echo 0)
say start
until [ -e finish ] && [ $step -ge {steps} ]; do sleep 0.2; step=$((step + 1)); say step; done
say end
"""


def job_script(traps: str, steps: int) -> str:
    """A job that counts steps until the file `finish` lies in its folder, and so many are done.

    Args:
        traps: What it does on signals, one of those above.
        steps: Fewest steps.
    """
    return _JOB.format(traps=traps, steps=steps)


@dataclass(frozen=True, slots=True)
class NotedRun:
    """One run of a job's script, as the script itself wrote it down.

    Attributes:
        job_id: The job.
        restarts: How often Slurm said it was requeued before.
        began_s: First sign of life, seconds since 1970.
        ended_s: Last one.
        first_step: The step it went on from.
        last_step: The last step it reached.
        nodes: Its nodes, as Slurm folds them.
    """

    job_id: str
    restarts: int
    began_s: float
    ended_s: float
    first_step: int
    last_step: int
    nodes: str


def read_runs(ran: Path) -> list[NotedRun]:
    """All runs of all jobs, by job and by their beginning."""
    lines: dict[tuple[str, str], list[list[str]]] = {}
    for line in ran.read_text(encoding="ascii").splitlines() if ran.exists() else ():
        words = line.split(" ")
        lines.setdefault((words[1], words[3]), []).append(words)
    runs = [
        NotedRun(
            job_id,
            int(said[0][2]),
            float(said[0][0]),
            float(said[-1][0]),
            int(said[0][4]),
            int(said[-1][4]),
            said[0][6],
        )
        for (job_id, _), said in lines.items()
    ]
    return sorted(runs, key=lambda run: (int(run.job_id), run.began_s))


def run_twice_at_once(runs: Sequence[NotedRun]) -> list[tuple[NotedRun, NotedRun]]:
    """Runs of one job that overlap; there must be none."""
    return [(a, b) for a, b in pairwise(runs) if a.job_id == b.job_id and b.began_s < a.ended_s]


def lost_steps(runs: Sequence[NotedRun]) -> int:
    """Steps that jobs had to do again, as they were stopped without their checkpoint."""
    return sum(max(0, a.last_step - b.first_step) for a, b in pairwise(runs) if a.job_id == b.job_id)


class DyingCommandLine(CommandLine):
    """Slurm's commands, with a step before each kind of order and one after its first line.

    The first line goes alone, so a controller that dies at the second step leaves the order half done.
    """

    def __init__(self, at: Callable[[str], None]):
        super().__init__(timeout_s=_COMMAND_S)
        self._at = at

    def _scontrol(self, lines: Sequence[str]) -> list[str]:
        if not lines:
            return []
        word = lines[0].split()[0]
        self._at(f"before {word}")
        said = super()._scontrol(lines[:1])
        self._at(f"amid {word}")
        return said + super()._scontrol(lines[1:])

    def _scancel(self, orders: Sequence[Order], *options: str) -> list[str | None]:
        if not isinstance(orders[0], Signal):
            return super()._scancel(orders, *options)
        self._at("before signal")
        said = super()._scancel(orders[:1], *options)
        self._at("amid signal")
        return said + (super()._scancel(orders[1:], *options) if orders[1:] else [])


class KillAt:
    """Kills this process when it comes to a step for the first time, or freezes another and goes on.

    Args:
        point: The step; empty: never.
        freeze: Number of the process to freeze; 0: this one is killed.
    """

    def __init__(self, point: str, freeze: int = 0):
        self._point, self._freeze = point, freeze

    def __call__(self, step: str) -> None:
        """The process is at this step."""
        if step != self._point:
            return
        self._point = ""
        if self._freeze:
            os.kill(self._freeze, signal.SIGSTOP)
        else:
            os.kill(os.getpid(), signal.SIGKILL)


class ControllerProcess:
    """A controller in a process of its own.

    Args:
        config: Its dally.toml.
        environment: Of the cluster's commands.
        options: Like `--kill-at`, as `main` reads them.
    """

    def __init__(self, config: Path, environment: Mapping[str, str], *options: str):
        self._said = config.with_name("controller.err")
        command = [sys.executable, "-m", __name__, str(config), *options]
        with self._said.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stderr=errors
            )

    @property
    def runs(self) -> bool:
        """Whether it is alive."""
        return self._process.poll() is None

    @property
    def is_sound(self) -> bool:
        """Whether it is alive or was killed; one that ended by itself is a failure."""
        return self._process.poll() in (None, -signal.SIGKILL)

    def commands(self) -> str:
        """Numbers of the commands that it waits for."""
        pid = self._process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """The end of what it, and those before it, wrote."""
        return self._said.read_text(encoding="utf-8", errors="replace")[-2000:]


def serve(config_path: Path, at: KillAt, clock_shift_s: float) -> None:
    """Run a controller for ever; what goes wrong is said, and tried again."""
    config = load_config(config_path)
    journal = Journal(Path(config.state_dir))
    clock = WallClock(journal.load().now_s, lambda: time.time() + clock_shift_s)
    topology = load_cluster(config.cluster)
    controller = Controller(DyingCommandLine(at), config, topology, None, journal, clock=clock, at=at)
    while True:
        pause_s = config.poll_s
        try:
            pause_s = min(pause_s, controller.cycle() - clock())
        except (SlurmUnavailableError, JournalError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        time.sleep(max(_SHORTEST_PAUSE_S, pause_s))


def main() -> None:
    """Read the arguments and serve; restarts cost these jobs nothing, so turns are as short as leases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--kill-at", default="")
    parser.add_argument("--freeze", type=int, default=0, help="process to freeze there, instead of dying")
    parser.add_argument("--clock-shift-s", type=float, default=0.0)
    asked = parser.parse_args()
    with patch.object(CostModel, "restart_s", lambda *_: 0.0):
        serve(asked.config, KillAt(asked.kill_at, asked.freeze), asked.clock_shift_s)


if __name__ == "__main__":
    main()
