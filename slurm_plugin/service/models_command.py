"""`dally models`: the models of which a site has profiles, with what was measured."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dally.errors import InputError
from dally.profiles.files import load_profiles, shipped_sets
from dally.profiles.listing import ModelEntry, model_entries
from dally.profiles.parallel.gpu_specs import GPUS
from dally.profiles.parallel.transformer import MODELS, is_transformer
from dally.profiles.schema import TIERS
from dally.words import clean, plural, share
from slurm_plugin.config import config_path, load_config
from slurm_plugin.service.cli import aligned, ask, config_option, json_option, understood
from slurm_plugin.service.why_command import factor_words

_HEADS = (
    "MODEL",
    "GPU TYPE",
    "MODE",
    "PLAN",
    "PRECISION",
    "BATCH",
    *(tier.upper() for tier in TIERS),
    "ERROR",
    "MEASURED",
)


@click.command(
    epilog="\b\nExamples:\n  dally models\n  dally models resnet50 --json\n  dally models --profiles gavel"
)
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.option("--profiles", help="A folder of profiles, a file, or a shipped set, in place of the site's.")
@click.option(
    "--learnt", is_flag=True, help="What the step times of running jobs have taught the controller."
)
@config_option
@json_option
def command(
    names: tuple[str, ...], profiles: str | None, learnt: bool, config: Path | None, as_json: bool
) -> None:
    """List the models that have a profile, or those named: what `--model` of dally-sbatch may say.

    PLAN is how a recorded job was split over its GPUs, BATCH that of one GPU. A tier shows
    the shapes measured there, machines x GPUs on each, and the largest slowdown among them. ERROR is the mean
    error on what was held out.

    With --learnt, by what factor computing and waiting for the network differ from what was predicted, as the
    controller believes, how sure it is, and from how many runs of how many jobs.
    """
    if learnt:
        if profiles:
            raise InputError("--learnt asks the controller, which has its own profiles; leave --profiles out")
        said = ask(config, "/status")
        with understood():
            shown = _learnt(said.get("learnt_costs", []), names, as_json)
        click.echo(shown)
        return
    if not profiles:
        elsewhere = f"a shipped set shows with --profiles: {', '.join(shipped_sets())}"
        try:
            profiles = load_config(config).profiles
        except InputError as error:
            raise InputError(f"{error}; {elsewhere}") from error
        if not profiles:
            raise InputError(
                f"{config_path(config)} names no profiles, so Dally knows no model here; measure yours with "
                f"profile-models, and name their folder there as `profiles`; {elsewhere}"
            )
    chosen = load_profiles(profiles)
    entries = [entry for entry in model_entries(chosen.profiles) if not names or entry.model in names]
    if unknown := sorted(set(names) - {entry.model for entry in entries}):
        enough = "; with --parallel, jobs that train it need none" if is_transformer(unknown[0]) else ""
        raise InputError(
            f"no profile of model {unknown[0]} in {chosen.name}; there are {', '.join(chosen.models)}{enough}"
        )
    if as_json:
        click.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    lines = aligned([_HEADS, *map(_cells, entries)])
    click.echo(next(lines))
    for line, entry in zip(lines, entries, strict=True):
        click.echo(line)
        for flag in entry.flags:
            click.echo(clean(f"    {flag}").rstrip())
    if not names:
        click.echo(
            f"jobs with --parallel need no profile: {', '.join(MODELS)}; on {', '.join(GPUS)}", err=True
        )


def _learnt(beliefs: Sequence[Mapping[str, Any]], names: Sequence[str], as_json: bool) -> str:
    """What step times have taught, a line for each model, GPU type and user."""
    # Of jobs that go by a plan, it stands behind the model's name.
    chosen = [each for each in beliefs if not names or each["model"].split(" ")[0] in names]
    if as_json:
        return json.dumps(chosen, indent=2)
    if not chosen:
        return "no job has told its step times yet (docs/learnt-costs.md)"
    levels = [*chosen[0]["waiting"]]
    rows = [("MODEL", "ON", "OF", "COMPUTES", *(f"WAITS: {level.upper()}" for level in levels), "FROM")]
    for each in sorted(chosen, key=lambda each: (each["model"], each["gpu_type"], each["user"] or "")):
        waits = (factor_words(of["factor"], of["sigma"]) for of in each["waiting"].values())
        pace = factor_words(each["pace"], each["pace_sigma"]) if each["predicted"] else "-"
        rests = f"{plural(each['runs'], 'run')} of {plural(each['jobs'], 'job')}"
        whose = each["user"] or "all"
        rows.append((each["model"], each["gpu_type"] or "any", whose, pace, *waits, rests))
    return "\n".join(aligned(rows))


def _cells(entry: ModelEntry) -> tuple[str, ...]:
    tiers = {}
    for tier in entry.tiers:
        shapes, slowdown = tier.shapes, "" if tier.slowdown is None else f" {tier.slowdown:.2f}"
        few = ",".join(shapes) if len(shapes) <= 3 else f"{shapes[0]}..{shapes[-1]}"
        tiers[tier.tier] = f"{few}{slowdown}" if shapes else "-"
    return (
        entry.model,
        entry.gpu_type or "any",
        entry.mode,
        entry.plan or "-",
        entry.precision or "-",
        "-" if entry.local_batch is None else str(entry.local_batch),
        *(tiers.get(tier, "-") for tier in TIERS),
        "-" if entry.held_out_error is None else share(entry.held_out_error, 1),
        entry.measured[:10],
    )
