"""What studies share: options, a cluster, simulations in memory, and tables printed or put into a page."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import click

from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import DallyError
from dally.jobs.job import Job
from dally.jobs.knowledge import EXACTLY, Knowledge, Known
from dally.markdown import replace_section, table
from dally.policies.registry import parse_policy
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from dally.profiles.gang_iteration import Split
from dally.runs.records import EventLog, JobRecord, NoEvents
from dally.runs.summary import Summary, summarise
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from simulator.engine import Engine
from simulator.failures import Outage
from simulator.priorities import PrioritySettings, SimulatedPriorities

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Row = TypeVar("Row")
Workload = TypeVar("Workload")
Found = TypeVar("Found")


class StudyCommand(click.Command):
    """A command that prints what went wrong with its input or files as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (DallyError, OSError) as error:
            raise click.ClickException(str(error)) from error


def policies_option(usual: Sequence[str] = ()) -> Decorator:
    """The option that says which policies to run instead of the usual ones."""
    return click.option(
        "--policy", "policies", multiple=True, default=usual, help="NAME[:knob=value,...]; default: all here."
    )


seeds_option: Decorator = click.option(
    "--seed", "seeds", type=int, multiple=True, default=(1, 2, 3), show_default=True
)
known_option: Decorator = click.option(
    "--knowledge",
    "known",
    type=click.Choice([each.value for each in Knowledge]),
    default=Knowledge.EXACT.value,
    show_default=True,
    callback=lambda context, option, value: Known(Knowledge(value)),
    help="Of running times, the same for all policies; exact is what the published simulations assume.",
)
write_option: Decorator = click.option(
    "--write", "page", type=click.Path(path_type=Path), help="Put the tables into this document's sections."
)


def knowledge_line(known: Known, detail: str) -> str:
    """What the policies of a table know of running times, for the line above it.

    Args:
        known: What they know.
        detail: Which of them go by that, and what the published ones knew; a sentence.
    """
    other = "" if known == EXACTLY else " instead of exact, as the published figures assume"
    return f"Running times known: {known}{other}. {detail}"


def publish(tables: Iterable[tuple[str, str]], page: Path | None) -> None:
    """Print tables, or put each into the section of a page that has its name, as soon as it is made.

    Raises:
        DallyError: The page lacks a section, or cannot be read or written.
    """
    for number, (section, body) in enumerate(tables):
        if page is None:
            click.echo(f"\n{body}" if number else body)
            continue
        try:
            text = replace_section(page.read_text(encoding="utf-8"), section, body)
            page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DallyError(f"cannot write {page}: {error}") from error


def on_one_switch(name: str, machines: Iterable[Machine], uplink: Link) -> Topology:
    """A cluster of machines that each hang on the same switch by such a link."""
    attached = [Attached(machine, "switch", uplink) for machine in machines]
    return build_topology(name, attached, [Switch("switch", None)])


class _CountedEvents(NoEvents):
    """Counts the events of each kind, and passes them on to another log."""

    def __init__(self, log: EventLog) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log

    def write(self, now: float, event: str, **said: Any) -> None:
        """Count an event, and pass it on."""
        self.counts[event] += 1
        self._log.write(now, event, **said)


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One simulation.

    Attributes:
        summary: Its figures.
        records: Its jobs.
        events: How many events of each kind there were.
    """

    summary: Summary
    records: Sequence[JobRecord]
    events: Counter[str]

    @property
    def jct_s(self) -> float:
        """The mean completion time, seconds."""
        return self.summary.jct_s.mean

    @property
    def resizes(self) -> int:
        """Changes of GPUs without a checkpoint."""
        return self.events["resize"]

    @property
    def stops(self) -> int:
        """Migrations and preemptions."""
        return self.events["migrate"] + self.events["preempt"]


def simulate(
    policy: str,
    jobs: Sequence[Job],
    topology: Topology,
    profiles: ProfileSet,
    known: Known = EXACTLY,
    split: Split = Split.EVEN,
    contention: bool = False,
    log: EventLog | None = None,
    priorities: PrioritySettings | None = None,
    priority_ratio: float = 0.0,
    believed: CostModel | None = None,
    outages: Iterable[Outage] = (),
) -> StudyRun:
    """Simulate one policy in memory.

    Args:
        policy: NAME[:knob=value,...].
        jobs: By submission.
        topology: The cluster.
        profiles: Of the jobs' models.
        known: What the policy knows of running times.
        split: How gangs over several GPU types split their batch.
        contention: Whether jobs that share links slow each other.
        log: Where events go, which are counted; None: nowhere.
        priorities: How Slurm would work out priorities; None: all jobs have the same.
        priority_ratio: How far they count; see `ClusterState`.
        believed: What the policy goes by where it believes other costs than jobs have; None: what they have.
        outages: Machine failures, by time.

    Raises:
        DallyError: The policy is wrong, leaves jobs waiting for ever, or gets nothing done.
    """
    spec, counted = parse_policy(policy), _CountedEvents(log or NoEvents())
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(topology, profiles, split, spec.policy.batching, averaging=averaging)
    state = ClusterState(topology, believed or costs, known, priority_ratio)
    links = SharedLinks(costs) if contention else None
    worked_out = None if priorities is None else SimulatedPriorities(priorities, topology.gpus)
    scheduler = Scheduler(state, spec.build(state))
    ended = Engine(scheduler, jobs, counted, outages, links=links, costs=costs, priorities=worked_out).run()
    if not ended.complete:
        raise DallyError(f"{policy}: {ended.note}")
    return StudyRun(summarise(ended.records, topology.gpus, ended.end_s), ended.records, counted.counts)


def run_all(
    policies: Sequence[str], workloads: Mapping[str, Workload], run: Callable[[str, Workload], Found]
) -> dict[str, dict[str, Found]]:
    """Run every policy on every workload, as many at a time as this process may use cores.

    Args:
        policies: NAME[:knob=value,...] of each.
        workloads: By name.
        run: Simulates a policy on a workload; can be sent to another process.

    Returns:
        By policy, and by name of the workload.

    Raises:
        DallyError: A policy is wrong, which is found before anything runs, or does not end its jobs.
    """
    for policy in policies:
        parse_policy(policy)
    return run_rows(policies, workloads, run)


def run_rows(
    rows: Sequence[Row], workloads: Mapping[str, Workload], run: Callable[[Row, Workload], Found]
) -> dict[Row, dict[str, Found]]:
    """The same of any rows of a table."""
    found: dict[Row, dict[str, Found]] = {row: {} for row in rows}
    tasks = list(product(rows, workloads))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        runs = pool.map(run, (row for row, _ in tasks), (workloads[name] for _, name in tasks))
        for (row, name), done in zip(tasks, runs, strict=True):
            found[row][name] = done
            click.echo(f"{row}  {name}", err=True)
    return found


Cell = Callable[[str, Mapping[str, Found]], str]
"""The text of a cell, from the policy of its row and the runs of that policy, by workload."""


def mean_cell(form: str, figure: Callable[[Found], float]) -> Cell[Found]:
    """A cell with the mean of a figure of all runs."""
    return lambda policy, runs: form.format(fmean(map(figure, runs.values())))


def policy_table(
    found: Mapping[str, Mapping[str, Found]],
    columns: Sequence[tuple[str, Cell[Found]]],
    below: Sequence[Sequence[str]] = (),
) -> str:
    """Markdown: a row for each policy with a cell under each heading, and other rows below."""
    rows = [[f"`{policy}`", *(cell(policy, runs) for _, cell in columns)] for policy, runs in found.items()]
    return table(["policy", *(heading for heading, _ in columns)], [*rows, *below])
