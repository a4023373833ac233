"""What step times of running jobs are worth where profiles are right, wrong or missing, as a table."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import fmean

import click

from analysis.studies.common import StudyCommand
from dally.atomic_file import write_atomically
from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.markdown import replace_section, table
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.runs.records import NoEvents
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from simulator.engine import Engine
from simulator.inputs import Inputs, load_scenario
from simulator.sweep.groups import ratio_of_means
from simulator.sweep.plan import SweepTask, read_plan

FILE = Path(__file__).with_suffix(".toml")
PAGE = Path("docs/results/learnt-costs.md")

HIDDEN = ", no profiles"
"""How the name of a setting ends that is another one but for its profiles, which nobody sees."""

SweepKey = tuple[str, str, str, bool, int]
"""Setting, policy, what is known of profiles, whether it learns, seed."""


class Starts(NoEvents):
    """Where jobs of several machines were started, each placement once."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, tuple[tuple[str, int], ...]], None] = {}

    def write(self, now: float, event: str, **said: object) -> None:
        """Note a start."""
        gpus = said.get("gpus")
        if event == "start" and isinstance(gpus, Mapping) and len(gpus) > 1:
            self.found[str(said["job"]), tuple(gpus.items())] = None


class Ran:
    """One run: its mean completion time, and how far from the truth slowdowns were believed at its end."""

    def __init__(self, policy: str, inputs: Inputs) -> None:
        scenario, spec = load_scenario(inputs), parse_policy(policy)
        true = CostModel(
            scenario.topology,
            scenario.profiles,
            batching=spec.policy.batching,
            assumed_slowdown=scenario.assumed_slowdown,
            averaging=spec.policy.averaging(spec.knobs),
        )
        state = ClusterState(scenario.topology, true.believed(scenario.knows), scenario.knows)
        starts = Starts()
        records = Engine(Scheduler(state, spec.build(state)), scenario.jobs, starts, costs=true).run().records
        self.jct_s = fmean(record.jct_s for record in records if record.jct_s is not None)
        jobs = {job.job_id: job for job in scenario.jobs}
        self.error = _error(state.costs, true, jobs, starts)


def _error(believed: CostModel, true: CostModel, jobs: Mapping[str, Job], starts: Starts) -> float:
    """By how much believed slowdowns of jobs on several machines are off, up or down, in the mean."""
    index = true.topology.machine_index
    off = []
    for job_id, gpus in starts.found:
        place: Allocation = tuple((index[name], count) for name, count in gpus)
        asked = jobs[job_id]
        ratio = believed.cost(asked, place).slowdown / true.cost(asked, place).slowdown
        off.append(abs(log(ratio)))
    return exp(fmean(off)) - 1 if off else 0.0


def knows(inputs: Inputs) -> str:
    """What schedulers know of profiles, in words."""
    if inputs.hide_profiles:
        return "no profiles"
    return f"wrong by {inputs.profile_error:g}" if inputs.profile_error else "right"


def rows(tasks: Sequence[SweepTask], ran: Mapping[SweepKey, Ran]) -> Iterator[Sequence[str]]:
    """A line for each setting, policy and kind of profiles: mean JCTs, and how wrong beliefs are."""
    groups: dict[tuple[str, str, str], list[SweepTask]] = defaultdict(list)
    for task in tasks:
        groups[key_of(task)[:3]].append(task)
    for (setting, policy, kind), members in groups.items():
        cells = [setting, f"`{policy}`", kind]
        own = {learns: [t for t in members if t.inputs.learn_costs is learns] for learns in (False, True)}
        for some in own.values():
            pairs = [(ran[key_of(t)].jct_s, ran[right(t)].jct_s) for t in some]
            found = ratio_of_means(pairs)
            half = "" if not found.half else f" ±{100 * found.half:.1f}"
            cells.append(f"{100 * (found.value - 1):+.1f}{half} %")
        for some in own.values():
            cells.append(f"{fmean(ran[key_of(t)].error for t in some):.0%}")
        yield cells


def key_of(task: SweepTask) -> SweepKey:
    """What tells runs apart."""
    setting = task.setting.removesuffix(HIDDEN)
    return setting, task.policy, knows(task.inputs), task.inputs.learn_costs, task.inputs.seed


def right(task: SweepTask) -> SweepKey:
    """The same run with right profiles and nothing learnt."""
    inputs = replace(task.inputs, hide_profiles=False, profile_error=0.0, learn_costs=False)
    return key_of(replace(task, inputs=inputs))


@click.command(cls=StudyCommand)
@click.argument("file", type=click.Path(path_type=Path), default=FILE)
@click.option("--page", type=click.Path(path_type=Path), default=PAGE, help="Whose table is written.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Runs at a time.")
def main(file: Path, page: Path, workers: int) -> None:
    """Run the study in FILE and write the table of its page."""
    text = page.read_text(encoding="utf-8")
    tasks = read_plan(file).tasks
    with ProcessPoolExecutor(workers) as pool:
        found = pool.map(Ran, [task.policy for task in tasks], [task.inputs for task in tasks])
        ran = {}
        for task, run in zip(tasks, found, strict=True):
            ran[key_of(task)] = run
            click.echo(f"{len(ran)} of {len(tasks)}: {task}, {knows(task.inputs)}", err=True)
    heads = ("setting", "policy", "profiles", "mean JCT", "learning", "slowdowns are off by", "learning")
    write_atomically(page, replace_section(text, "learnt-costs", table(heads, rows(tasks, ran))))
    click.echo(f"written: {page}")


if __name__ == "__main__":
    main()
