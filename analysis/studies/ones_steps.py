"""How long a decision of ONES takes, by jobs and GPUs."""

import io
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from analysis.studies.pollux_workloads import draw_jobs
from dally.cluster.topology import Link, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.markdown import table
from dally.plan import Plan
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from simulator.engine import Engine

_UPLINK = Link(50e9, 20e-6)
_DECISIONS = 40
"""That are timed, after the first, which works out speeds that all others remember."""


class TimedOnes(Scheduler):
    """ONES, with the time of each decision, in seconds of this process."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state, parse_policy("ones").build(state))
        self.decided_s: list[float] = []

    def decide(self, now: float) -> Plan:
        """Decide, and note how long that took."""
        began_s = time.process_time()
        plan = super().decide(now)
        self.decided_s.append(time.process_time() - began_s)
        return plan

    def enough(self) -> bool:
        """Whether enough of them are timed."""
        return len(self.decided_s) > _DECISIONS


def larger(like: Topology, gpus: int) -> Topology:
    """Machines like the first of a cluster on one switch, with so many GPUs in all."""
    machine = like.machines[0]
    names = [f"n{number}" for number in range(gpus // machine.gpus)]
    attached = [Attached(replace(machine, name=name), "switch", _UPLINK) for name in names]
    return build_topology(f"{gpus} GPUs", attached, [Switch("switch", None)])


def decision_times_s(jobs: int, topology: Topology) -> list[float]:
    """How long the first decisions take when so many random jobs arrive at once, process seconds."""
    profiles = load_profiles("pollux")
    state = ClusterState(
        topology, CostModel(topology, profiles, batching=parse_policy("ones").policy.batching)
    )
    scheduler = TimedOnes(state)
    crowd = [replace(job, submit_s=0.0) for job in draw_jobs(jobs, 1.0, 1, profiles)]
    Engine(scheduler, crowd, EventLog(io.StringIO()), stop=scheduler.enough).run()
    return scheduler.decided_s[1:]


def steps_table(like: Topology, jobs: Sequence[int], gpus: Sequence[int]) -> str:
    """Markdown: median / longest decision, milliseconds; a row for each number of jobs, a column for GPUs."""
    rows = []
    for count in jobs:
        times = [decision_times_s(count, larger(like, size)) for size in gpus]
        rows.append(
            [f"{count} jobs", *(f"{1000 * median(each):.0f} / {1000 * max(each):.0f}" for each in times)]
        )
    return table(["median / longest, ms", *(f"{size} GPUs" for size in gpus)], rows)
