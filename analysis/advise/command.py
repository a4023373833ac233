"""`dally advise`: from a site's own history, what would have changed under Dally."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from analysis.advise import sentences
from analysis.advise.advice import Advice, PolicyComparison, advise, plan_simulations
from analysis.advise.history import read_history
from analysis.advise.naming import NamingRules, anonymise, check_models, read_rules
from analysis.advise.segments import SCHEDULERS, advised, concerned, gpu_s
from analysis.advise.sentences import summary_lines
from analysis.advise.simulated import SimulationTask, processes_here, runner
from analysis.advise.site import Site, cases, without_too_large
from dally.atomic_file import write_atomically
from dally.bounds import check_number
from dally.cluster import load_cluster
from dally.cluster.summary import left_out_line
from dally.commands.terminal import say
from dally.errors import InputError
from dally.jobs.knowledge import Knowledge, Known
from dally.optional import import_optional
from dally.policies.registry import parse_policy
from dally.profiles.files import load_profiles
from dally.traces import changes_text
from dally.words import plural
from simulator.priorities import load_priorities


def as_data(advice: Advice) -> dict[str, object]:
    """The numbers and sentences of advice, for JSON."""
    found = advice.calibration
    return {
        "calibration": None
        if found is None
        else {
            "policy": found.policy,
            "jobs": len(found.wait_s),
            "real_wait_s": float(found.real_wait_s.mean()),
            "wait_s": float(found.wait_s.mean()),
            "start_error_s": found.error_s,
            "mean_completion_error": found.mean_error,
            "completions_met": found.close,
            "unexplained": found.unexplained,
            "tried": [asdict(each) for each in found.tried],
        },
        "jobs": {
            "simulated": len(advice.site.history.jobs),
            "earlier": advice.site.history.workload.earlier,
            "too_large": advice.site.history.too_large,
        },
        "knowledge": str(advice.site.knows),
        "title": sentences.title(advice),
        "lines": [*sentences.calibration_lines(advice), *sentences.finding_lines(advice)],
        "today": advice.today,
        "concluded": advice.concluded is not None,
        **(_compared(advice.site, advice.concluded) if advice.concluded else {}),
    }


def _compared(site: Site, found: PolicyComparison) -> dict[str, object]:
    """What Dally changes, as part of `as_data`."""
    return {
        "start_with": found.chosen.policy,
        "settings": {
            setting.policy: {"jct_s": float(outcome.jct_s.mean()), "wait_s": float(outcome.wait_s.mean())}
            for setting, outcome in found.settings
        },
        "effects": {
            "all": asdict(found.effects.whole),
            **{
                kind: [asdict(each) for each in getattr(found.effects, kind)]
                for kind in ("sizes", "groups", "users", "losers")
            },
        },
        "priority_ratios": {
            f"{each.ratio:g}": {
                "jct_s": float(each.outcome.jct_s.mean()),
                "wait_s": float(each.outcome.wait_s.mean()),
                "losers": [asdict(loser) for loser in each.effects.losers],
                "share_moved": each.moved and {"name": each.moved.name, **asdict(each.moved)},
            }
            for each in found.ratios
        },
        "segments": _ruled(site, found) if found.rules else None,
    }


def _ruled(site: Site, found: PolicyComparison) -> dict[str, object]:
    """What each rule that sets segments does, as part of `as_data`."""
    wide = concerned(site)
    return {
        scheduler: {
            "rule": str(advised(found.rules, scheduler)),
            "tried": {
                str(each.rule): {
                    "jct_s": float(each.under(scheduler).jct_s.mean()),
                    "several_machines_jct_s": float(each.under(scheduler).jct_s[wide].mean()),
                    "gpu_h": gpu_s(site, each.under(scheduler)) / 3600,
                }
                for each in found.rules
            },
        }
        for scheduler in SCHEDULERS
    }


_EPILOG = """\b
The history, on the site:
  TZ=UTC sacct -a -X -P -S 2024-01-01 -E now -o JobIDRaw,User,Account,Submit,Eligible,Start,End,\\
ElapsedRaw,State,AllocTRES,ReqTRES,TimelimitRaw,NodeList,Partition,JobName > jobs.sacct

\b
Examples:
  dally advise jobs.sacct --anonymise jobs.anonymous
  dally advise jobs.sacct --cluster /etc/slurm --profiles realistic --models models.toml
