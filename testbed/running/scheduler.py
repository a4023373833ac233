"""How the scheduler of a real Slurm is set, and simulated Slurm set the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dally.bounds import check_number
from dally.errors import InputError
from dally.policies.registry import PolicySpec
from dally.policies.slurm.policy import SlurmKnobs
from slurm_plugin.client.node_text import read_settings
from slurm_plugin.local_cluster.cluster import Cluster

FACT = "scheduler"
"""Where run.json has the settings."""

_PARAMETERS = "SchedulerParameters"
_SECONDS = {
    "bf_interval": ("bf_interval_s", 1.0),
    "bf_resolution": ("bf_resolution_s", 1.0),
    "bf_window": ("bf_window_s", 60.0),
}
_COUNTS = ("bf_max_job_test", "bf_job_part_count_reserve")
_MOST_SWITCH_WAIT_S = 300.0
"""Slurm's own `max_switch_wait`."""


def read_scheduler(cluster: Cluster) -> dict[str, str]:
    """The settings of a cluster's scheduler, as `scontrol show config` has them.

    Raises:
        ClusterError: It does not say.
    """
    settings = read_settings(cluster.ask("scontrol", "show", "config"))
    return {name: settings[name] for name in (_PARAMETERS, "SchedulerType") if settings.get(name)}


def set_alike(policy: PolicySpec, settings: Mapping[str, str]) -> PolicySpec:
    """Simulated Slurm as a real one was in a run; other policies as they are.

    Args:
        policy: What the run was asked for.
        settings: As `read_scheduler` gives them; what they do not name has Slurm's default.
    """
    if not isinstance(policy.knobs, SlurmKnobs):
        return policy
    said = dict(part.partition("=")[::2] for part in settings.get(_PARAMETERS, "").split(","))
    numbers: dict[str, Any] = {
        **{knob: _number(said, name) * unit_s for name, (knob, unit_s) in _SECONDS.items() if name in said},
        "bf_job_part_count_reserve": 0,
        **{name: int(_number(said, name)) for name in _COUNTS if name in said},
    }
    most_s = _number({"max_switch_wait": str(_MOST_SWITCH_WAIT_S), **said}, "max_switch_wait")
    knobs = SlurmKnobs(
        switch_wait_s=min(policy.knobs.switch_wait_s, most_s),
        scheduler=settings.get("SchedulerType", "sched/backfill").removeprefix("sched/"),
        placement="tree",
        **numbers,
    )
    return replace(policy, knobs=knobs)


def _number(said: Mapping[str, str], name: str) -> float:
    """A setting that is a number; InputError if it is none."""
    try:
        value = float(said[name])
    except ValueError:
        raise InputError(f"{_PARAMETERS} has {name}={said[name]}, must be a number") from None
    check_number(f"{name} in {_PARAMETERS}", value, 0)
    return value
