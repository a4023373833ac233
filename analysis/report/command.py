"""`dally report`: runs side by side, as one HTML file."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from analysis.report.runs import load_runs
from analysis.report.verdict import compare_runs
from dally.atomic_file import write_atomically
from dally.commands.terminal import say
from dally.optional import import_optional

_REPORT = "report.html"

_EPILOG = """\b
Examples:
  dally report runs/demo                      all policies of a comparison
  dally report runs/site/slurm runs/site/dally -o slurm-or-dally.html
The first run is the one that the others are compared with.
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File to write.  [default: {_REPORT} in the first RUN]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summaries as JSON, too.")
def command(paths: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Compare runs, simulated or real, in one HTML file that needs no network.

    RUN is a run folder, or one with the runs of several policies in it. All must be of the same jobs.
    """
    runs = load_runs(paths)
    target = output or paths[0] / _REPORT
    page = import_optional("analysis.report.page", "analysis")
    verdict = compare_runs(runs)
    write_atomically(target, page.render(runs, verdict))
    if as_json:
        found = {
            run.name: {"folder": str(run.folder), "complete": run.facts["complete"], **asdict(run.summary)}
            for run in runs
        }
        click.echo(json.dumps({"report": str(target), "verdict": verdict.title, "runs": found}, indent=2))
        return
    say(verdict.title)
    say(f"report: {target} ({target.stat().st_size / 1e6:.1f} MB)")
