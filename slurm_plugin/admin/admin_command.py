"""`dally slurm`: how an administrator installs Dally, sees whether all is well, and leaves again."""

import json
import os
import shutil
import signal
import sys
from contextlib import closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import click
from rich.text import Text

from dally.commands.terminal import TextConsole
from dally.errors import InputError
from slurm_plugin.admin.checks.gather import SLURM_CONF, gather, own_file
from slurm_plugin.admin.checks.site import Finding, Level
from slurm_plugin.admin.doctor import CHECKS, examine
from slurm_plugin.admin.install import UNIT_DIR, InstallTarget, install, plan_install
from slurm_plugin.admin.installed import plan_uninstall, uninstall
from slurm_plugin.admin.trial import try_orders
from slurm_plugin.config import config_path, load_config
from slurm_plugin.service.cli import config_option, json_option
from slurm_plugin.submit.hints import MODES, Mode

_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}


@click.group
def command() -> None:
    """Install Dally on a Slurm cluster, check it, or remove it."""


@command.command("doctor")
@config_option
@json_option
def doctor_command(config: Path | None, as_json: bool) -> None:
    """Look for what is missing or wrong, try what the controller orders, and say what to do.

    Run it as the user that the controller runs as, or as root. The orders are tried on one job of that user,
    dally-doctor, which gets no GPU and is cancelled. The exit code is 1 if there is a problem.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the job is cancelled then, too
    site = gather(config)
    checked = examine(site)
    findings: list[tuple[str, Finding]] = []
    console = TextConsole(highlight=False, soft_wrap=True, quiet=as_json)
    with closing(try_orders(site)) as tried:
        for name, finding in chain(checked.items(), tried):
            findings.append((name, finding))
            level = (f"{finding.level:8}", _COLOURS[finding.level])
            console.print(Text.assemble(level, f"{name}: {finding.found}"))
            if finding.advice:
                console.print(Text(f"        -> {finding.advice}"))
    if left_out := len(CHECKS) - len(checked):
        console.print(Text(f"{left_out} checks left out: they need what is missing above"))
    if as_json:
        listed = [{"name": name, **asdict(finding)} for name, finding in findings]
        click.echo(json.dumps(listed, indent=2))
    if any(finding.level is Level.PROBLEM for _, finding in findings):
        sys.exit(1)


@command.command("install")
@config_option
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="hold",
    show_default=True,
    help="hold: the controller decides. hint: job_submit.lua alone gives Slurm hints, no controller.",
)
@click.option(
    "--slurm-conf",
    type=click.Path(path_type=Path),
    help="slurm.conf, or its folder; $SLURM_CONF's by default.",
)
@click.option(
    "--units",
    type=click.Path(path_type=Path),
    default=UNIT_DIR,
    show_default=True,
    help="Folder of systemd's units.",
)
@click.option("--user", help="User that the controller runs as; that of dally.toml by default, else dally.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def install_command(
    config: Path | None, mode: Mode, slurm_conf: Path | None, units: Path, user: str | None, dry_run: bool
) -> None:
    """Write configuration, job_submit.lua and systemd units; slurm.conf is never edited.

    Run it again after changing the configuration. Files that are not Dally's, or that were changed, are never
    written over.
    """
    conf_dir = slurm_conf or Path(os.environ.get("SLURM_CONF") or SLURM_CONF).parent
    if conf_dir.name == "slurm.conf":
        conf_dir = conf_dir.parent
    path = config_path(config).absolute()
    user = user or (load_config(path).user if path.exists() else "dally")
    target = InstallTarget(path, conf_dir.absolute(), units.absolute(), _dally(), user, mode)
    if sys.prefix == sys.base_prefix:
        click.echo(
            "note: give Dally a venv of its own; its packages may hide others: docs/install.md", err=True
        )
    plan = plan_install(target)
    for verb, paths in (("make  ", plan.folders), ("write ", plan.files), ("as is ", plan.kept)):
        for path in paths:
            click.echo(f"{verb} {path}")
    if dry_run:
        click.echo("nothing was changed (--dry-run)")
        return
    install(plan)
    click.echo("left to you:")
    for number, step in enumerate(plan.next_steps, start=1):
        click.echo(f"  {number}. {step}")


def _dally() -> Path:
    """The `dally` command: the one that runs now, else the one on PATH."""
    running = Path(sys.argv[0])
    found = str(running) if running.name == "dally" and running.is_file() else shutil.which("dally")
    if found is None:
        raise InputError("the dally command is not on PATH; the systemd units need its place")
    return Path(found).absolute()


@command.command(
    "dashboard",
    epilog="""\b
Example:
  dally slurm dashboard > dally.json        then, in Grafana: Dashboards, New, Import""",
)
def dashboard_command() -> None:
    """Print a Grafana dashboard of the controller.

    It is imported as it is, and needs a Prometheus data source that reads the controller's page /metrics.
    """
    click.echo(own_file("grafana.json"), nl=False)


@command.command("uninstall")
@config_option
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def uninstall_command(config: Path | None, dry_run: bool) -> None:
    """Remove what `install` wrote and nobody changed.

    Before: take lua out of JobSubmitPlugins and restart slurmctld, stop the controller and the timer, and
    `dally release-all`.
    """
    removal = plan_uninstall(config_path(config).absolute())
    for file in removal.files:
        click.echo(f"remove {file}")
    for file, reason in removal.left.items():
        click.echo(f"leave  {file}: {reason}")
    if dry_run:
        click.echo("nothing was changed (--dry-run)")
        return
    for folder in uninstall(removal):
        click.echo(f"leave  {folder}: not empty")
