"""Reading, checking and writing profiles: JSON files, directories of them, and the shipped sets."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib import resources
from math import log
from operator import eq
from pathlib import Path
from typing import Any

from dally.atomic_file import write_atomically
from dally.config_text import naming, read_text
from dally.errors import InputError
from dally.jobs.parallelism import Parallelism
from dally.jobs.training_plan import PRECISIONS
from dally.profiles.decoding import decode, shown
from dally.profiles.events import Event
from dally.profiles.gpu_types import same_type
from dally.profiles.schema import (
    EVENT_SCHEMA,
    SCHEMA,
    Compute,
    Env,
    Model,
    Profile,
    ProfileMode,
    Restart,
)
from dally.profiles.stand_ins import StandIn, at_speed, choose_stand_in, stand_in_lines
from dally.spec import now_called

_UNSAFE = re.compile(r"[^\w.]+")
"""What names of models and GPU types may hold and names of files should not."""

_ANY = "any"
"""What messages and `remove_profile` call the GPU type of a profile that is of none alone."""


@dataclass(frozen=True)
class ProfileSet:
    """Profiles that may be used together, sorted by model, GPU type, local batch, plan and precision.

    Attributes:
        name: The shipped set's name or the path they were read from.
        profiles: At most one for each of these.
    """

    name: str
    profiles: tuple[Profile, ...]

    @property
    def modes(self) -> tuple[ProfileMode, ...]:
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

    @cached_property
    def with_events(self) -> frozenset[str]:
        """Models with events in a profile: what they cost depends on which rank is where."""
        return frozenset(profile.model.name for profile in self.profiles if profile.events)

    @cached_property
    def _found(self) -> dict[tuple[str, str | None], tuple[Profile, ...]]:
        """What `find` found so far, by model and GPU type: one for each local batch, plan and precision."""
        return {}

    def find(
        self,
        model: str,
        gpu_type: str | None = None,
        local_batch: float | None = None,
        gpus: int | None = None,
        plan: str | None = None,
        precision: str | None = None,
    ) -> Profile | None:
        """The profile of a model on a GPU type.

        Without one of that type, under Slurm's or CUDA's name, one without a stated type is taken, else the
        type's stand-in (`stand_in`). Without a type asked for, one without a stated type is taken, else the
        first by type's name.

        Args:
            model: The model's id.
            gpu_type: The GPU type; None where the cluster names none.
            local_batch: Samples per GPU; of several profiles the nearest is taken. None: the middle one.
            gpus: Of the job; of plans of several sizes the nearest is taken. None: any of them.
            plan: Of the job, as profiles have it; that of just this plan is taken, if there is one.
            precision: Of the job, None if it does not say: then bf16, in which most train. Of several, those
                of this one are taken, else those of an unknown one, else those of bf16.

        Returns:
            None if the model is unknown.
        """
        key = model, gpu_type
        if key not in self._found:
            self._found[key] = self._of_type(model, gpu_type)
        found = self._found[key]
        if gpus is not None and model in self.with_events:
            found = tuple(each for each in found if each.plan == plan) if plan else ()
            found = found or _of_nearest_size(self._found[key], gpus)
        if len(found) > 1:
            found = _of_precision(found, precision or PRECISIONS[0])
        if len(found) < 2 or local_batch is None:
            return found[len(found) // 2] if found else None
        return min(found, key=lambda each: abs(log((each.model.local_batch or 1) / local_batch)))

    def stand_in(self, model: str, gpu_type: str | None) -> StandIn | None:
        """What stands in for a model's profile on a GPU type.

        Returns:
            None if nothing has to: the model is unknown, or has a profile of that type or of no stated type;
            or the cluster names no type and the model's profiles are all of one.
        """
        candidates = self._by_model.get(model, ())
        types = {profile.env.gpu_type for profile in candidates}
        if not types or None in types or any(same_type(each, gpu_type) for each in types):
            return None
        if gpu_type is None:
            return StandIn(model, "", candidates[0].env.gpu_type or "") if len(types) > 1 else None
        return choose_stand_in(self.profiles, model, gpu_type)

    def stand_ins(self, wanted: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """What stands in for what, of models and GPU types of a cluster: a line for each pair of types."""
        found = (self.stand_in(model, gpu_type or None) for model, gpu_type in sorted(set(wanted)))
        return stand_in_lines(each for each in found if each is not None)

    def _of_type(self, model: str, gpu_type: str | None) -> tuple[Profile, ...]:
        """The profiles of a model that speak for a GPU type, by local batch."""
        stand_in = self.stand_in(model, gpu_type)
        candidates = self._by_model.get(model, ())
        wanted = (
            [stand_in.taken] if stand_in else [gpu_type, None, *(each.env.gpu_type for each in candidates)]
        )
        for name in wanted:
            for alike in (eq, same_type):  # the very name before another one of the same type
                found = [each for each in candidates if alike(each.env.gpu_type, name)]
                if found:
                    found = [each for each in found if each.env.gpu_type == found[0].env.gpu_type]
                    speed = stand_in.speed if stand_in else None
                    return tuple(at_speed(each, speed) if speed else each for each in found)
        return ()


def _of_nearest_size(profiles: tuple[Profile, ...], gpus: int) -> tuple[Profile, ...]:
    """Those whose plan has about so many GPUs; those without a plan go with any number."""
    sizes = {each.plan: Parallelism.parse(each.plan).gpus for each in profiles if each.plan is not None}
    nearest = min(sizes.values(), key=lambda size: abs(log(size / gpus)), default=None)
    return tuple(each for each in profiles if each.plan is None or sizes[each.plan] == nearest)


def _of_precision(profiles: tuple[Profile, ...], precision: str) -> tuple[Profile, ...]:
    """Those of a precision, else those of an unknown one, else those of bf16, else all."""
    for wanted in (precision, None, PRECISIONS[0]):
        if found := tuple(each for each in profiles if each.model.precision == wanted):
            return found
    return profiles


def shipped_sets() -> tuple[str, ...]:
    """Names of the sets that come with Dally, sorted."""
    root = resources.files("dally.profiles") / "sets"
    return tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir())) if root.is_dir() else ()


def load_profiles(path_or_name: str | Path, allow_mixed: bool = False) -> ProfileSet:
    """Read a set of profiles.

    Args:
        path_or_name: Name of a shipped set, a directory of JSON files, or one such file; a name of a shipped
            set wins over a path, write `./NAME` for the path.
        allow_mixed: Take profiles from CPUs (gloo, emulated) and GPUs (nccl, imported, given) together.

    Raises:
        InputError: No such set, an invalid file, two profiles for one model, GPU type, local batch, plan and
            precision, or a mix that is not allowed.
    """
    name = str(path_or_name)
    files = _profile_files(name)
    return _together(name, {source: parse_profile(text, source) for source, text in files}, allow_mixed)


def _together(name: str, by_source: Mapping[str, Profile], allow_mixed: bool) -> ProfileSet:
    """A set of these profiles, by where each is from; raises what `load_profiles` does of them."""
    seen: dict[tuple[str, str, int, str, str], str] = {}
    for source, profile in by_source.items():
        key = model, gpu_type, batch, plan, precision = _sort_key(profile)
        if key in seen:
            with_batch = f" with local batch {batch}" if batch else ""
            by_plan = f" by plan {plan}" if plan else ""
            in_precision = f" in {precision}" if precision else ""
            raise InputError(
                f"{source}: model {model} on GPU type {gpu_type or None}{with_batch}{by_plan}{in_precision} "
                f"is also in {seen[key]}"
            )
        seen[key] = source
    profiles = by_source.values()
    if not allow_mixed:
        _require_one_kind(name, (profile.provenance.mode for profile in profiles))
    return ProfileSet(name, tuple(sorted(profiles, key=_sort_key)))


def _require_one_kind(name: str, modes: Iterable[ProfileMode]) -> None:
    """Raise InputError if some of the profiles of a set are from CPUs and some from GPUs."""
    found = sorted({*modes})
    if len({mode.on_cpu for mode in found}) > 1:
        raise InputError(
            f"profile set {name} mixes CPU and GPU profiles ({', '.join(found)}); keep nccl, imported and "
            "given ones in one folder, gloo and emulated ones in another"
        )


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

    Where a model and type have several, each name ends in `-bBATCH`, its local batch.

    Returns:
        The files written.

    Raises:
        InputError: The folder cannot be made or a file not written.
    """
    _make_folder(folder)
    written = []
    profiles = list(profiles)
    counts = Counter((profile.model.name, profile.env.gpu_type) for profile in profiles)
    for profile in profiles:
        kind = profile.model.name, profile.env.gpu_type
        batch = f"b{profile.model.local_batch}" if counts[kind] > 1 else None
        written.append(profile_path(folder, *kind, batch))
        write_profile(profile, written[-1])
    return tuple(written)


