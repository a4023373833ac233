"""Gathers the facts about a site: asks Slurm, and reads the files of this machine."""

import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from itertools import product
from pathlib import Path

from dally.cluster import load_cluster
from dally.cluster.slurm_conf import configured_gres, read_lines
from dally.cluster.slurm_topology import read_network
from dally.errors import InputError
from dally.profiles.files import load_profiles
from slurm_plugin.admin.checks.site import Row, SiteFacts, StateFolder, TopologyFile
from slurm_plugin.client.command_line import run_program
from slurm_plugin.client.slurm import SlurmUnavailableError
from slurm_plugin.config import config_path, load_config
from slurm_plugin.submit.sbatch import ask_controller

COMMANDS = ("sbatch", "squeue", "sinfo", "scontrol")
"""Slurm's commands that Dally runs."""

SLURM_CONF = Path("/etc/slurm/slurm.conf")

_TIMEOUT_S = 15.0
_KEY = re.compile(r"(?:^|\s)([A-Za-z][\w:/]*(?:\[\d+\])?)=")
_TIME = "%Y-%m-%dT%H:%M:%S"


def gather(path: Path | None = None) -> SiteFacts:
    """Everything that the checks judge; what cannot be read is told in the site, never raised."""
    path = config_path(path)
    site = SiteFacts(path, commands={name: shutil.which(name) for name in COMMANDS}, uid=os.geteuid())
    try:
        site = replace(site, config=load_config(path))
    except InputError as error:
        site = replace(site, config_error=str(error))
    try:
        site = replace(site, user=pwd.getpwuid(site.uid).pw_name)
    except KeyError:
        site = replace(site, user=str(site.uid))
    site = _with_files(_with_slurm(site))
    return site if site.config is None else _with_own(site)


def ask(argv: Sequence[str]) -> str:
    """What one of Slurm's commands prints.

    Raises:
        SlurmUnavailableError: It is not there, took too long or failed; the message has its first line.
    """
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = run_program(argv, "", environment, _TIMEOUT_S)
    except OSError as error:
        raise SlurmUnavailableError(f"{argv[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmUnavailableError(f"{' '.join(argv)} gave no answer within {_TIMEOUT_S:g} s") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise SlurmUnavailableError(f"{' '.join(argv)}: {said[0]}")
    return done.stdout


def parse_settings(text: str) -> dict[str, str]:
    """The `Key = value` lines of `scontrol show config`."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def parse_rows(text: str) -> list[dict[str, str]]:
    """The lines of `scontrol --oneliner show ...`; the first of a key counts, values may have blanks."""
    rows = []
    for line in text.splitlines():
        parts = _KEY.split(line)[1:]
        row: dict[str, str] = {}
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            row.setdefault(key, value.strip())
        if row:
            rows.append(row)
    return rows


def parse_version(text: str) -> tuple[int, int] | None:
    """The version in what `scontrol --version` prints, such as `slurm-wlm 22.05.8`."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _with_slurm(site: SiteFacts) -> SiteFacts:
    try:
        site = replace(site, version=parse_version(ask(["scontrol", "--version"])))
        # Where slurmctld is down, ping fails at once; the other commands wait ten seconds.
        ping = ask(["scontrol", "ping"]).strip()
        if " UP" not in ping:
            raise SlurmUnavailableError(ping.splitlines()[0] if ping else "scontrol ping said nothing")
        text, now_s = ask(["scontrol", "show", "config"]), time.time()
        settings = parse_settings(text)
        return replace(
            site,
            settings=settings,
            skew_s=now_s - _seconds(re.search(r"as of (\S+)", text), now_s),
            booted_s=_seconds(re.match(r"(\S+)", settings.get("BOOT_TIME", "")), 0.0),
            partitions=_by("PartitionName", "partitions"),
            nodes=_by("NodeName", "nodes"),
            admin_level=_admin_level(site.user, settings),
        )
    except SlurmUnavailableError as error:
        return replace(site, slurm_error=str(error))


def _seconds(match: re.Match[str] | None, default: float) -> float:
    try:
        return time.mktime(time.strptime(match[1], _TIME)) if match else default
    except ValueError:
        return default


def _by(key: str, what: str) -> dict[str, Row]:
    rows = parse_rows(ask(["scontrol", "--oneliner", "show", what]))
    return {row[key]: row for row in rows if key in row}


def _admin_level(user: str, settings: Row) -> str:
    if not settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        return ""
    try:
        said = ask(
            ["sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}", "format=adminlevel"]
        )
    except SlurmUnavailableError:
        return ""
    return said.strip().lower()


def slurm_conf(settings: Row) -> Path:
    """Where slurm.conf is: what Slurm's commands say, else $SLURM_CONF, else /etc/slurm."""
    return Path(settings.get("SLURM_CONF") or os.environ.get("SLURM_CONF") or SLURM_CONF)


def _with_files(site: SiteFacts) -> SiteFacts:
    """Add what is beside slurm.conf."""
    conf = slurm_conf(site.settings)
    # Dally's job_submit.lua is the one beside slurm.conf, or the one that it calls.
    lua = conf.with_name("job_submit.lua")
    called = conf.parent / "dally" / lua.name
    if str(called) in (_text(lua) or ""):
        lua = called
    site = replace(
        site,
        conf_dir=conf.parent,
        topology=_topology(conf.parent),
        lua=_text(lua),
        site_lua=_text(lua.with_name("dally_site.lua")) or "",
        own_lua=own_file("job_submit.lua"),
    )
    try:
        gres = conf.with_name("gres.conf")
        lines = tuple(read_lines(gres, ("nodename", "name", "autodetect"))) if gres.exists() else None
        return replace(site, conf_gres=configured_gres(conf), gres_lines=lines)
    except InputError as error:
        return replace(site, conf_error=str(error))


def _topology(folder: Path) -> TopologyFile | None:
    path = next(
        (folder / name for name in ("topology.yaml", "topology.conf") if (folder / name).exists()), None
    )
    if path is None:
        return None
    try:
        found = TopologyFile(path, path.stat().st_mtime)
        network = read_network(path)
    except (OSError, InputError) as error:
        return TopologyFile(path, 0.0, error=str(error))
    return replace(found, wiring=network.wiring if network else None)


def own_file(name: str) -> str:
    """The text of a file that Dally brings for sites; empty if this version has none of that name."""
    file = resources.files("slurm_plugin") / "site" / name
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _with_own(site: SiteFacts) -> SiteFacts:
    """Add what the configuration names: cluster, profiles, state folder and health page."""
    config = site.required_config
    try:
        site = replace(site, cluster=load_cluster(config.cluster, absent=True))
    except InputError as error:
        site = replace(site, cluster_error=str(error))
    try:
        if config.profiles:
            known = load_profiles(config.profiles)
            wanted = product(known.models, site.cluster.gpu_types if site.cluster else ())
            site = replace(site, profiles=len(known.models), stand_ins=known.stand_ins(wanted))
    except InputError as error:
        site = replace(site, profiles_error=str(error))
    try:
        folder = Path(config.state_dir)
        status, free_bytes = folder.stat(), shutil.disk_usage(folder).free
        site = replace(site, state_dir=StateFolder(status.st_uid, status.st_mode & 0o777, free_bytes))
    except OSError:
        site = replace(site, state_dir=None)
    health_error, _ = ask_controller(config.url)
    if health_error:
        return replace(site, health_error=health_error)
    _, status_page = ask_controller(config.url, "/status", _TIMEOUT_S)
    return replace(site, running_times=status_page.get("running_times", {}))
