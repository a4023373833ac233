"""Takes away what `dally slurm install` wrote and nobody changed since."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dally.errors import InputError
from slurm_plugin.admin.installed import has_lua, hash_of, manifest_path, read_manifest


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
