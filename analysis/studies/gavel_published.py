"""Gavel's published simulations, run again: mean completion times beside those of its authors' simulator."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from analysis.studies.common import StudyCommand, knowledge_line, known_option, on_one_switch
from dally.cluster.topology import Link, Machine, Topology
from dally.errors import DallyError
from dally.jobs.job import Job
from dally.jobs.knowledge import EXACTLY, Known
from dally.markdown import table
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from dally.profiles.imports.gavel import (
    GPU_TYPES,
    Table,
    TableEntry,
    gavel_profile,
    list_entries,
    read_tables,
)
from dally.profiles.schema import Restart
from dally.runs.records import NoEvents
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from simulator.engine import Engine

GPUS = 36
"""GPUs of each type. The authors' simulator knows no placement: every gang is as fast as on one server."""

WINDOW = range(4000, 5001)
"""Jobs whose completion times count: those numbered 4000 to 5000, as the authors' notebook reads the logs."""

KNEW = "The authors' simulator knows how many steps each job takes, which `ftf` goes by and `las` does not."

_FAMILIES = (
    ("ResNet-18 (batch size {})", (16, 32, 64, 128, 256), True),
    ("ResNet-50 (batch size {})", (16, 32, 64, 128), True),
    ("Transformer (batch size {})", (16, 32, 64, 128, 256), True),
    ("LM (batch size {})", (5, 10, 20, 40, 80), True),
    ("Recommendation (batch size {})", (512, 1024, 2048, 4096, 8192), False),
    ("A3C", (0,), False),
    ("CycleGAN", (0,), False),
)
CONFIGURATIONS = tuple((name.format(batch), gangs) for name, batches, gangs in _FAMILIES for batch in batches)
"""What a job may train, in the order in which the generator numbers it, and whether on several GPUs."""

PUBLISHED: Mapping[str, Mapping[float, float]] = {
    "las:aware=yes": {
        0.2: 17.29, 0.4: 17.31, 0.6: 17.33, 0.8: 17.27, 1.0: 17.22, 1.2: 17.09, 1.4: 17.02, 1.6: 17.19,
        1.8: 17.76, 2.0: 18.69, 2.2: 20.53, 2.4: 26.27, 2.6: 32.52, 2.8: 45.97,
    },
    "las:aware=no": {
        0.2: 23.91, 0.4: 23.86, 0.6: 23.89, 0.8: 24.02, 1.0: 24.14, 1.2: 24.08, 1.4: 24.13, 1.6: 24.25,
        1.8: 24.56, 2.0: 25.22, 2.2: 26.34, 2.4: 36.70, 2.6: 72.43, 2.8: 198.84,
    },
    "ftf:aware=yes": {
        0.2: 17.29, 0.4: 17.31, 0.6: 17.33, 0.8: 17.26, 1.0: 17.21, 1.2: 17.14, 1.4: 17.10, 1.6: 17.24,
        1.8: 17.71, 2.0: 18.63, 2.2: 20.20, 2.4: 22.97, 2.6: 28.65, 2.8: 37.05, 3.0: 47.87,
    },
    "ftf:aware=no": {
        0.2: 23.91, 0.4: 23.87, 0.6: 23.90, 0.8: 24.01, 1.0: 24.17, 1.2: 24.10, 1.4: 24.13, 1.6: 24.26,
        1.8: 25.46, 2.4: 38.15, 2.6: 62.09,
    },
}  # fmt: skip
"""Mean completion time, hours, by policy and jobs an hour: seeds 0 to 2, jobs of 1 to 8 GPUs on 36 + 36 + 36.

Printed in stanford-futuredata/gavel 2d8e0764, scheduler/notebooks/figures/evaluation/
continuous_jobs_multigpu.ipynb; the commands behind it are those of Figures 9 and 10 in EXPERIMENTS.md.
"""


class Ends(NoEvents):
    """A log that keeps nothing but when the jobs of the window ended, seconds by number."""

    def __init__(self) -> None:
        super().__init__()
        self.ends_s: dict[int, float] = {}

    def write(self, now: float, event: str, **said: Any) -> None:
        """Keep when a job of the window ends."""
        if event == "end" and int(said["job"]) in WINDOW:
            self.ends_s[int(said["job"])] = now

    def complete(self) -> bool:
        """Whether all of them have ended."""
        return len(self.ends_s) == len(WINDOW)


@dataclass(frozen=True)
class GavelSetting:
    """What Gavel's table makes of its cluster: profiles of all configurations, without restarts."""

    topology: Topology
    profiles: ProfileSet
    tables: Mapping[str, Table]


