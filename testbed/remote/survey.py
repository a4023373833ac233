"""Gathers facts of hosts over SSH, changing nothing there: what they are, their clocks, what they reach."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from itertools import pairwise
from threading import Timer
from typing import Any

from dally.errors import DallyError
from dally.hosts.processes import Command, run_together
from dally.hosts.ssh import each
from dally.profiles.schema import PointShape, Reduced
from profiler.driver.remote_hosts import RemoteHosts
from profiler.messages import parse_line
from profiler.spec import MeasurementRun, MeasurementSpec
from testbed.remote.hosts import ANSWER_S, Hosts, LoggedProcess, RemoteError
from workloads.settings import Backend

Pair = tuple[str, str]
"""Names of two hosts: the one that asks, and the one that is asked."""

_CLOCK_READINGS = 5
_PROBE_S = 60.0
_MESH_S = 120.0
_ALL_REDUCE_S = 180.0
_ALL_REDUCE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a host's clock is ahead of ours, and half the round trip, by which that may be off."""

    offset_s: float
    uncertainty_s: float


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One host.

    Attributes:
        error: Why it cannot be reached; empty if it can.
        facts: What `testbed.remote.probe` printed there; None if it did not run.
        facts_error: Why it did not.
        clock: Its clock; None if it was not read.
    """

    error: str = ""
    facts: Mapping[str, Any] | None = None
    facts_error: str = ""
    clock: ClockOffset | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """All that is known of the hosts.

    Attributes:
        hosts: Each host by its name, in the order of the file.
        unreached: Why one host does not reach another over TCP.
        all_reduces: For each pair of neighbours that was tried, seconds of an all-reduce of 1 MiB, or why it
            failed.
    """

    hosts: Mapping[str, HostFacts]
    unreached: Mapping[Pair, str] = field(default_factory=dict)
    all_reduces: Mapping[Pair, float | str] = field(default_factory=dict)


def survey(hosts: Hosts) -> Survey:
    """Connect to all hosts and gather their facts; what fails is part of the findings."""
    failed = hosts.connect_each()
    names = [host.name for host in hosts.file.hosts]

    def facts_of(name: str) -> HostFacts:
        clock = read_clock(hosts, name)
        python, program = hosts.host(name).python, _program("probe.py")
        try:
            text = hosts.ask(name, python, "-", stdin=program, timeout_s=_PROBE_S)
            return HostFacts(facts=json.loads(text), clock=clock)
        except (DallyError, ValueError) as error:
            return HostFacts(facts_error=str(error), clock=clock)

    seen = each([name for name in names if name not in failed], facts_of)
    found = {}
    for name in names:
        facts = seen.get(name)
        found[name] = facts if isinstance(facts, HostFacts) else HostFacts(str(failed.get(name) or facts))
    able = [name for name in names if found[name].facts]
    return Survey(found, unreached(hosts, able), all_reduces(hosts, found))


def read_clock(hosts: Hosts, name: str) -> ClockOffset:
    """A host's clock, by the reading whose round trip was shortest.

    Raises:
        RemoteError: It tells no time.
    """
    readings = []
    for _ in range(_CLOCK_READINGS):
        before_s = time.time()
        text = hosts.ask(name, "date", "+%s.%N")
        after_s = time.time()
        try:
            offset_s = float(text) - (before_s + after_s) / 2
        except ValueError as error:
            raise RemoteError(f"{name}: date tells {text.strip()!r}, not seconds") from error
        readings.append(ClockOffset(offset_s, (after_s - before_s) / 2))
    return min(readings, key=lambda reading: reading.uncertainty_s)


def unreached(hosts: Hosts, names: Sequence[str]) -> dict[Pair, str]:
    """Which of these hosts do not reach which others over TCP at the addresses of the file, and why."""
    program = _program("mesh_probe.py")

    def listen(name: str) -> tuple[LoggedProcess, int]:
        argv = (hosts.host(name).python, "-", "listen", name)
        process = hosts.start(Command(f"listening on {name}", argv, host=name), program.encode())
        timer = Timer(ANSWER_S, process.stop)
        timer.start()
        line = next(iter(process.stdout), b"")
        timer.cancel()
        if not line.strip().isdigit():
            process.stop()
            raise RemoteError(f"{name}: cannot listen on a port")
        return process, int(line)

    def reach(name: str) -> dict[str, str | None]:
        others = [
            (other, hosts.host(other).login.address, port)
            for other, (_, port) in listening.items()
            if other != name
        ]
        argv = (hosts.host(name).python, "-", "reach", json.dumps(others))
        answers: dict[str, str | None] = json.loads(hosts.ask(name, *argv, stdin=program, timeout_s=_MESH_S))
        return answers

    servers = each(names, listen)
    listening = {name: one for name, one in servers.items() if not isinstance(one, DallyError)}
    try:
        found = each(names, reach)
    finally:
        each(listening, lambda name: listening[name][0].stop())
    failures: dict[Pair, str] = {}
    for name, reached in found.items():
        if isinstance(reached, DallyError):
            failures |= {(name, other): str(reached) for other in names if other != name}
        else:
            failures |= {(name, other): why for other, why in reached.items() if why is not None}
    silent = {(name, name): str(server) for name, server in servers.items() if name not in listening}
    return failures | silent


def all_reduces(hosts: Hosts, found: Mapping[str, HostFacts]) -> dict[Pair, float | str]:
    """Seconds of an all-reduce between neighbours of the file that both have torch, or why it failed."""
    able = [name for name, facts in found.items() if facts.facts and all(facts.facts["packages"].values())]
    pairs = list(pairwise(able))
    tried: dict[Pair, float | str] = {}
    for some in (dict(pairs[::2]), dict(pairs[1::2])):  # pairs that share a host come one after the other
        results = each(some, partial(_all_reduce, hosts, some, found))
        for first, result in results.items():
            tried[first, some[first]] = str(result) if isinstance(result, DallyError) else result
    return {pair: tried[pair] for pair in pairs}


def _program(file: str) -> str:
    return resources.files("testbed.remote").joinpath(file).read_text(encoding="utf-8")


def _all_reduce(
    hosts: Hosts, second_of: Mapping[str, str], found: Mapping[str, HostFacts], first: str
) -> float:
    """Seconds of an all-reduce between a host and its partner."""
    pair = (first, second_of[first])
    gpus = [(facts.facts or {})["gpus"]["names"] for facts in (found[name] for name in pair)]
    spec = MeasurementSpec(
        models=(),
        backend=Backend.NCCL if all(gpus) else Backend.GLOO,
        sweep_bytes=(_ALL_REDUCE_BYTES,),
        warmup_s=1.0,
        repetitions=5,
        budget_s=5.0,
        join_timeout_s=60.0,
        allow_busy=True,
    )
    run = MeasurementRun("check", "network", PointShape(2, 1, "blocked"), pair, None, spec)
    times: list[float] = []

    def read(line: str) -> None:
        finding = parse_line(line)
        if isinstance(finding, Reduced):
            times.append(finding.median_s)

    run_together(RemoteHosts(hosts.file, hosts).commands(run), hosts.start, read, _ALL_REDUCE_S)
    if not times:
        raise RemoteError(f"{pair[0]} and {pair[1]}: no all-reduce was measured")
    return times[0]
