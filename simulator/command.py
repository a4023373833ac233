"""`dally simulate`: run a trace on a cluster under one or more policies, side by side."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dally.cluster import shipped_clusters
from dally.cluster.summary import left_out_line
from dally.commands.terminal import say
from dally.errors import InputError
from dally.interruption import INTERRUPTED, interruptible
from dally.jobs.knowledge import Knowledge
from dally.jobs.priority import DEFAULT_RATIO
from dally.policies.registry import PolicySpec, parse_policy
from dally.profiles.files import shipped_sets
from dally.profiles.gang_iteration import Split
from dally.profiles.goodput import Batching
from dally.traces import changes_text, format_names
from dally.words import plural
from simulator.comparison import as_data, progress_bars, table, table_console
from simulator.engine import MOST_FAILURES_WITHOUT_PROGRESS
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import Run, Scenario, folder_name, simulate

_MOMENTS_PER_UPDATE = 500

_EPILOG = f"""\b
Shipped clusters: {", ".join(shipped_clusters())}
Shipped profiles: {", ".join(shipped_sets())}

\b
Examples:
  dally simulate --trace dally-batch --cluster dally-256 --profiles dally \\
      --policy dally --policy tiresias --policy dally:timers=no-wait --out runs/batch
  dally simulate --trace jobs.csv.gz --cluster /etc/slurm --model-mix resnet50=0.6,bert-large=0.4 \\
      --profiles realistic --policy dally --policy slurm --out runs/site
`dally policies` lists the policies and their knobs, `dally trace --help` the generated workloads.
"""


@click.command(epilog=_EPILOG)
@click.option("--trace", required=True, help="Trace file, or a generated workload: NAME[:knob=value,...].")
@click.option("--cluster", required=True, help="Cluster file, folder of Slurm's files, or a shipped cluster.")
@click.option("--policy", "policies", multiple=True, required=True, help="NAME[:knob=value,...]; repeat it.")
@click.option(
    "--profiles", help="Folder of profiles, or a shipped set; without, no model is network-sensitive."
)
@click.option("--mixed-profiles", is_flag=True, help="Allow profiles of CPUs beside those of GPUs.")
@click.option("--model-mix", help="Models for jobs that name none, like resnet50=0.6,bert-large=0.4.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of generators, model mix and failures.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder to write; must not exist."
)
@click.option(
    "--congestion",
    type=float,
    default=1.0,
    help="Factor on the bandwidth of all links between machines and racks.",
)
@click.option("--contention", is_flag=True, help="Jobs that share links slow each other.")
@click.option(
    "--batch-split",
    type=click.Choice([split.value for split in Split]),
    default=Split.EVEN.value,
    show_default=True,
    help="How gangs over several GPU types split their batch: evenly, or in proportion to speed.",
)
@click.option(
    "--assumed-slowdown",
    type=float,
    default=1.0,
    help="Of gangs without a profile, for each level farther apart than need be. A controller assumes 1.25.",
)
@click.option(
    "--knowledge",
    type=click.Choice([each.value for each in Knowledge]),
    default=Knowledge.EXACT.value,
    show_default=True,
    help="Of running times, the same for all policies: true ones, limits of users, what ended, or none.",
)
@click.option(
    "--estimate-error",
    type=float,
    default=0.0,
    help="Of --knowledge exact: sigma of a log-normal error, drawn by the seed.",
)
@click.option(
    "--profile-error",
    type=float,
    default=0.0,
    help="Sigma of a log-normal error of the profiles that policies see, drawn by the seed; jobs run true.",
)
@click.option(
    "--hide-profiles",
    is_flag=True,
    help="Policies see no profiles and assume --assumed-slowdown; jobs run as the profiles say.",
)
@click.option(
    "--learn-costs",
    is_flag=True,
    help="Step times of running jobs correct what policies believe of costs, as a controller does.",
)
@click.option(
    "--priorities",
    help="Slurm's priorities: a TOML file of weights and shares, or `on`; without, no job has any.",
)
@click.option(
    "--priority-ratio",
    type=float,
    help=f"Jobs of this part of a job's priority may overtake it; 0: all may. [default: {DEFAULT_RATIO}]",
)
@click.option("--failures", type=click.Path(path_type=Path), help="CSV of machine,down_s,up_s.")
@click.option("--mtbf-h", type=float, help="Mean hours between failures of a machine, instead of a file.")
@click.option(
    "--repair-h", type=float, default=4.0, show_default=True, help="Hours to repair, with --mtbf-h."
)
@click.option(
    "--checkpoint-s", type=float, default=1800.0, show_default=True, help="Work between checkpoints."
)
@click.option("--restart-s", type=float, help="Cost of each restart, instead of what the profiles say.")
@click.option("--format", "trace_format", type=click.Choice(format_names()), help="Format of the trace file.")
@click.option("--from-s", "start_s", type=float, help="Keep jobs submitted at this second or later.")
@click.option("--to-s", "end_s", type=float, help="Keep jobs submitted before this second.")
@click.option(
    "--arrival-scale", type=float, default=1.0, help="Factor on submission times; 0.5 doubles the load."
)
@click.option(
    "--load",
    type=float,
    help="Scale submission times so that jobs ask for this share of the GPU time until the last of them.",
)
@click.option("--group", help="Keep jobs of this group (account, virtual cluster) of the trace.")
@click.option("--min-duration-s", type=float, default=0.0, help="Raise shorter durations to this.")
@click.option(
    "--skip-bad", is_flag=True, help="Leave out and count wrong rows and jobs larger than the cluster."
)
@click.option(
    "--record", is_flag=True, help="Write every decision to facts.jsonl, for `dally replay`; large."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summaries as JSON.")
def command(
    policies: tuple[str, ...],
    out: Path,
    seed: int,
    batch_split: str,
    knowledge: str,
    record: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate a workload on a cluster under one or more policies and compare them.

    Writes a run folder for each policy (jobs.csv, events.jsonl, run.json), and comparison.json.
    Interrupted, it keeps what it has, marked incomplete, and exits with 130; with 1 if jobs could not end.
    """
    if out.exists():
        raise InputError(f"--out {out} exists already; name a folder that does not")
    specs = [parse_policy(spec) for spec in dict.fromkeys(policies)]
    split, known = Split(batch_split), Knowledge(knowledge)
    scenario = load_scenario(Inputs(seed=seed, batch_split=split, knowledge=known, **options))
    refuse_unmodelled(specs, scenario.contention)
    with _finished_whole(out) as folder, interruptible() as stop:
        runs = _run_all(scenario, specs, folder, stop, record)
        (folder / "comparison.json").write_text(json.dumps(as_data(runs), indent=2) + "\n", encoding="utf-8")
        interrupted = stop()
    _report(runs, scenario, out, as_json)
    if interrupted or not all(run.complete for run in runs):
        sys.exit(INTERRUPTED if interrupted else 1)


