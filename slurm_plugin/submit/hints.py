"""The table beside job_submit.lua: what the site settled, and for the hint mode how much each model suffers.

The hint mode needs no controller. Slurm itself lets a job wait for one leaf switch, for a time given with the
job; the profiles tell how long that is worth. A job of run time T that runs s times slower across leaf
switches loses (s - 1) T there, so waiting longer than that never pays; `share` of it is what we risk.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from dally.cluster.topology import Allocation, Topology
from dally.errors import InputError
from dally.profiles.files import ProfileSet
from dally.profiles.iteration import predict

Mode = Literal["hold", "hint"]
MODES: tuple[Mode, ...] = ("hold", "hint")

SLURM_MAX_WAIT_S = 300
"""Slurm's own longest wait for switches, unless SchedulerParameters has max_switch_wait."""

_ODD = re.compile(r"[^A-Za-z0-9 _.:+-]")


@dataclass(frozen=True, slots=True)
class Waits:
    """How long jobs may wait for one leaf switch, in the hint mode.

    Attributes:
        share: How much of the time that is at stake.
        default_run_s: Run time of a job without time limit, seconds.
        longest_s: Longest wait, seconds: the site's max_switch_wait, as Slurm cuts longer ones silently.
    """

    share: float = 0.5
    default_run_s: int = 3600
    longest_s: int = SLURM_MAX_WAIT_S

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share is {self.share:g}, must be above 0 and at most 1")
        for name in ("default_run_s", "longest_s"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, must be at least 1")


def site_lua(
    partitions: Collection[str],
    exempt_uids: Collection[int],
    mode: Mode = "hold",
    slowdowns: Mapping[str, float] | None = None,
    waits: Waits | None = None,
) -> str:
    """The text of dally_site.lua.

    Args:
        partitions: The partitions whose GPU jobs are Dally's.
        exempt_uids: Users who may change jobs that Dally places, and whose plain jobs are left alone: the
            controller's and administrators'; root always is.
        mode: `hold`: a controller starts the jobs; `hint`: Slurm does, each with a timer.
        slowdowns: For the hint mode, see `leaf_slowdowns`.
        waits: For the hint mode.
    """
    waits = waits or Waits()
    by_model = {_quoted(model): f"{value:.4f}" for model, value in (slowdowns or {}).items()}
    lines = [
        "-- Written by `dally slurm install`; job_submit.lua reads it anew for every job.",
        "return {",
        f"  mode = {_quoted(mode)},",
        f"  partitions = {_table({_quoted(name): 'true' for name in partitions})},",
        f"  exempt = {_table({str(uid): 'true' for uid in exempt_uids})},",
        f"  slowdowns = {_table(by_model)},",
        f"  share = {waits.share!r},",
        f"  default_run_s = {waits.default_run_s},",
        f"  longest_s = {waits.longest_s},",
        "}",
    ]
    return "\n".join(lines) + "\n"


def leaf_slowdowns(profiles: ProfileSet, topology: Topology) -> dict[str, float]:
    """How much slower each model runs across leaf switches than on one, at least 1; by model.

    Compared is the smallest gang that can be torn apart, two whole machines: side by side in one rack, and
    as far apart as the cluster is wide. Empty if no rack has two machines, or there is only one rack.
    """
    pair = _two_machines(topology)
    if pair is None:
        return {}
    together, apart = (topology.shape(allocation) for allocation in pair)
    found: dict[str, float] = {}
    for model in profiles.models:
        near = profiles.find(model, together.gpu_types[0])
        far = profiles.find(model, apart.gpu_types[-1])
        if near is not None and far is not None:
            ratio = predict(far, apart).iteration_s / predict(near, together).iteration_s
            found[model] = max(1.0, ratio)
    return found


def wait_advice(slowdowns: Mapping[str, float], waits: Waits) -> str:
    """What to tell the administrator of Slurm's limit on the wait; empty if it cuts no model's short."""
    wished_s = {
        model: (slowdown - 1) * waits.default_run_s * waits.share for model, slowdown in slowdowns.items()
    }
    cut = sorted(model for model, wait_s in wished_s.items() if wait_s > waits.longest_s)
    if not cut:
        return ""
    return (
        f"waits of {', '.join(cut)} are cut to {waits.longest_s} s; SchedulerParameters=max_switch_wait="
        f"{max(wished_s.values()):.0f} in slurm.conf would allow them all"
    )


def _two_machines(topology: Topology) -> tuple[Allocation, Allocation] | None:
    """Two machines of one rack, and two as far apart as there are, of one GPU type if that can be."""
    racks = topology.level_domains[1] if topology.top > 1 else ()
    for rack in racks:
        if len(rack.children) < 2:
            continue
        first, second = rack.children[:2]
        strangers = [
            index
            for index in range(len(topology.machines))
            if index not in rack.children and topology.level_of(((first, 1), (index, 1))) <= topology.widest
        ]
        if not strangers:
            continue
        far = max(strangers, key=lambda index: _likeness(topology, first, second, index))
        return _whole(topology, first, second), _whole(topology, first, far)
    return None


def _likeness(topology: Topology, first: int, second: int, far: int) -> tuple[bool, int]:
    """Machines like the second first, of these the farthest."""
    like = topology.machines[far].gpu_type == topology.machines[second].gpu_type
    return like, topology.level_of(((first, 1), (far, 1)))


def _whole(topology: Topology, *machines: int) -> Allocation:
    return tuple((machine, topology.machines[machine].gpus) for machine in sorted(machines))


def _quoted(text: str) -> str:
    """A Lua string, with odd characters as decimal codes, so that no name breaks out of it."""
    return '"' + _ODD.sub(lambda odd: "".join(f"\\{byte:03d}" for byte in odd[0].encode()), text) + '"'


def _table(entries: Mapping[str, str]) -> str:
    inner = ", ".join(f"[{key}] = {value}" for key, value in sorted(entries.items()))
    return f"{{ {inner} }}" if inner else "{}"
