"""Watches whether the controller is well: on the head node it is the program that asks again and again.

`python -m testbed.drills.health CONFIG FILE` asks the controller of a dally.toml, and writes each answer down.
"""

import json
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from dally.hosts.processes import Command, Running
from slurm_plugin.local_cluster.cluster import Cluster
from testbed.running.json_lines import append_line, read_lines

HEALTH = "pulse.jsonl"
_EVERY_S = 0.5
_PATIENCE_S = 2.0


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
    """Watch a controller until the end of what this returns, or of this thread.

    Args:
        cluster: Where it runs.
        config: Its dally.toml.
        file: Where the answers go, on the head node.
    """
    return cluster.start(Command("pulse", (cluster.python, "-P", "-m", __name__, str(config), str(file))))


def read_health(path: Path) -> list[HealthSample]:
    """All answers that were written down."""
    return [HealthSample(line["t"], line["ok"], line["age_s"]) for line in read_lines(path)]


def back_after_s(samples: Iterable[HealthSample], over_s: float) -> float | None:
    """Seconds from a moment until a whole good cycle lay after it; None if there was none.

    Args:
        samples: What the controller answered.
        over_s: The moment, seconds since 1970.
    """
    for sample in samples:
        if sample.ok and sample.age_s is not None and sample.t - sample.age_s >= over_s:
            return sample.t - over_s
    return None


def main(arguments: Sequence[str]) -> None:
    """The program: asks until it is ended."""
    url = tomllib.loads(Path(arguments[0]).read_text(encoding="utf-8"))["url"]
    while True:
        append_line(Path(arguments[1]), **asdict(_ask(urlsplit(url).netloc)))
        time.sleep(_EVERY_S)


def _ask(place: str) -> HealthSample:
    now = round(time.time(), 3)
    connection = HTTPConnection(place, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/health")
        said = json.load(connection.getresponse())
    except (OSError, HTTPException, ValueError):
        return HealthSample(now, False)
    finally:
        connection.close()
    return HealthSample(now, bool(said["ok"]), said["age_s"])


if __name__ == "__main__":
    main(sys.argv[1:])
