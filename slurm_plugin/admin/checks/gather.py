"""Gathers the facts about a site: asks Slurm, and reads the files of this machine."""

import os
import pwd
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from itertools import product
from pathlib import Path

from dally.cluster import load_cluster
from dally.cluster.slurm_conf import read_lines, read_slurm_conf
from dally.cluster.slurm_topology import read_network
from dally.errors import DallyError, InputError
from dally.profiles.files import load_profiles
from slurm_plugin.admin.checks.site import Row, SiteFacts, StateFolder, TopologyFile
from slurm_plugin.asking import ask_controller
from slurm_plugin.client.command_line import CommandLine, parse_version
from slurm_plugin.client.node_text import number, read_records, read_settings
from slurm_plugin.client.slurm import SlurmUnavailableError
from slurm_plugin.config import config_path, load_config

COMMANDS = ("sbatch", "squeue", "sinfo", "scontrol")
"""Slurm's commands that Dally runs."""

SLURM_CONF = Path("/etc/slurm/slurm.conf")

_TIMEOUT_S = 15.0


def gather(path: Path | None = None) -> SiteFacts:
    """Everything that the checks judge; what cannot be read is told in the site, never raised."""
    path = config_path(path)
    site = SiteFacts(path, commands={name: shutil.which(name) for name in COMMANDS}, uid=os.geteuid())
    try:
        site = replace(site, config=load_config(path))
    except InputError as error:
        site = replace(site, config_error=str(error))
    if site.config and not site.uid:  # root looks as the user of the controller does
        with suppress(OSError):
            site = replace(site, uid=os.stat(site.config.state_dir).st_uid)
    try:
        account = pwd.getpwuid(site.uid)
        site = replace(site, user=account.pw_name, gid=account.pw_gid)
    except KeyError:
        site = replace(site, user=str(site.uid), gid=os.getegid())
    site = _with_files(_with_slurm(site))
    return site if site.config is None else _with_own(site)


def _with_slurm(site: SiteFacts) -> SiteFacts:
    slurm = CommandLine(prefix=site.as_user, timeout_s=_TIMEOUT_S)
    try:
        site = replace(site, version=parse_version(slurm.read("scontrol", "--version")))
        # Where slurmctld is down, ping fails at once; the other commands wait ten seconds.
        ping = slurm.read("scontrol", "ping").strip()
        if " UP" not in ping:
            raise SlurmUnavailableError(ping.splitlines()[0] if ping else "scontrol ping said nothing")
        text, now_s = slurm.read("scontrol", "show", "config"), time.time()
        told_s = re.search(r"as of (\d+)", text)
        settings = read_settings(text)
        history_error, dbd = _history(slurm, settings)
        return replace(
            site,
            settings=settings,
            history_error=history_error,
            dbd_settings=dbd,
            skew_s=now_s - float(told_s[1]) if told_s else 0.0,
            booted_s=number(settings.get("BOOT_TIME", "")),
            partitions=read_records(
                slurm.read("scontrol", "--oneliner", "show", "partitions"), "PartitionName"
            ),
            nodes=read_records(slurm.read("scontrol", "--oneliner", "show", "nodes"), "NodeName"),
            blocks=slurm.blocks(site.config.partitions if site.config else ()),
            admin_level=admin_level(slurm.read, site.user, settings),
        )
    except SlurmUnavailableError as error:
        return replace(site, slurm_error=str(error))


def _history(slurm: CommandLine, settings: Row) -> tuple[str, Row]:
    """Why sacct does not answer, empty if it does; and the settings of slurmdbd, none without it."""
    if not settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        return "", {}
    try:
        slurm.read("sacct", "--allusers", "--allocations", "--starttime=now-1minutes", "--format=JobIDRaw")
        shown = slurm.read("sacctmgr", "show", "configuration")
    except SlurmUnavailableError as error:
        return str(error), {}
    return "", read_settings(shown.partition("SlurmDBD configuration:")[2])


def admin_level(ask: Callable[..., str], user: str, settings: Row) -> str:
    """A user's AdminLevel in Slurm's accounting, in lower case; empty if there is none.

    Args:
        ask: Runs one of Slurm's commands and gives what it prints.
        user: The user's name.
        settings: Slurm's.
    """
    if not settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        return ""
    asked = ("show", "user", f"name={user}", "format=adminlevel")
    try:
        return ask("sacctmgr", "--noheader", "--parsable2", *asked).strip().lower()
    except DallyError:
        return ""


def _with_files(site: SiteFacts) -> SiteFacts:
    """Add what is beside slurm.conf."""
    conf = Path(site.settings.get("SLURM_CONF") or os.environ.get("SLURM_CONF") or SLURM_CONF)
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
        nodes = {name: line.values for name, line in read_slurm_conf(conf).nodes.items()}
        cloud = frozenset(name for name, said in nodes.items() if said.get("state", "").upper() == "CLOUD")
        conf_gres = {name: said.get("gres", "") for name, said in nodes.items()}
        return replace(site, conf_gres=conf_gres, cloud_nodes=cloud, gres_lines=lines)
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
    return replace(site, health_error=ask_controller(config)[0])
