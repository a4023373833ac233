"""What was installed: the list of it, and writing files so that no half of one is ever seen."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dally.clusters.slurm_lines import read_lines
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


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that readers see the old text or the new one, and nothing between."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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
