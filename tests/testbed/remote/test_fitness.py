"""What is said of hosts, and how it is to be mended."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dally import __version__
from dally.hosts.hosts_file import HostsFile, Login, SshHost
from slurm_plugin.admin.checks.site import Finding, Level
from testbed.remote.fitness import host_findings, is_fit
from testbed.remote.survey import ClockOffset, HostFacts, Survey

FILE = HostsFile(
    tuple(
        SshHost(Login(name, name, None, 22, None), "r1", 2, "python3", None) for name in ("n1", "n2", "n3")
    ),
    Path("known"),
)
PROGRAMS = {name: f"/usr/sbin/{name}" for name in ("slurmctld", "slurmd", "munged")}
FIT = {
    "python": "3.11.2",
    "packages": {"dally": __version__, "torch": "2.13.0"},
    "kernel": "6.1.0",
    "uid": 0,
    "programs": PROGRAMS,
    "slurm": "22.05.8",
    "munge": "0.5.15",
    "running": [],
    "slurm_cluster": None,
    "gpus": {"names": ["H100", "H100"], "by": "NVML"},
}
EXACT = ClockOffset(0.0, 0.001)


def level_of(finding: Finding) -> str:
    return str(finding.level)


def judged(facts: HostFacts, **survey: Any) -> tuple[bool, dict[str, Finding]]:
    """Whether all hosts are fit, and what is said of n1, where the others are fit."""
    others = dict.fromkeys(("n2", "n3"), HostFacts(facts=FIT, clock=EXACT))
    rows = host_findings(FILE, Survey({"n1": facts, **others}, **survey))
    return is_fit(rows), {row.check: row.finding for row in rows if row.host == "n1"}


def of_facts(change: Mapping[str, object]) -> tuple[bool, dict[str, Finding]]:
    """The same where n1 differs from a fit host by this."""
    return judged(HostFacts(facts={**FIT, **change}, clock=EXACT))


def test_nothing_is_said_against_a_fit_host() -> None:
    fit, found = of_facts({})
    assert fit
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert found["gpus"].found == "2 x H100 by NVML, 2 in the hosts file"


@pytest.mark.parametrize(
    ("change", "check", "said", "advice"),
    [
        ({"python": "3.9.2"}, "python", "3.9.2", "3.11 or newer"),
        ({"packages": {"dally": None, "torch": "2"}}, "dally", "missing", "python3 -m pip install"),
        ({"packages": {"dally": "0.0.9", "torch": "2"}}, "dally", "0.0.9, here it is", "pip install"),
        ({"packages": {"dally": __version__, "torch": None}}, "torch", "missing", "pip install"),
        ({"gpus": {"names": ["H100"], "by": "NVML"}}, "gpus", "1 x H100 by NVML, 2 in", "gpus of n1 to 1"),
        ({"slurm": "24.11.5"}, "slurm", "24.11.5, 22.05.8 on other hosts", "the same version"),
        ({"programs": {**PROGRAMS, "slurmd": None}}, "slurm", "there is no slurmd", "apt-get install"),
        ({"uid": 1000}, "slurm", "only root can bring one up", 'user = "root"'),
    ],
)
def test_what_is_missing_is_a_problem_with_a_way_to_mend_it(
    change: Mapping[str, object], check: str, said: str, advice: str
) -> None:
    fit, found = of_facts(change)
    assert not fit
    assert [name for name, finding in found.items() if finding.level is Level.PROBLEM] == [check]
    assert said in found[check].found
    assert advice in found[check].advice


def test_a_host_without_gpus_can_only_emulate_them() -> None:
    fit, found = of_facts({"gpus": {"names": None, "by": "no NVML and no nvidia-smi"}})
    assert fit
    assert found["gpus"].level is Level.WARNING
    assert found["gpus"].found == "none, 2 in the hosts file; no NVML and no nvidia-smi"


def test_the_slurm_that_is_there_is_named() -> None:
    _, found = of_facts({"slurm_cluster": "prod", "uid": 1000})
    assert found["slurm"] == Finding(Level.OK, "22.05.8, of the cluster prod")


@pytest.mark.parametrize(
    ("offset_s", "uncertainty_s", "level"),
    [(0.05, 0.01, "ok"), (-0.2, 0.15, "ok"), (-0.2, 0.01, "warning"), (5.0, 0.1, "problem")],
)
def test_clocks_are_judged_by_what_is_surely_known(offset_s: float, uncertainty_s: float, level: str) -> None:
    _, found = judged(HostFacts(facts=FIT, clock=ClockOffset(offset_s, uncertainty_s)))
    assert level_of(found["clock"]) == level


def test_a_host_that_is_not_reached_from_another_is_a_problem_of_the_one_that_asked() -> None:
    fit, found = judged(HostFacts(facts=FIT, clock=EXACT), unreached={("n1", "n2"): "No route to host"})
    assert not fit
    assert found["network"].found == "does not reach n2: No route to host"


def test_an_all_reduce_that_failed_is_a_problem_of_both() -> None:
    fit, found = judged(HostFacts(facts=FIT, clock=EXACT), all_reduces={("n1", "n2"): "timed out"})
    assert not fit
    assert found["all-reduce"].found == "n1 with n2: timed out"


def test_of_a_host_that_does_not_answer_nothing_else_is_said() -> None:
    fit, found = judged(HostFacts(error="n1 cannot be reached"))
    assert not fit
    assert found.keys() == {"ssh"}
