"""Hadar beside Gavel on Hadar's classes of jobs: `python -m analysis.studies.hadar`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import click
import numpy as np

from analysis.studies.common import (
    Cell,
    StudyCommand,
    StudyRun,
    mean_cell,
    policy_table,
    publish,
    run_all,
    seeds_option,
    simulate,
    write_option,
)
from dally.cluster.load import load_cluster
from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.policies.common.arrays import Floats
from dally.policies.gavel.shares import Demand, least_makespan
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.gang_iteration import Split
from dally.runs.records import JobRecord
from dally.runs.summary import Summary
from dally.traces.generators import generate
from dally.traces.model_mix import assign_models
from simulator.sweep.groups import mean

GAVEL = "gavel"
OBJECTIVES = (GAVEL, "gavel:objective=ftf", "gavel:objective=makespan")
HADARS = ("hadar", "hadar:mixed=no", "hadar:utility=completion", "hadar:utility=completion,mixed=no")
BATCH = (*OBJECTIVES, *HADARS, "jps", "srtf")
LOADS = (GAVEL, "gavel:objective=ftf", "hadar", "hadar:utility=completion")
GAPS: Mapping[str, float] = {"light": 6000.0, "heavy": 2600.0}
"""Mean seconds between arrivals, where the linear program below ends a job each 2,490 s on this cluster."""

HORIZONS = (1e-2, 1e-4, 1e-6)
FLOORS = (1e-3, 0.1, 0.5, 1.0)
PRICES = (
    GAVEL,
    *(
        f"hadar{more}"
        for utility in ("", "utility=completion")
        for more in (
            f":{utility}".rstrip(":"),
            *(":" + ",".join(filter(None, [utility, f"horizon={each:g}"])) for each in HORIZONS),
            *(":" + ",".join(filter(None, [utility, f"floor={each:g}"])) for each in FLOORS),
        )
    ),
)
PHILLY = "philly-like:jobs={jobs},gap_s=0.001,gpus=1:70/2:10/4:15/8:5,max_s=200000"
PHILLY_MIX = "resnet-18=0.25,resnet-50=0.25,transformer=0.25,lm=0.25"


@dataclass(frozen=True, slots=True)
class HadarRun:
    """One run, and the finish-time fairness of each of its jobs."""

    run: StudyRun
    fairness: Floats


@dataclass(frozen=True)
class HadarSetting:
    """The cluster and the profiles of all tables."""

    topology: Topology
    profiles: ProfileSet
    split: Split

    def demand(self, jobs: Sequence[Job]) -> Demand:
        """The jobs' gangs and speeds, each gang on one GPU type."""
        types, costs = self.topology.gpu_types, CostModel(self.topology, self.profiles, self.split)
        counts = [sum(m.gpus for m in self.topology.machines if m.gpu_type == each) for each in types]
        speeds = [[costs.type_speeds(job).get(each, 0.0) for each in types] for job in jobs]
        gangs = np.array([job.gpus for job in jobs], dtype=np.float64)
        return Demand(gangs, np.array(speeds), np.eye(len(types)), np.array(counts, dtype=np.float64))


def read_setting(split: Split = Split.EVEN) -> HadarSetting:
    """`hadar-60` with Gavel's table; gangs over several GPU types split their batch so."""
    return HadarSetting(load_cluster("hadar-60"), load_profiles("gavel"), split)


def least_makespan_s(setting: HadarSetting, jobs: Sequence[Job]) -> float:
    """No schedule ends jobs that are there from the beginning sooner: shares without gangs or restarts."""
    ideal_s = np.array([float(job.duration_s) for job in jobs])
    return max(float(ideal_s.max()), least_makespan(setting.demand(jobs), ideal_s).value)


def finish_time_fairness(setting: HadarSetting, jobs: Sequence[Job], records: Iterable[JobRecord]) -> Floats:
    """Of each job, its completion time over that on its own part of the cluster.

    Its part is 1 / n of each type, n the mean number of jobs present from its arrival to its end (Gavel and
    Themis define it so); there it would run at the mean speed of the types by their GPUs.
    """
    by_id = {record.job_id: record for record in records}
    spans = np.array([(by_id[job.job_id].submit_s, by_id[job.job_id].end_s) for job in jobs], dtype=float)
    begins, ends = spans[:, 0], spans[:, 1]
    overlaps = np.minimum(ends[:, None], ends) - np.maximum(begins[:, None], begins)
    taken = np.maximum(ends - begins, 1e-9)
    present = np.maximum(overlaps, 0.0).sum(axis=1) / taken
    demand = setting.demand(jobs)
    part = np.minimum(1.0, demand.capacity.sum() / (present * demand.gangs))
    alone_s = np.array([job.duration_s for job in jobs]) / (demand.fair_speeds * part)
    return np.asarray(taken / alone_s)


