"""What Slurm's client commands say: of its nodes, who may use them and when they are free, and of one job.

Every function that asks raises `SlurmError` if Slurm does not answer.
"""

import os
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path

from dally.errors import DallyError
from dally.hostlist import expand

_ANSWER_S = 60.0
_VERSION = re.compile(r"(\d+)\.(\d+)")
_FLAGS = "*~#!%$@^-"
_POWERED_DOWN_S = 1.0
"""When a node that sleeps counts as free: after those that are up."""


class SlurmError(DallyError):
    """Slurm does not answer, or refused something."""


@dataclass(frozen=True, slots=True)
class PartitionNode:
    """A node of the partition.

    Attributes:
        name: Its name.
        address: At which others reach it.
        free_s: When its jobs have ended at the latest, seconds since 1970; 0 where it is idle now, infinity
            where nobody can tell, None where it is drained, down or reserved for others.
    """

    name: str
    address: str
    free_s: float | None

    @property
    def idle(self) -> bool:
        """Whether it is free now."""
        return self.free_s == 0.0


def read_nodes(partition: str | None, reservations: Collection[str]) -> tuple[PartitionNode, ...]:
    """The nodes of a partition, of the default one for None, as they are now.

    Args:
        partition: Its name.
        reservations: Those that are used; their nodes alone count then, else the nodes of none.

    Raises:
        SlurmError: Slurm does not answer, or there is no such partition or reservation.
    """
    return parse_nodes(
        ask("sinfo", "--noheader", "--Node", "--format=%N|%o|%t|%P"),
        ask("squeue", "--noheader", "--states=RUNNING,COMPLETING,SUSPENDED", "--format=%N|%e"),
        ask("scontrol", "--oneliner", "show", "reservation"),
        partition,
        reservations,
    )


def parse_nodes(
    sinfo: str, squeue: str, reserved: str, partition: str | None, reservations: Collection[str]
) -> tuple[PartitionNode, ...]:
    """The nodes of a partition in what the commands of `read_nodes` printed, each once.

    Raises:
        SlurmError: Slurm has no such partition or reservation.
    """
    rows = [line.split("|") for line in sinfo.splitlines() if line.count("|") == 3]
    names = {row[3] for row in rows}
    chosen = (
        names & {partition, f"{partition}*"} if partition else {name for name in names if name[-1:] == "*"}
    )
    if not chosen:
        asked = f"no partition {partition}" if partition else "no default partition"
        known = ", ".join(sorted(name.rstrip("*") for name in names))
        raise SlurmError(f"{asked}; --partition can be {known or 'none, there is none'}")
    ends_s = _ends_s(squeue)
    closed = _closed(reserved, {row[0] for row in rows}, reservations)
    nodes = (
        PartitionNode(name, address, None if name in closed else _free_s(state, ends_s.get(name, inf)))
        for name, address, state, of in rows
        if of in chosen
    )
    return tuple(dict.fromkeys(nodes))


def job_reason(job: str) -> str:
    """Why a job waits, in Slurm's word; empty if it does not wait."""
    state, _, reason = ask("squeue", "--noheader", f"--jobs={job}", "--format=%T|%r").strip().partition("|")
    return reason if state == "PENDING" else ""


def slurm_version() -> tuple[int, int]:
    """The version of the client commands, like (24, 11)."""
    said = ask("salloc", "--version")
    found = _VERSION.search(said)
    if not found:
        raise SlurmError(f"salloc --version printed no version but {said.strip()[:100]!r}")
    return int(found[1]), int(found[2])


def configuration_folder() -> Path:
    """Where slurm.conf lies."""
    for line in ask("scontrol", "show", "config").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "SLURM_CONF":
            return Path(value.strip()).parent
    raise SlurmError("scontrol show config names no SLURM_CONF; give the cluster with --cluster")


def ask(*argv: str) -> str:
    """What a client command prints.

    Raises:
        SlurmError: It is missing, failed or does not answer.
    """
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, "SLURM_TIME_FORMAT": "standard"},
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
        )
    except FileNotFoundError as error:
        raise SlurmError(f"{argv[0]} is missing; Slurm's client commands are needed") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{argv[0]} did not answer within {_ANSWER_S:g} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SlurmError(f"{argv[0]}: {said[-1].removeprefix(f'{argv[0]}: ')}")
    return done.stdout


def _ends_s(squeue: str) -> dict[str, float]:
    """When the last job of each busy node must have ended."""
    ends_s: dict[str, float] = {}
    for line in squeue.splitlines():
        nodes, _, end = line.partition("|")
        try:
            end_s = datetime.fromisoformat(end.strip()).timestamp()
        except ValueError:  # a job without a limit has no end
            end_s = inf
        for name in expand(nodes) if nodes else ():
            ends_s[name] = max(ends_s.get(name, 0.0), end_s)
    return ends_s


def _closed(reserved: str, nodes: Collection[str], reservations: Collection[str]) -> Collection[str]:
    """The nodes that may not be used: those of others' reservations, or all that are not in one of ours."""
    of: dict[str, tuple[str, ...]] = {}
    active: set[str] = set()
    for line in reserved.splitlines():
        words: Mapping[str, str] = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "ReservationName" in words:
            listed = words.get("Nodes", "(null)")
            of[words["ReservationName"]] = () if listed == "(null)" else expand(listed)
            if words.get("State") == "ACTIVE":
                active.update(of[words["ReservationName"]])
    for name in reservations:
        if name not in of:
            known = f"SLURM_RESERVATION can be {', '.join(sorted(of))}" if of else "there is none"
            raise SlurmError(f"no reservation {name}; {known}")
    ours = {node for name in reservations for node in of[name]}
    return set(nodes) - ours if reservations else active


def _free_s(state: str, end_s: float) -> float | None:
    """When a node is free, by sinfo's short word for its state and the end of its jobs."""
    word, flags = state.rstrip(_FLAGS), state[len(state.rstrip(_FLAGS)) :]
    if "*" in flags:  # it does not answer
        return None
    if word in ("idle", "resv", "maint"):
        return _POWERED_DOWN_S if flags else 0.0
    if word in ("alloc", "mix", "comp", "plnd"):
        return end_s
    return None
