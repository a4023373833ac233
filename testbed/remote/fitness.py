"""Judges what a survey found: what each host is fit for, and how to mend what is not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dally import __version__
from dally.hosts.hosts_file import HostsFile, SshHost
from slurm_plugin.admin.checks.site import Finding, Level, ok, problem, warning
from slurm_plugin.local_cluster.local_slurm import PACKAGES
from testbed.remote.survey import ClockOffset, Survey

_OLDEST_PYTHON = (3, 11)
_CLOCK_S = 0.1
_MOST_CLOCK_S = 2.0

Facts = Mapping[str, Any]
"""What `testbed.remote.probe` prints."""


@dataclass(frozen=True, slots=True)
class FitnessRow:
    """What one check found on one host."""

    host: str
    check: str
    finding: Finding


def host_findings(file: HostsFile, seen: Survey) -> tuple[FitnessRow, ...]:
    """The findings of all checks on all hosts, host by host; a check that could not be made has none."""
    versions = [here.facts["slurm"] for here in seen.hosts.values() if here.facts and here.facts["slurm"]]
    common = max(versions, key=versions.count) if versions else None
    return tuple(
        FitnessRow(host.name, check, finding)
        for host in file.hosts
        for check, finding in _findings_of(host, seen, common).items()
    )


def is_fit(rows: tuple[FitnessRow, ...]) -> bool:
    """Whether nothing found is a problem."""
    return not any(row.finding.level is Level.PROBLEM for row in rows)


def _findings_of(host: SshHost, seen: Survey, common: str | None) -> dict[str, Finding]:
    """The findings on one host; `common` is the version of Slurm that most hosts have."""
    here, facts = seen.hosts[host.name], seen.hosts[host.name].facts
    if here.error:
        return {"ssh": problem(here.error, "until then nothing else can be said of it")}
    found = {"ssh": ok("connected"), "clock": _clock(here.clock)}
    if facts is None:
        advice = f"python of {host.name} in the hosts file must name one that runs there"
        return {**found, "python": problem(here.facts_error, advice)}
    python, dally, torch = str(facts["python"]), facts["packages"]["dally"], facts["packages"]["torch"]
    found["python"] = ok(python)
    if tuple(int(part) for part in python.split(".")[:2]) < _OLDEST_PYTHON:
        found["python"] = problem(python, f"Dally needs 3.11 or newer; name one as python of {host.name}")
    install = f"{host.python} -m pip install '.[training]'"
    found["dally"] = ok(dally)
    if dally != __version__:
        said = "missing" if dally is None else f"{dally}, here it is {__version__}"
        found["dally"] = problem(said, f"there, in the folder of Dally {__version__}: {install}")
    found["torch"] = ok(torch) if torch else problem("missing", f"there, in Dally's folder: {install}")
    return {
        **found,
        "gpus": _gpus(host, facts),
        "slurm": _slurm(facts, common),
        "kernel": ok(str(facts["kernel"])),
        "network": _network(host.name, seen),
        "all-reduce": _all_reduce(host.name, seen),
    }


def _clock(clock: ClockOffset | None) -> Finding:
    if clock is None:
        return problem("not read", "see the log of the host")
    said = f"{clock.offset_s:+.3f} s, known to {clock.uncertainty_s:.3f} s"
    surely_s = max(0.0, abs(clock.offset_s) - clock.uncertainty_s)
    advice = "let chrony or systemd-timesyncd set the clocks of all hosts and of this machine"
    if surely_s > _MOST_CLOCK_S:
        return problem(said, f"{advice}; Slurm refuses jobs between clocks so far apart")
    if surely_s > _CLOCK_S:
        return warning(said, f"{advice}; times of different hosts are compared")
    return ok(said)


def _gpus(host: SshHost, facts: Facts) -> Finding:
    names = facts["gpus"]["names"]
    if not names:
        return warning(
            f"none, {host.gpus} in the hosts file; {facts['gpus']['by']}",
            "jobs can only emulate compute there",
        )
    kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    if len(names) < host.gpus:
        return problem(
            f"{kinds} by {facts['gpus']['by']}, {host.gpus} in the hosts file",
            f"set gpus of {host.name} to {len(names)}, or see with nvidia-smi why others are missing",
        )
    return ok(f"{kinds} by {facts['gpus']['by']}, {host.gpus} in the hosts file")


def _slurm(facts: Facts, common: str | None) -> Finding:
    version, cluster = facts["slurm"], facts["slurm_cluster"]
    if version and version != common:
        return problem(f"{version}, {common} on other hosts", "install the same version on all hosts")
    if cluster:
        return ok(f"{version}, of the cluster {cluster}")
    lacks = [name for name in ("slurmctld", "slurmd", "munged") if not facts["programs"][name]]
    if lacks:
        install = f"there, as root: apt-get install --no-install-recommends {' '.join(PACKAGES)}"
        return problem(f"no Slurm answers, and there is no {', no '.join(lacks)}", install)
    if facts["uid"]:
        return problem(
            f"{version}, but none answers and only root can bring one up",
            'set user = "root" in the hosts file',
        )
    running = ", ".join(facts["running"])
    also = f"; {running} runs there, and would not be touched" if running else ""
    return ok(f"{version}, munge {facts['munge']}; a private one can be brought up{also}")


def _network(name: str, seen: Survey) -> Finding:
    failed = {pair: why for pair, why in seen.unreached.items() if pair[0] == name}
    if failed:
        said = "; ".join(f"{other}: {why}" for (_, other), why in failed.items())
        return problem(
            f"does not reach {said}", "check address in the hosts file, and that no firewall is between them"
        )
    others = sum(1 for here in seen.hosts.values() if here.facts) - 1
    return ok(f"reaches {others} others") if others else ok("there is no other host to reach")


def _all_reduce(name: str, seen: Survey) -> Finding:
    tried = {pair: found for pair, found in seen.all_reduces.items() if name in pair}
    failed = {pair: found for pair, found in tried.items() if isinstance(found, str)}
    if failed:
        said = "; ".join(f"{first} with {second}: {why}" for (first, second), why in failed.items())
        return problem(said, "set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME here if it took a wrong interface")
    if not tried:
        return ok("not tried: it takes two neighbours with torch")
    times = (
        f"{found * 1e3:.1f} ms with {pair[pair[0] == name]}"
        for pair, found in tried.items()
        if not isinstance(found, str)
    )
    return ok(f"1 MiB in {', '.join(times)}")
