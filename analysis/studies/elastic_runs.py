"""Runs of a study of elastic training: one policy on one workload in memory, and all of them."""

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from dally.cluster.topology import Topology
from dally.errors import DallyError
from dally.jobs.job import Job
from dally.jobs.knowledge import EXACTLY, Known
from dally.policies.registry import PolicySpec
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from dally.runs.records import EventLog
from dally.runs.summary import summarise
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from simulator.engine import Engine


@dataclass(frozen=True, slots=True)
class ElasticRun:
    """One simulation.

    Attributes:
        jct_s: Mean completion time, seconds.
        makespan_s: From the first submission to the last end, seconds.
        resizes: Changes of GPUs without a checkpoint.
        stops: Migrations and preemptions.
        jcts_s: Completion times of all jobs, seconds, ascending.
        wait_s: Mean time waiting, seconds.
    """

    jct_s: float
    makespan_s: float
    resizes: int
    stops: int
    jcts_s: Sequence[float]
    wait_s: float


class Counted(EventLog):
    """A log that keeps nothing but how many events of each kind there were."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.counts: Counter[str] = Counter()

    def write(self, now: float, event: str, **said: object) -> None:
        """Count it."""
        self.counts[event] += 1


def run(
    policy: PolicySpec,
    jobs: Sequence[Job],
    topology: Topology,
    profiles: ProfileSet,
    known: Known = EXACTLY,
) -> ElasticRun:
    """Simulate one policy in memory.

    Raises:
        DallyError: The policy leaves jobs waiting for ever, or gets nothing done.
    """
    costs = CostModel(topology, profiles, batching=policy.policy.batching)
    state = ClusterState(topology, costs, known)
    log = Counted()
    ended = Engine(Scheduler(state, policy.build(state)), jobs, log).run()
    if not ended.complete:
        raise DallyError(f"{policy.spec}: {ended.note}")
    summary = summarise(ended.records, topology.gpus, ended.end_s)
    stops = log.counts["migrate"] + log.counts["preempt"]
    jcts_s = sorted(record.jct_s for record in ended.records)
    resizes = log.counts["resize"]
    return ElasticRun(summary.jct_s.mean, summary.makespan_s, resizes, stops, jcts_s, summary.queue_s.mean)


def run_all(
    policies: Iterable[PolicySpec],
    workloads: Mapping[str, Sequence[Job]],
    topology: Topology,
    profiles: ProfileSet,
    known: Known,
) -> dict[str, dict[str, ElasticRun]]:
    """Every policy on every workload, one after the other: by policy and name of the workload."""
    found: dict[str, dict[str, ElasticRun]] = {}
    for policy in policies:
        for name, jobs in workloads.items():
            outcome = run(policy, jobs, topology, profiles, known)
            found.setdefault(policy.spec, {})[name] = outcome
            click.echo(f"{policy.spec}  {name}  {outcome.jct_s:.0f} s  {outcome.makespan_s:.0f} s", err=True)
    return found
