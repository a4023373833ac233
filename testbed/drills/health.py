"""Whether the controller is well during a drill; on the head node, the program that asks it again and again.

`python -m testbed.drills.health CONFIG FILE` asks the controller of a dally.toml and writes down each answer.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from dally.errors import DallyError
from dally.hosts.processes import Command, Running
from slurm_plugin.local_cluster.cluster import Cluster
from slurm_plugin.service.cli import ask
from testbed.running.json_lines import append_line, read_lines

HEALTH = "pulse.jsonl"
_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class HealthSample:
    """One answer of the controller, or none.

    Attributes:
        t: When, seconds since 1970.
        ok: It says that jobs may be given to it.
        age_s: Seconds since its last good cycle; None if it does not say.
    """

    t: float
    ok: bool
    age_s: float | None = None


def watch_health(cluster: Cluster, config: Path, file: Path) -> Running:
    """Watch the controller of a dally.toml until the end of what this returns, or of this thread.

    The answers go to a file on the head node.
    """
    return cluster.start(Command("health", (cluster.python, "-P", "-m", __name__, str(config), str(file))))


def read_health(path: Path) -> list[HealthSample]:
    """All answers that were written down."""
    return [HealthSample(line["t"], line["ok"], line["age_s"]) for line in read_lines(path)]


def back_after_s(samples: Iterable[HealthSample], over_s: float) -> float | None:
    """Seconds from a moment (since 1970) until a whole good cycle lay after it; None if there was none."""
    for sample in samples:
        if sample.ok and sample.age_s is not None and sample.t - sample.age_s >= over_s:
            return sample.t - over_s
    return None


def main(config: Path, file: Path) -> None:
    """Ask until ended: a `dally status` for each answer would start a Python every half second."""
    while True:
        now = round(time.time(), 3)
        try:
            said = ask(config, "/health")
            sample = HealthSample(now, bool(said["ok"]), said["age_s"])
        except DallyError:
            sample = HealthSample(now, False)
        append_line(file, **asdict(sample))
        time.sleep(_EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