def read_setting(path: Path) -> GavelSetting:
    """The setting from Gavel's `simulation_throughputs.json`.

    Raises:
        InputError: It cannot be read.
    """
    tables = read_tables(path)
    profiles = [
        replace(gavel_profile(TableEntry(name, name, None), gpu_type, tables), restart=Restart(0.0, 0.0))
        for name in (entry.name for entry in list_entries(tables))
        for gpu_type in GPU_TYPES
    ]
    link = Link(1e12)
    topology = on_one_switch("gavel-108", [Machine(name, GPUS, name, link) for name in GPU_TYPES], link)
    return GavelSetting(topology, ProfileSet("gavel", tuple(profiles)), tables)


def draw_jobs(setting: GavelSetting, seed: int, per_hour: float, stretch: float = 1.0) -> Iterator[Job]:
    """The jobs of a published run, without end: the same streams, drawn from in the same order.

    Args:
        setting: Tables of the speeds.
        seed: Of the streams.
        per_hour: Arrivals an hour.
        stretch: Every job is so many times as long.
    """
    kinds, gaps = random.Random(seed + 2), random.Random(seed + 3)
    number, submit_s = 0, 0.0
    while True:
        draw = kinds.uniform(0, 1)
        gpus = 8 if draw >= 0.95 else 4 if draw >= 0.8 else 2 if draw >= 0.7 else 1
        decades = (3, 4) if kinds.random() >= 0.8 else (1.5, 3)
        length_s = stretch * 60 * 10 ** kinds.uniform(*decades)
        entry, gangs = kinds.choice(CONFIGURATIONS)
        while gpus > 1 and not gangs:
            entry, gangs = kinds.choice(CONFIGURATIONS)
        speeds = {name: setting.tables[name].get((entry, gpus), 0.0) for name in GPU_TYPES}
        ideal_s = length_s * speeds["v100"] / max(speeds.values())
        yield Job(f"{number:06d}", submit_s, gpus, ideal_s, model=entry)
        submit_s -= log(1.0 - gaps.random()) * 3600 / per_hour
        number += 1


def mean_jct_h(
    setting: GavelSetting,
    policy: str,
    seed: int,
    per_hour: float,
    first: int = 0,
    known: Known = EXACTLY,
    stretch: float = 1.0,
) -> float:
    """Mean completion time of the window's jobs, hours, in a run that begins with job number `first`.

    Raises:
        DallyError: The policy gets nothing done before they have ended.
    """
    arriving, again = (draw_jobs(setting, seed, per_hour, stretch) for _ in range(2))
    submits_s = [job.submit_s for job in islice(again, WINDOW.stop)]
    ends = Ends()
    state = ClusterState(setting.topology, CostModel(setting.topology, setting.profiles), known)
    scheduler = Scheduler(state, parse_policy(policy).build(state))
    ended = Engine(scheduler, islice(arriving, first, None), ends, stop=ends.complete).run()
    if not ends.complete():
        raise DallyError(f"{policy}: {ended.note}")
    return fmean(end_s - submits_s[number] for number, end_s in ends.ends_s.items()) / 3600


@click.command(cls=StudyCommand)
@click.argument("throughputs", type=click.Path(path_type=Path))
@click.option("--policy", "policies", multiple=True, default=["las:aware=yes", "las:aware=no"])
@click.option("--rate", "rates", type=float, multiple=True, default=[0.8, 1.6, 2.4], help="Jobs an hour.")
@click.option("--seed", "seeds", type=int, multiple=True, default=[0, 1, 2], show_default=True)
@known_option
@click.option("--first", type=int, default=0, help="Begin with this job; the authors' runs begin with 0.")
@click.option("--stretch", type=click.FloatRange(0, min_open=True), default=1.0, help="Times jobs' lengths.")
def main(
    throughputs: Path,
    policies: tuple[str, ...],
    rates: tuple[float, ...],
    seeds: tuple[int, ...],
    known: Known,
    first: int,
    stretch: float,
) -> None:
    """Print mean completion times, hours: ours by seed, their mean, and what was published."""
    setting, rows = read_setting(throughputs), []
    for policy in policies:
        objective, _, aware = policy.partition(":")
        spec = f"gavel:objective={objective},{aware}"
        for rate in rates:
            by_seed = [mean_jct_h(setting, spec, seed, rate, first, known, stretch) for seed in seeds]
            ours, published = fmean(by_seed), PUBLISHED[policy].get(rate)
            beside = ("", "") if published is None else (f"{published:.2f}", f"{ours / published:.2f}")
            each_h = " ".join(f"{each:.2f}" for each in by_seed)
            rows.append([f"`{spec}`", f"{rate:g}", each_h, f"{ours:.2f}", *beside])
            click.echo(" ".join(rows[-1]), err=True)
    click.echo(knowledge_line(known, KNEW) + "\n")
    click.echo(table(["policy", "jobs/h", "ours by seed, h", "ours, h", "published, h", "ratio"], rows))


if __name__ == "__main__":
    main()