def run(setting: HadarSetting, spec: str, jobs: Sequence[Job]) -> HadarRun:
    """Simulate a policy."""
    found = simulate(spec, jobs, setting.topology, setting.profiles, split=setting.split)
    return HadarRun(found, finish_time_fairness(setting, jobs, found.records))


def gavel_table(
    setting: HadarSetting, specs: Sequence[str], workloads: Mapping[str, Sequence[Job]], bounds: bool = False
) -> str:
    """Markdown: a row for each policy, Gavel's among them, means over the workloads.

    With bounds, the last row says how far any policy could be ahead of Gavel's total duration.
    """
    found = run_all(specs, workloads, partial(run, setting))

    def gavel_over(figure: Callable[[Summary], float]) -> Cell[HadarRun]:
        gavel = [figure(each.run.summary) for each in found[GAVEL].values()]
        return lambda policy, runs: _times(gavel, [figure(each.run.summary) for each in runs.values()])

    columns: Sequence[tuple[str, Cell[HadarRun]]] = (
        ("total duration, h", mean_cell("{:.1f}", lambda each: each.run.summary.makespan_s / 3600)),
        ("Gavel's over it", gavel_over(lambda summary: summary.makespan_s)),
        ("mean JCT, h", mean_cell("{:.2f}", lambda each: each.run.jct_s / 3600)),
        ("Gavel's over it", gavel_over(lambda summary: summary.jct_s.mean)),
        ("waiting, h", mean_cell("{:.2f}", lambda each: each.run.summary.queue_s.mean / 3600)),
        ("finish-time fairness, mean", mean_cell("{:.2f}", lambda each: float(each.fairness.mean()))),
        ("worst", lambda policy, runs: f"{max(float(each.fairness.max()) for each in runs.values()):.1f}"),
        ("GPUs held", mean_cell("{:.0%}", lambda each: each.run.summary.utilization)),
        (
            "work per GPU held",
            mean_cell("{:.3f}", lambda each: each.run.summary.goodput / each.run.summary.utilization),
        ),
    )
    if not bounds:
        return policy_table(found, columns)
    bounds_s = [least_makespan_s(setting, jobs) for jobs in workloads.values()]
    gavel_s = [each.run.summary.makespan_s for each in found[GAVEL].values()]
    least = ["no schedule can have less than", f"{fmean(bounds_s) / 3600:.1f}", _times(gavel_s, bounds_s)]
    return policy_table(found, columns, [[*least, *[""] * (1 + len(columns) - len(least))]])


def _times(gavel: Sequence[float], ours: Sequence[float]) -> str:
    ratio = mean([one / other for one, other in zip(gavel, ours, strict=True)])
    return f"{ratio.value:.2f}" if ratio.half is None else f"{ratio.value:.2f} ±{ratio.half:.2f}"


def part_table(part: str, setting: HadarSetting, seeds: Sequence[int], jobs: int) -> str:
    """The table, or the tables, of one of `PARTS`."""

    def drawn(trace: str) -> dict[str, Sequence[Job]]:
        return {f"seed {seed}": tuple(generate(trace, seed)) for seed in seeds}

    match part:
        case "batch":
            return gavel_table(setting, BATCH, drawn(f"hadar:jobs={jobs}"), bounds=True)
        case "philly":
            trace = PHILLY.format(jobs=jobs)
            philly = {
                f"seed {seed}": tuple(assign_models(generate(trace, seed), PHILLY_MIX, seed))
                for seed in seeds
            }
            return gavel_table(setting, BATCH, philly, bounds=True)
        case "loads":
            return "\n\n".join(
                f"{name.capitalize()} load, a job each {gap_s:g} s:\n\n"
                + gavel_table(setting, LOADS, drawn(f"hadar:jobs={jobs // 2},gap_s={gap_s:g}"))
                for name, gap_s in GAPS.items()
            )
        case "prices":
            return gavel_table(setting, PRICES, drawn(f"hadar:jobs={jobs // 3}"))
        case _:
            wide = drawn(f"hadar:jobs={jobs // 3},gpus=1:25/4:25/8:25/16:25")
            return gavel_table(setting, (GAVEL, *HADARS), wide, bounds=True)


PARTS = ("batch", "philly", "loads", "prices", "wide")


@click.command(cls=StudyCommand)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--jobs", type=click.IntRange(6), default=480, show_default=True, help="Loads: half of it.")
@seeds_option
@write_option
def main(parts: Sequence[str], jobs: int, seeds: Sequence[int], page: Path | None) -> None:
    """Hadar beside Gavel: all at once, Philly's lengths, loads, prices, and wide gangs; by default all."""
    setting = read_setting()
    publish(((f"hadar-{part}", part_table(part, setting, seeds, jobs)) for part in parts or PARTS), page)


if __name__ == "__main__":
    main()
