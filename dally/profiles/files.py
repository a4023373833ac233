"""Reading, checking and writing profiles: JSON files, directories of them, and the shipped sets."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from dally.atomic_file import write_atomically
from dally.errors import InputError
from dally.profiles.decoding import decode, shown
from dally.profiles.schema import SCHEMA, Mode, Profile, Restart

_RESTART = Restart()
_UNSAFE = re.compile(r"[^\w.]+")
"""What names of models and GPU types may hold and names of files should not."""


@dataclass(frozen=True)
class ProfileSet:
    """Profiles that may be used together, sorted by model and GPU type.

    Attributes:
        name: The shipped set's name or the path they were read from.
        profiles: At most one for each model and GPU type.
    """

    name: str
    profiles: tuple[Profile, ...]

    @property
    def modes(self) -> tuple[Mode, ...]:
        """How these profiles came about, sorted, each once."""
        return tuple(sorted({profile.provenance.mode for profile in self.profiles}))

    @property
    def models(self) -> tuple[str, ...]:
        """The model ids, sorted, each once."""
        return tuple(sorted(self._by_model))

    @cached_property
    def _by_model(self) -> Mapping[str, tuple[Profile, ...]]:
        found: dict[str, tuple[Profile, ...]] = {}
        for profile in self.profiles:
            found[profile.model.name] = (*found.get(profile.model.name, ()), profile)
        return found

    def find(self, model: str, gpu_type: str | None = None) -> Profile | None:
        """The profile of a model on a GPU type.

        Without one for exactly that type, one without a stated type is taken, else the first by type's name;
        the caller sees which by its `env.gpu_type`. None if the model is unknown.
        """
        candidates = self._by_model.get(model, ())
        exact = [profile for profile in candidates if profile.env.gpu_type == gpu_type]
        return next(iter((*exact, *candidates)), None)


def shipped_sets() -> tuple[str, ...]:
    """Names of the sets that come with Dally, sorted."""
    root = resources.files("dally.profiles") / "sets"
    return tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir())) if root.is_dir() else ()


def load_profiles(path_or_name: str | Path, allow_mixed: bool = False) -> ProfileSet:
    """Read a set of profiles.

    Args:
        path_or_name: Name of a shipped set, a directory of JSON files, or one such file; a name of a shipped
            set wins over a path, write `./NAME` for the path.
        allow_mixed: Take profiles from CPUs (gloo, emulated) and GPUs (nccl, imported) together.

    Raises:
        InputError: No such set, an invalid file, two profiles for one model and GPU type, or a mix that is
            not allowed.
    """
    name = str(path_or_name)
    files = _profile_files(name)
    profiles = [parse_profile(text, source) for source, text in files]
    _refuse_duplicates(profiles, [source for source, _ in files])
    if not allow_mixed:
        _refuse_mix(name, profiles)
    return ProfileSet(
        name, tuple(sorted(profiles, key=lambda item: (item.model.name, item.env.gpu_type or "")))
    )


def read_profile(path: Path) -> Profile:
    """Read one profile from a JSON file.

    Raises:
        InputError: It cannot be read or is invalid; the message names the file, the field and what is valid.
    """
    return parse_profile(_read(path), str(path))


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile as JSON, whole or not at all; unknown parts of the environment are left out.

    Raises:
        InputError: It cannot be written: no such folder, no permission, disk full.
    """
    try:
        write_atomically(path, format_profile(profile))
    except OSError as error:
        raise InputError(f"profile {path} cannot be written: {error.strerror or error}") from error


def write_profiles(profiles: Iterable[Profile], folder: Path) -> tuple[Path, ...]:
    """Write each profile as MODEL.json, or MODEL-GPUTYPE.json where the type is known, into a folder.

    Returns:
        The files written.

    Raises:
        InputError: The folder cannot be made or a file not written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"folder {folder} cannot be made: {error.strerror or error}") from error
    written = []
    for profile in profiles:
        parts = (profile.model.name, profile.env.gpu_type)
        name = _UNSAFE.sub("-", "-".join(part for part in parts if part))
        written.append(folder / f"{name}.json")
        write_profile(profile, written[-1])
    return tuple(written)


def format_profile(profile: Profile) -> str:
    """A profile as JSON text, as `parse_profile` reads it; later additions only where they say something."""
    data = asdict(profile)
    if not profile.compute.fixed_s:
        del data["compute"]["fixed_s"]
    if profile.learning is None:
        del data["learning"]
    data["restart"] = {
        key: value
        for key, value in data["restart"].items()
        if key in ("base_s", "per_gpu_s") or value != getattr(_RESTART, key)
    }
    data["env"] = {key: value for key, value in data["env"].items() if value not in (None, ())}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def parse_profile(text: str, source: str) -> Profile:
    """Read a profile from JSON text.

    Args:
        text: The JSON.
        source: What to call it in messages, usually its path.

    Raises:
        InputError: It is not JSON or breaks the schema; the message names source, field and what is valid.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not complete JSON: {error}") from error
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise InputError(f"{source}: schema is {shown(data['schema'])}, this version reads {SCHEMA}")
    try:
        return decode(Profile, data)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"profile {path} cannot be read: {error}") from error


def _profile_files(name: str) -> list[tuple[str, str]]:
    """(name for messages, text) of each file of a set."""
    if name in shipped_sets():
        entries = (resources.files("dally.profiles") / "sets" / name).iterdir()
        named = sorted((item.name, item) for item in entries if item.name.endswith(".json"))
        return [(f"{name}/{file}", item.read_text(encoding="utf-8")) for file, item in named]
    path = Path(name)
    if not path.exists():
        raise InputError(f"no profile set or path {name}; shipped sets: {', '.join(shipped_sets())}")
    paths = [path] if path.is_file() else sorted(path.glob("*.json"))
    if not paths:
        raise InputError(f"profile directory {name} has no .json files")
    return [(str(item), _read(item)) for item in paths]


def _refuse_duplicates(profiles: Iterable[Profile], sources: Iterable[str]) -> None:
    seen: dict[tuple[str, str | None], str] = {}
    for profile, source in zip(profiles, sources, strict=True):
        key = profile.model.name, profile.env.gpu_type
        if key in seen:
            raise InputError(f"{source}: model {key[0]} on GPU type {key[1]} is also in {seen[key]}")
        seen[key] = source


def _refuse_mix(name: str, profiles: Iterable[Profile]) -> None:
    modes = sorted({profile.provenance.mode for profile in profiles})
    if len({mode.on_cpu for mode in modes}) > 1:
        raise InputError(
            f"profile set {name} mixes CPU and GPU profiles ({', '.join(modes)}); use only nccl and imported "
            "ones, or only gloo and emulated ones, or allow the mix"
        )
