"""What was installed: the list of it, whether a file is still as it was, and taking it away again."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dally.atomic_file import write_atomically
from dally.cluster.slurm_conf import read_lines
from dally.errors import InputError


def manifest_path(config_path: Path) -> Path:
    """Where the list of what was installed lies."""
    return config_path.with_name("installed.json")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was installed: the mode, each file with its SHA-256, and the folders made for it."""

    mode: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


def read_manifest(path: Path) -> Manifest:
    """The list of what was installed; an empty one if there is no such file.

    Raises:
        InputError: It cannot be read.
    """
    if not path.exists():
        return Manifest()
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return Manifest(str(table["mode"]), dict(table["files"]), tuple(table["folders"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not a list of installed files; delete it, and Dally's files by hand"
        ) from error


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write the list of what was installed."""
    write_atomically(path, json.dumps(asdict(manifest), indent=1) + "\n")


def hash_text(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def hash_of(path: Path) -> str | None:
    """The hash of a file's content; None if there is no such file."""
    if not os.path.lexists(path):
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "not a file"


def has_lua(conf: Path) -> bool:
    """Whether a slurm.conf turns job_submit.lua on."""
    plugins = [line.values["jobsubmitplugins"] for line in read_lines(conf, ("jobsubmitplugins",))]
    return any(name.strip() == "lua" for text in plugins for name in text.split(","))


@dataclass(frozen=True, slots=True)
class Removal:
    """What an uninstallation does: files and folders to remove, and what stays, each with the reason."""

    manifest: Path
    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    left: Mapping[Path, str]


def plan_uninstall(config_path: Path) -> Removal:
    """What there is to remove: only what was installed and is unchanged.

    Raises:
        InputError: Nothing was installed, or Slurm still needs the job_submit.lua.
    """
    path = manifest_path(config_path)
    if not path.exists():
        raise InputError(f"{path} is missing: nothing was installed with this configuration")
    manifest = read_manifest(path)
    remove, left = [], {}
    for name, digest in manifest.files.items():
        found = hash_of(Path(name))
        if found == digest:
            remove.append(Path(name))
        elif found is not None:
            left[Path(name)] = "changed since it was installed"
    for file in remove:
        conf, own = file.with_name("slurm.conf"), file.parent.parent / file.name
        if file.name != "job_submit.lua":
            continue
        if conf.is_file() and has_lua(conf):
            raise InputError(
                f"{conf} still has JobSubmitPlugins=lua, and slurmctld does not start without {file}; "
                "take lua out and restart slurmctld, then uninstall"
            )
        if own.is_file() and str(file).encode() in own.read_bytes():
            raise InputError(f"{own} still calls {file}; take these lines out, then uninstall")
    return Removal(path, tuple(remove), tuple(Path(name) for name in reversed(manifest.folders)), left)


def uninstall(removal: Removal) -> tuple[Path, ...]:
    """Remove what was planned; the folders that stay because they are not empty.

    Raises:
        OSError: A file cannot be removed.
    """
    for file in removal.files:
        file.unlink(missing_ok=True)
    removal.manifest.unlink()
    full = []
    for folder in removal.folders:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            full.append(folder)
    return tuple(full)
