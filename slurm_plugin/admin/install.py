"""Puts Dally's files where a site needs them, and remembers which."""

import os
import pwd
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dally.atomic_file import write_atomically
from dally.cluster import load_cluster
from dally.cluster.slurm_conf import read_lines
from dally.errors import InputError
from dally.profiles.files import load_profiles
from slurm_plugin.admin.checks.gather import own_file
from slurm_plugin.admin.installed import (
    Manifest,
    has_lua,
    hash_of,
    hash_text,
    manifest_path,
    read_manifest,
    write_manifest,
)
from slurm_plugin.config import Config, load_config, parse_config
from slurm_plugin.submit.hints import SLURM_MAX_WAIT_S, Mode, leaf_slowdowns, site_lua, wait_advice

UNITS = ("dally-controller.service", "dally-deadman.service", "dally-deadman.timer")
UNIT_DIR = Path("/etc/systemd/system")

_SAFE_PATH = re.compile(r"/[\w./+-]*", re.ASCII)
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_STATE_ROOT = Path("/var/lib")
_PRIVATE = 0o700
_AGAIN = "run `dally slurm install` again"


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """Where and how to install.

    Attributes:
        config_path: The configuration; the list of what was installed lies beside it.
        conf_dir: Folder of slurm.conf.
        unit_dir: Folder of systemd's units.
        dally: The `dally` command that the units run.
        user: The user that the controller runs as.
        mode: `hold`: the controller decides; `hint`: job_submit.lua alone, without a controller.
    """

    config_path: Path
    conf_dir: Path
    unit_dir: Path
    dally: Path
    user: str = "dally"
    mode: Mode = "hold"

    def __post_init__(self) -> None:
        if not _USER_NAME.fullmatch(self.user):
            raise InputError(
                f"user is {self.user!r}, must be a user name of lower-case letters, digits, _ and -"
            )
        for path in (self.config_path, self.conf_dir, self.unit_dir, self.dally):
            if not _SAFE_PATH.fullmatch(str(path)):
                raise InputError(f"{path}: must be an absolute path of letters, digits and . / + - _")

    @property
    def manifest(self) -> Path:
        """The list of what was installed."""
        return manifest_path(self.config_path)


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What an installation does.

    Attributes:
        target: Where.
        manifest: What was installed before.
        files: Files to write, with their text; those that are already so are left out.
        kept: Files that are as they must be.
        folders: Folders to make, with their permission bits.
        next_steps: What is left to the administrator, a line each.
    """

    target: InstallTarget
    manifest: Manifest
    files: Mapping[Path, str]
    kept: tuple[Path, ...]
    folders: Mapping[Path, int]
    next_steps: tuple[str, ...]


def plan_install(target: InstallTarget) -> InstallPlan:
    """What there is to do; nothing is changed yet.

    Raises:
        InputError: Something in the way is not Dally's or was changed, or another mode is installed.
    """
    manifest = read_manifest(target.manifest)
    if manifest.mode not in ("", target.mode):
        raise InputError(f"{manifest.mode} mode is installed; `dally slurm uninstall` first")
    if not (target.conf_dir / "slurm.conf").is_file():
        raise InputError(f"{target.conf_dir} has no slurm.conf; name its folder with --slurm-conf")
    files: dict[Path, str] = {}
    if target.config_path.exists():
        config = load_config(target.config_path)
    else:
        usual, own = '# user = "dally"', f'user = "{target.user}"'
        text = own_file("dally.toml")
        files[target.config_path] = text if target.user == "dally" else text.replace(usual, own)
        config = parse_config(tomllib.loads(files[target.config_path]))
    # Where the site has a job_submit.lua of its own, ours goes to a folder beside it.
    lua = target.conf_dir / "job_submit.lua"
    lua_text = own_file("job_submit.lua")
    is_ours = str(lua) in manifest.files or hash_of(lua) in (None, hash_text(lua_text))
    lua_dir = target.conf_dir if is_ours else target.conf_dir / "dally"
    files[lua_dir / "job_submit.lua"] = lua_text
    slowdowns: Mapping[str, float] = {}
    if target.mode == "hint" and config.profiles:
        slowdowns = leaf_slowdowns(load_profiles(config.profiles), load_cluster(config.cluster))
    longest_s = _longest_wait_s(target.conf_dir / "slurm.conf")
    files[lua_dir / "dally_site.lua"] = site_lua(
        config.partitions, _uids(target.user), target.mode, slowdowns, longest_s
    )
    folders = {target.manifest.parent: 0o755, lua_dir: 0o755}
    if target.mode == "hold":
        files |= {target.unit_dir / name: _unit(name, target, config) for name in UNITS}
        folders[Path(config.state_dir)] = _PRIVATE
    for path, text in files.items():
        found = hash_of(path)
        if found not in (None, hash_text(text), manifest.files.get(str(path))):
            what = "was changed since Dally wrote it" if str(path) in manifest.files else "is not Dally's"
            raise InputError(f"{path} is in the way: it {what}; move it away, or take your changes back")
    changed = {path: text for path, text in files.items() if hash_of(path) != hash_text(text)}
    return InstallPlan(
        target,
        manifest,
        changed,
        tuple(path for path in files if path not in changed),
        {path: mode for path, mode in folders.items() if not path.exists()},
        _next_steps(target, config, lua_dir, wait_advice(slowdowns, longest_s)),
    )


def install(plan: InstallPlan) -> None:
    """Carry a plan out. Cut off anywhere, it goes on when it is planned and carried out again.

    Raises:
        OSError: A file cannot be written, most likely for want of rights.
    """
    manifest = replace(plan.manifest, mode=plan.target.mode)
    # The configuration's folder comes first: in it is the list that remembers the others.
    folders = sorted(plan.folders.items(), key=lambda item: item[0] != plan.target.manifest.parent)
    for folder, mode in folders:
        folder.mkdir(mode=mode, parents=True)
        if mode == _PRIVATE and _uids(plan.target.user) and os.geteuid() == 0:
            account = pwd.getpwnam(plan.target.user)
            os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
        manifest = replace(manifest, folders=(*manifest.folders, str(folder)))
        write_manifest(plan.target.manifest, manifest)
    new = {str(path): hash_text(text) for path, text in plan.files.items() if not path.exists()}
    manifest = replace(manifest, files={**manifest.files, **new})
    if new:
        write_manifest(plan.target.manifest, manifest)
    for path, text in plan.files.items():
        write_atomically(path, text)
    written = {str(path): hash_of(path) or "" for path in (*plan.files, *plan.kept)}
    manifest = replace(manifest, files={**manifest.files, **written})
    if manifest != plan.manifest:
        write_manifest(plan.target.manifest, manifest)


def _unit(name: str, target: InstallTarget, config: Config) -> str:
    """A unit with this site's command, configuration, user and folder in the place of the usual ones."""
    state_dir = Path(config.state_dir)
    folder = f"StateDirectory={state_dir.name}\nStateDirectoryMode=0700"
    if state_dir.parent != _STATE_ROOT:
        folder = f"ReadWritePaths={state_dir}"
    if not _SAFE_PATH.fullmatch(str(state_dir)):
        raise InputError(
            f"state_dir {str(state_dir)!r} must be an absolute path of letters, digits and . / + - _"
        )
    text = own_file(name).replace("/usr/bin/dally ", f"{target.dally} ")
    text = text.replace("/etc/dally/dally.toml", str(target.config_path))
    text = text.replace("User=dally\n", f"User={target.user}\n")
    return text.replace("StateDirectory=dally\nStateDirectoryMode=0700", folder)