def require_absent(path: Path) -> None:
    """Raise InputError if there is such a profile."""
    if path.exists():
        raise InputError(f"{path} exists; `profile-models remove` takes it away")


def require_alike(folder: Path, mode: ProfileMode) -> None:
    """Raise InputError if a profile of this mode cannot be added to a folder, or what it holds is wrong."""
    there = _profiles_in(folder).values()
    _require_one_kind(str(folder), (mode, *(profile.provenance.mode for profile in there)))


def add_profile(profile: Profile, folder: Path, replacing: bool = False) -> Path:
    """Write a profile beside those that a folder holds, which it makes if need be.

    Its name tells batch and precision where another profile of the model, type and plan has the plain name.

    Args:
        profile: To be added.
        folder: Where.
        replacing: In place of the file of this model and GPU type, if there is one.

    Returns:
        The file written.

    Raises:
        InputError: The folder holds one of this model, GPU type, local batch, plan and precision, or profiles
            that do not go together with it, or is wrong or cannot be written.
    """
    there = _profiles_in(folder)
    path = profile_path(folder, profile.model.name, profile.env.gpu_type, profile.plan)
    if not replacing:
        for source, each in there.items():
            if _sort_key(each) == _sort_key(profile):
                require_absent(Path(source))
        if path.exists():
            batch = profile.model.local_batch
            more = profile.plan, f"b{batch}" if batch else None, profile.model.precision
            path = profile_path(
                folder, profile.model.name, profile.env.gpu_type, "-".join(filter(None, more))
            )
        require_absent(path)
    _together(str(folder), {**there, str(path): profile}, allow_mixed=False)
    _make_folder(folder)
    write_profile(profile, path)
    return path


