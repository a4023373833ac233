"""The table beside job_submit.lua: what the site settled, and for the hint mode how much each model suffers.

The hint mode needs no controller. Slurm itself lets a job wait for one leaf switch, for a time given with the
job; the profiles tell how long that is worth. A job of run time T that runs s times slower across leaf
switches loses (s - 1) T there, so waiting longer than that never pays; `share` of it is what we risk.
"""

import re
from collections.abc import Collection, Mapping
from typing import Literal

from dally.cluster.topology import Allocation, Topology
from dally.profiles.files import ProfileSet
from dally.profiles.iteration import predict

Mode = Literal["hold", "hint"]
MODES: tuple[Mode, ...] = ("hold", "hint")

SLURM_MAX_WAIT_S = 300
"""Slurm's own longest wait for switches, unless SchedulerParameters has max_switch_wait."""

_ODD = re.compile(r"[^A-Za-z0-9 _.:+-]")


SHARE = 0.5
"""How much of the time that is at stake a job waits."""

SAME = 1.02
"""What makes a model slower by less costs it nothing: no profile is more exact."""

DEFAULT_RUN_S = 3600
"""Run time that is assumed of a job without time limit."""


def site_lua(
    partitions: Collection[str],
    exempt_uids: Collection[int],
    mode: Mode = "hold",
    slowdowns: Mapping[str, float] | None = None,
    longest_s: int = SLURM_MAX_WAIT_S,
) -> str:
    """The text of dally_site.lua.

    Args:
        partitions: The partitions whose GPU jobs are Dally's.
        exempt_uids: Users who may change jobs that Dally places, and whose plain jobs are left alone: the
            controller's and administrators'; root always is.
        mode: `hold`: a controller starts the jobs; `hint`: Slurm does, each with a timer.
        slowdowns: For the hint mode, see `leaf_slowdowns`.
        longest_s: For the hint mode, the longest wait: the site's max_switch_wait, as Slurm cuts longer ones
            silently.
    """
    by_model = {_quoted(model): f"{value:.4f}" for model, value in (slowdowns or {}).items()}
    lines = [
        "-- Written by `dally slurm install`; job_submit.lua reads it anew for every job.",
        "return {",
        f"  mode = {_quoted(mode)},",
        f"  partitions = {_table({_quoted(name): 'true' for name in partitions})},",
        f"  exempt = {_table({str(uid): 'true' for uid in exempt_uids})},",
        f"  slowdowns = {_table(by_model)},",
        f"  share = {SHARE!r},",
        f"  same = {SAME!r},",
        f"  default_run_s = {DEFAULT_RUN_S},",
        f"  longest_s = {longest_s},",
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


def wait_advice(slowdowns: Mapping[str, float], longest_s: int) -> str:
    """What to tell the administrator of Slurm's limit on the wait; empty if it cuts no model's short."""
    wished_s = {model: (slowdown - 1) * DEFAULT_RUN_S * SHARE for model, slowdown in slowdowns.items()}
    cut = sorted(model for model, wait_s in wished_s.items() if wait_s > longest_s)
    if not cut:
        return ""
    return (
        f"waits of {', '.join(cut)} are cut to {longest_s} s; SchedulerParameters=max_switch_wait="
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
        gpu_type = topology.machines[second].gpu_type
        # Machines like the second come first, of these the farthest.
        far = max(
            strangers,
            key=lambda index: (
                topology.machines[index].gpu_type == gpu_type,
                topology.level_of(((first, 1), (index, 1))),
            ),
        )
        return _whole(topology, first, second), _whole(topology, first, far)
    return None


def _whole(topology: Topology, *machines: int) -> Allocation:
    return tuple((machine, topology.machines[machine].gpus) for machine in sorted(machines))


def _quoted(text: str) -> str:
    """A Lua string, with odd characters as decimal codes, so that no name breaks out of it."""
    return '"' + _ODD.sub(lambda odd: "".join(f"\\{byte:03d}" for byte in odd[0].encode()), text) + '"'


def _table(entries: Mapping[str, str]) -> str:
    inner = ", ".join(f"[{key}] = {value}" for key, value in sorted(entries.items()))
    return f"{{ {inner} }}" if inner else "{}"
