"""Reading, checking and writing profiles: JSON files, directories of them, and the shipped sets."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dally.errors import InputError
from dally.profiles.schema import SCHEMA, Mode, Profile

_LARGEST = 1e300
_NAMES = {int: "a whole number of 0 or more", float: "a number of 0 or more", str: "a string"}


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
    """Write a profile as JSON; unknown parts of the environment are left out."""
    path.write_text(format_profile(profile), encoding="utf-8")


def format_profile(profile: Profile) -> str:
    """A profile as JSON text, as `parse_profile` reads it."""
    data = asdict(profile)
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
        raise InputError(f"{source}: schema is {_shown(data['schema'])}, this version reads {SCHEMA}")
    try:
        profile = _decode(Profile, data, "")
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    assert isinstance(profile, Profile)
    return profile


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


def _decode(kind: Any, value: object, place: str) -> object:
    """Check JSON against a type and build it; `place` is the path of the field, for messages."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if NoneType in options:
        if value is None:
            return None
        (kind,) = (option for option in options if option is not NoneType)
    if is_dataclass(kind):
        return _decode_object(kind, value, place)
    if get_origin(kind) is tuple:
        return _decode_list(get_args(kind)[0], value, place)
    if get_origin(kind) is Mapping:
        items = _items(value, place)
        return {key: _decode(get_args(kind)[1], item, f"{place}.{key}") for key, item in items.items()}
    if issubclass(kind, StrEnum):
        return _decode_choice(kind, value, place)
    return _decode_scalar(kind, value, place)


def _decode_object(kind: Any, value: object, place: str) -> object:
    items = _items(value, place)
    known = {item.name: item for item in fields(kind)}
    prefix = f"{place}." if place else ""
    for key in items:
        if key not in known:
            raise InputError(f"unknown key {prefix}{key}; valid: {', '.join(known)}")
    for key, item in known.items():
        if key not in items and _required(item):
            raise InputError(f"{prefix}{key} is missing")
    hints = get_type_hints(kind)
    values = {key: _decode(hints[key], item, f"{prefix}{key}") for key, item in items.items()}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{prefix}{error}") from error


def _required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def _decode_list(kind: Any, value: object, place: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise InputError(f"{place} is {_shown(value)}, must be a list")
    return tuple(_decode(kind, item, f"{place}[{number}]") for number, item in enumerate(value))


def _decode_choice(kind: type[StrEnum], value: object, place: str) -> StrEnum:
    if value not in [str(choice) for choice in kind]:
        raise InputError(f"{place} is {_shown(value)}; valid: {', '.join(kind)}")
    return kind(value)


def _decode_scalar(kind: type, value: object, place: str) -> object:
    if kind is str and isinstance(value, str):
        return value
    if kind in (int, float) and isinstance(value, (int, kind)) and not isinstance(value, bool):
        assert isinstance(value, int | float)
        if 0 <= value <= _LARGEST:
            return kind(value)
    raise InputError(f"{place} is {_shown(value)}, must be {_NAMES[kind]}")


def _items(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InputError(f"{place or 'the profile'} is {_shown(value)}, must be an object")
    return value


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