def remove_profile(
    folder: Path,
    model: str,
    gpu_type: str | None = None,
    plan: str | None = None,
    local_batch: int | None = None,
    precision: str | None = None,
) -> Path:
    """Delete the profile of a model from a folder; the rest tells which one, if it has several.

    Args:
        folder: The folder.
        model: The model.
        gpu_type: Of the profile, or `any`.
        plan: Of the profile.
        local_batch: Of the profile.
        precision: Of the profile.

    Returns:
        The file deleted.

    Raises:
        InputError: There is none, or several; or the folder is wrong or cannot be written.
    """
    there = _profiles_in(folder)
    named = {source: each for source, each in there.items() if each.model.name == model}
    if not named:
        known = ", ".join(sorted({each.model.name for each in there.values()})) or "none"
        raise InputError(f"no profile of model {model} in {folder}; there are {known}")
    found = [
        source
        for source, each in named.items()
        if gpu_type in (None, each.env.gpu_type or _ANY)
        and plan in (None, each.plan)
        and local_batch in (None, each.model.local_batch)
        and precision in (None, each.model.precision)
    ]
    if len(found) != 1:
        on = f" on GPU type {gpu_type}" if gpu_type else ""
        kinds = _differences(named.values())
        raise InputError(f"{folder} has {len(found)} profiles of model {model}{on}, not one; {kinds}")
    path = Path(found[0])
    try:
        path.unlink()
    except OSError as error:
        raise InputError(f"profile {path} cannot be removed: {error.strerror or error}") from error
    return path