def refuse_unmodelled(specs: Sequence[PolicySpec], contention: bool) -> None:
    """Refuse what no cost is known of: links shared by jobs whose batch varies.

    Raises:
        InputError: One of the policies lets batches vary, and jobs share links.
    """
    varying = [spec.policy.name for spec in specs if spec.policy.batching is not Batching.FIXED]
    if contention and varying:
        raise InputError(
            f"--contention knows no jobs whose batch varies, as under {', '.join(varying)}; leave one out"
        )


@contextmanager
def _finished_whole(out: Path) -> Iterator[Path]:
    """A folder that gets its name only once everything in it is written."""
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"cannot write --out {out}: {error.strerror}") from error
    try:
        yield partial
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _run_all(
    scenario: Scenario,
    specs: Sequence[PolicySpec],
    folder: Path,
    stop: Callable[[], bool],
    record: bool,
) -> list[Run]:
    runs: list[Run] = []
    with progress_bars() as progress:
        for spec in specs:
            task = progress.add_task(spec.spec, total=len(scenario.jobs))
            moments = 0

            def tell(now: float, ended: int, task: Any = task) -> None:
                nonlocal moments
                moments += 1
                if moments % _MOMENTS_PER_UPDATE == 0:
                    progress.update(task, completed=ended)

            runs.append(simulate(scenario, spec, folder / folder_name(spec.spec), stop, tell, record))
            progress.update(task, completed=len(scenario.jobs))
            if stop():
                break
    return runs


def _report(runs: Sequence[Run], scenario: Scenario, out: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(as_data(runs), indent=2))
    else:
        say(_headline(scenario, runs[0].predictions.modes))
        console = table_console()
        say("mean over jobs where nothing else is said; differences are from the first policy")
        console.print(table(runs, scenario.topology.levels, console.width, len(scenario.jobs)))
    if changes := changes_text(scenario.facts["trace"]["dropped"], scenario.facts["trace"]["clamped"]):
        say(f"trace: {changes}", err=True)
    if left_out := left_out_line(scenario.topology):
        say(f"cluster: {left_out}", err=True)
    if scenario.too_large:
        say(f"left out {plural(len(scenario.too_large), 'job')} that the cluster cannot hold", err=True)
    if unknown := sorted({model for run in runs for model in run.predictions.models_without_profile}):
        say(f"no profile, {_assumption(scenario.assumed_slowdown)}: {', '.join(unknown)}", err=True)
    for line in sorted({line for run in runs for line in run.predictions.stand_ins}):
        say(line, err=True)
    if planned := sorted({model for run in runs for model in run.predictions.models_by_plan}):
        say(f"costs by parallel plans: {', '.join(planned)}", err=True)
    for line in sorted({line for run in runs for line in run.predictions.plan_gaps}):
        say(f"a plan does not count, of model {line}", err=True)
    for run in runs:
        if not run.complete:
            say(f"{run.spec} is incomplete: {run.note}", err=True)
        elif failed := len(scenario.jobs) - run.summary.completed:
            say(
                f"no mean counts {plural(failed, 'job')} that failed under {run.spec}: machines failed "
                f"{MOST_FAILURES_WITHOUT_PROGRESS} times in a row before a checkpoint",
                err=True,
            )
    if not as_json:
        say(f"runs: {out}/   look at them: dally report {out}")


def _assumption(assumed_slowdown: float) -> str:
    """What is assumed of jobs without a profile, in words."""
    if assumed_slowdown == 1.0:
        return "taken as insensitive to the network"
    return f"taken as {assumed_slowdown:g} x slower with each level farther apart"


def _headline(scenario: Scenario, modes: Sequence[str]) -> str:
    """What was simulated, in a line."""
    topology, profiles = scenario.topology, scenario.facts["profiles"]
    assumed = scenario.assumed_slowdown
    measured = (
        f"profiles {profiles} ({', '.join(modes)})" if profiles else f"no profiles: {_assumption(assumed)}"
    )
    machines = f"{plural(topology.gpus, 'GPU')} in {plural(len(topology.machines), 'machine')}"
    knows = f"running times known: {scenario.knows}"
    return f"{plural(len(scenario.jobs), 'job')} on {topology.name}: {machines}; {measured}; {knows}"