def _longest_wait_s(conf: Path) -> int:
    """The max_switch_wait in slurm.conf; the last line counts, as for Slurm."""
    lines = [line.values["schedulerparameters"] for line in read_lines(conf, ("schedulerparameters",))]
    found = re.search(r"(?:^|,)\s*max_switch_wait=([1-9]\d*)", lines[-1] if lines else "", re.IGNORECASE)
    return int(found[1]) if found else SLURM_MAX_WAIT_S


def _next_steps(target: InstallTarget, config: Config, lua_dir: Path, advice: str) -> tuple[str, ...]:
    """What is left to do; the controller first: once slurmctld has restarted, jobs wait for it."""
    steps = []
    if not target.config_path.exists():
        steps.append(f"edit `partitions` in {target.config_path}, then {_AGAIN}")
    elif target.mode == "hint" and not config.profiles:
        steps.append(
            f"name `profiles` in {target.config_path}, without which there are no hints, then {_AGAIN}"
        )
    if advice:
        steps.append(advice)
    if target.mode == "hold":
        if target.config_path.exists() and config.user != target.user:
            steps.append(
                f"write user = {target.user!r} into {target.config_path}, or nobody believes its answers"
            )
        if not _uids(target.user):
            steps.append(f"make the user {target.user}, a Slurm operator (docs/install.md), then {_AGAIN}")
        steps.append("systemctl daemon-reload && systemctl enable --now dally-controller dally-deadman.timer")
    if lua_dir != target.conf_dir:
        steps.append(
            f"your own job_submit.lua stays: let it call {lua_dir / 'job_submit.lua'}, whose top tells how"
        )
    if not has_lua(target.conf_dir / "slurm.conf"):
        steps.append("add to slurm.conf: JobSubmitPlugins=lua")
    return (*steps, "restart slurmctld (`systemctl restart slurmctld`)", "dally slurm doctor")


def _uids(user: str) -> tuple[int, ...]:
    """The number of the controller's user, if it exists already."""
    try:
        return (pwd.getpwnam(user).pw_uid,)
    except KeyError:
        return ()