def _differences(profiles: Collection[Profile]) -> str:
    """What profiles of one model are of, in words."""
    told: dict[str, set[Any]] = {
        "types": {each.env.gpu_type or _ANY for each in profiles},
        "plans": {each.plan for each in profiles},
        "local batches": {each.model.local_batch for each in profiles},
        "precisions": {each.model.precision for each in profiles},
    }
    known = {what: sorted(values - {None}) for what, values in told.items()}
    return "; ".join(f"{what}: {_listed(values)}" for what, values in known.items() if values)


def _listed(values: Iterable[object]) -> str:
    """In words; plans have commas of their own."""
    words = [*map(str, values)]
    return ("; " if any("," in word for word in words) else ", ").join(words)


def _profiles_in(folder: Path) -> dict[str, Profile]:
    """The profiles of a folder by their paths; none if there is no such folder."""
    paths = sorted(folder.glob("*.json"))
    return {str(path): parse_profile(read_text(path), str(path)) for path in paths}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"folder {folder} cannot be made: {error.strerror or error}") from error


def profile_path(folder: Path, model: str, gpu_type: str | None, more: str | None = None) -> Path:
    """The file of a profile, by what tells it apart: beside model and GPU type its plan, its batch, ...

    Where another profile has the plain name, as `a:b` has that of `a+b`, it ends in a digest.
    """
    parts = [part for part in (model, gpu_type, more) if part]
    plain = folder / f"{_UNSAFE.sub('-', '-'.join(parts))}.json"
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
    other = plain.with_name(f"{plain.stem}-{digest}.json")
    is_plain = not other.exists() and _model_and_type(plain) in (None, (model, gpu_type))
    return plain if is_plain else other


def _model_and_type(path: Path) -> tuple[str, str | None] | None:
    """Of which model and GPU type the profile in a file is; None if it holds none."""
    try:
        profile = parse_profile(read_text(path), str(path))
    except InputError:
        return None
    return profile.model.name, profile.env.gpu_type


def format_profile(profile: Profile) -> str:
    """A profile as JSON text, as `parse_profile` reads it; later additions only where they say something."""
    data = asdict(profile)
    for event in data["events"]:
        _leave_out(event, Event, ("stage", "to", "loads", "sent_s"))
    _leave_out(data["compute"], Compute, ("fixed_s", "other_batches", "stages"))
    _leave_out(data["model"], Model, ("precision",))
    _leave_out(data["restart"], Restart, ("first_s", "first_per_gpu_s", "resize_s"))
    _leave_out(data["env"], Env, [*data["env"]])
    _leave_out(data, Profile, ("learning", "plan", "events", "curves"))
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _leave_out(data: dict[str, Any], kind: type[Any], names: Collection[str]) -> None:
    """Leave those of some fields out of a dataclass's data that have their default."""
    for each in fields(kind):
        if each.name in names and data[each.name] == each.default:
            del data[each.name]


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
    if isinstance(data, dict) and data.get("schema", SCHEMA) not in (SCHEMA, EVENT_SCHEMA):
        raise InputError(
            f"{source}: schema is {shown(data['schema'])}, this version reads {SCHEMA} and {EVENT_SCHEMA}"
        )
    with naming(source):
        return decode(Profile, data)


def _profile_files(name: str) -> list[tuple[str, str]]:
    """(name for messages, text) of each file of a set."""
    if name in shipped_sets():
        entries = (resources.files("dally.profiles") / "sets" / name).iterdir()
        named = sorted((item.name, item) for item in entries if item.name.endswith(".json"))
        return [(f"{name}/{file}", item.read_text(encoding="utf-8")) for file, item in named]
    path = Path(name)
    if not path.exists():
        valid = ", ".join(shipped_sets())
        raise InputError(f"no profile set or path {name}{now_called(str(name))}; shipped sets: {valid}")
    paths = [path] if path.is_file() else sorted(path.glob("*.json"))
    if not paths:
        raise InputError(f"profile directory {name} has no .json files")
    return [(str(item), read_text(item)) for item in paths]


def _sort_key(profile: Profile) -> tuple[str, str, int, str, str]:
    """What tells the profiles of a set apart."""
    model = profile.model
    return (
        model.name,
        profile.env.gpu_type or "",
        model.local_batch or 0,
        profile.plan or "",
        model.precision or "",
    )