"""


@click.command(epilog=_EPILOG)
@click.argument("history", type=click.Path(path_type=Path))
@click.option("--cluster", help="Cluster file, folder of Slurm's files, or a shipped cluster.")
@click.option(
    "--profiles", help="Folder of profiles, or a shipped set; without, no model is network-sensitive."
)
@click.option("--mixed-profiles", is_flag=True, help="Allow profiles of CPUs beside those of GPUs.")
@click.option("--models", "rules", type=click.Path(path_type=Path), help="TOML file: job name to model.")
@click.option(
    "--model-mix",
    "mix",
    help="Models of all other jobs, like resnet50=0.6,bert-large=0.4, or all: every model with a profile, "
    "alike. Without, they are unknown, and distance costs them nothing.",
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Draws of that mix.")
@click.option("--today", help="Policy that stands for today's scheduler, instead of the closest of three.")
@click.option("--policy", help="The only setting of Dally to try, instead of several.")
@click.option(
    "--knowledge",
    type=click.Choice([each.value for each in Knowledge]),
    help="Of running times, the same for all, today's scheduler too: true ones, limits of users, what ended, "
    "or none.  [default: limits if most jobs have one, else history]",
)
@click.option(
    "--priorities",
    help="Slurm's priorities there: a TOML file of weights and shares, or `on`; without, no job has any.",
)
@click.option(
    "--segments",
    is_flag=True,
    help="Compare rules that set Slurm's --segment by the size of a job, under both schedulers.",
)
@click.option("--from-s", "start_s", type=float, help="Keep jobs submitted at this second or later.")
@click.option("--to-s", "end_s", type=float, help="Keep jobs submitted before this second.")
@click.option(
    "--most-jobs",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="Of these, simulate no more than the last so many.",
)
@click.option(
    "--arrival-scale", type=float, default=1.0, help="Factor on submission times; 0.5 doubles the load."
)
@click.option(
    "--min-duration-s", type=float, default=1.0, show_default=True, help="Raise shorter durations to this."
)
@click.option(
    "--skip-bad", is_flag=True, help="Leave out and count wrong rows and jobs larger than the cluster."
)
@click.option("--processes", type=click.IntRange(1), help="Simulations at a time.  [default: one a core]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("advice.html"),
    show_default=True,
    help="File to write.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the advice as JSON, too.")
@click.option(
    "--anonymise",
    "anonymous",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Only write the history here, without the names of users, accounts and jobs.",
)
def command(
    history: Path,
    cluster: str | None,
    profiles: str | None,
    mixed_profiles: bool,
    rules: Path | None,
    anonymous: Path | None,
    knowledge: str | None,
    priorities: str | None,
    **options: Any,
) -> None:
    """Tell what would have changed under Dally, for whom, and how sure that is.

    HISTORY is what sacct wrote, or any other trace. Writes one HTML page that needs no network.
    """
    named = read_rules(rules) if rules else NamingRules()
    known = load_profiles(profiles, mixed_profiles) if profiles else None
    if known is not None and rules is not None:
        check_models(named, known.models, rules)
    if anonymous is not None:
        models = known.models if known else ()
        jobs, bad = anonymise(history, anonymous, named, models, options["skip_bad"])
        say(f"{plural(jobs, 'job')} without names: {anonymous}")
        if bad:
            say(f"left out {plural(bad, 'row')} that sacct does not write", err=True)
        return
    if cluster is None:
        raise click.UsageError("--cluster is missing; only --anonymise needs none")
    if profiles is None and (rules is not None or options["mix"] is not None):
        raise click.UsageError(
            "--models and --model-mix need --profiles, which say what distance costs a model"
        )
    topology = load_cluster(cluster)
    spans = {name: options.pop(name) for name in ("start_s", "end_s", "min_duration_s", "most_jobs")}
    with _status(f"reading {history}"):
        read = read_history(history, skip_bad=options["skip_bad"], **spans)
    kept = without_too_large(read, topology, options["skip_bad"])
    knows = Known(Knowledge(knowledge) if knowledge else kept.knowledge)
    weights = load_priorities(priorities) if priorities else None
    _advise(Site(topology, known, kept, named, knows, options["arrival_scale"], weights), **options)


def _advise(
    site: Site,
    *,
    mix: str | None,
    seeds: int,
    today: str | None,
    policy: str | None,
    segments: bool,
    processes: int | None,
    output: Path,
    as_json: bool,
    **_: Any,
) -> None:
    """Simulate, write the page and print the summary."""
    check_number("arrival_scale", site.arrival_scale)
    if not output.parent.is_dir():
        raise InputError(f"cannot write {output}: there is no folder {output.parent}")
    for spec in filter(None, (today, policy)):
        parse_policy(spec)
    todo = plan_simulations(site, today, policy, cases(site, mix, seeds), segments)
    # Found missing before anything is simulated.
    render: Callable[[Advice], str] = import_optional("analysis.advise.page", "analysis").render
    with _progress(todo.simulations) as tell, runner(site, processes or processes_here(), tell) as simulate:
        advice = advise(site, todo, simulate)
    write_atomically(output, render(advice))
    if as_json:
        click.echo(json.dumps({"page": str(output), **as_data(advice)}, indent=2))
        return
    workload = site.history.workload
    for line in summary_lines(advice):
        say(line)
    say(f"page: {output} ({output.stat().st_size / 1e6:.1f} MB)")
    if left_out := left_out_line(site.topology):
        say(f"cluster: {left_out}", err=True)
    if changes := changes_text(workload.dropped, workload.clamped):
        say(f"history: {changes}", err=True)
    for line in site.stand_ins():
        say(line, err=True)
    if site.history.too_large:
        say(f"left out {plural(site.history.too_large, 'job')} that the cluster cannot hold", err=True)


def _status(doing: str) -> AbstractContextManager[object]:
    """Say on a terminal what takes a while."""
    console = Console(stderr=True)
    return console.status(doing) if console.is_terminal else nullcontext()


@contextmanager
def _progress(simulations: int) -> Iterator[Callable[[SimulationTask], None]]:
    """Show a bar on a terminal; give the function to call with each simulation that has ended."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        shown = progress.add_task("simulations", total=simulations)
        yield lambda task: progress.update(shown, advance=1, description=task.policy)
