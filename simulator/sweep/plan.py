"""What a sweep asks for: a TOML file read into a task for each setting, set of values, seed and policy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click

from dally.cluster import load_cluster
from dally.cluster.summary import left_out_line
from dally.cluster.toml_file import TomlTable
from dally.config_text import naming, parse_toml, read_text
from dally.errors import InputError
from dally.jobs.knowledge import Knowledge
from dally.policies.registry import parse_policy
from dally.profiles.gang_iteration import Split
from dally.spec import spec_knobs
from dally.traces.generators import is_generator
from simulator.command import command as simulate_command
from simulator.command import refuse_unmodelled
from simulator.inputs import Inputs

_NOT_VARIED = {"policies", "seed", "out", "record", "as_json"}
OPTIONS: Mapping[str, click.Option] = {
    option.opts[0].removeprefix("--").replace("-", "_"): option
    for option in simulate_command.params
    if isinstance(option, click.Option) and option.name not in _NOT_VARIED
}
"""What a sweep may set: the options of `dally simulate`, each by its name with underscores."""

_PER_RUN = ("policies", "seeds")
_OWN_KEYS = ("policies", "seeds", "settings", "slurm", "study")


@dataclass(frozen=True, slots=True)
class SweepTask:
    """One simulation of a sweep.

    Attributes:
        setting: Name of the setting it belongs to; empty if the file names none.
        values: What the file says of it, by option; specifications with one value for each knob.
        policy: The policy's specification.
        inputs: The same as inputs of a simulation, with the seed.
    """

    setting: str
    values: Mapping[str, object]
    policy: str
    inputs: Inputs

    @property
    def columns(self) -> dict[str, object]:
        """The columns that tell tasks apart, but the seed: setting, policy, options, knowledge, knobs."""
        knobs = {f"policy.{name}": value for name, value in spec_knobs(self.policy).items()}
        if self.generated:
            knobs |= {f"trace.{name}": value for name, value in spec_knobs(self.inputs.trace).items()}
        told = {"setting": self.setting, "policy": self.policy, **self.values}
        return {**told, "knowledge": str(self.inputs.knows), **knobs}

    @property
    def generated(self) -> bool:
        """Whether the seed draws the jobs."""
        return is_generator(self.inputs.trace)

    def __str__(self) -> str:
        """The task in a line of progress."""
        return f"{self.setting or self.inputs.trace} {self.policy} seed {self.inputs.seed}"


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep.

    Attributes:
        tasks: By setting, set of values, seed, policy.
        slurm: How to ask Slurm for its workers.
        study: What `python -m analysis.studies.study` makes of the results.
        left_out: What was left out of a cluster, a line for each where something was.
    """

    tasks: list[SweepTask]
    slurm: Mapping[str, Any]
    study: Mapping[str, Any]
    left_out: tuple[str, ...]


def read_plan(path: Path, policies: Sequence[str] = (), settings: Sequence[str] = ()) -> SweepPlan:
    """Read a sweep file; docs/sweeps.md describes it.

    Args:
        path: The file.
        policies: These instead of the file's; empty for the file's.
        settings: Only the settings of these names; empty for all.

    Raises:
        InputError: The file or a value in it is wrong; the message names file, key and value.
    """
    text = read_text(path)
    with naming(path):
        table = TomlTable("", parse_toml(text))
        slurm, study = (table.table(key).values if key in table else {} for key in ("slurm", "study"))
        tasks = list(_tasks(table, policies, settings))
        named = dict.fromkeys(task.inputs.cluster for task in tasks)
        left_out = {cluster: left_out_line(load_cluster(cluster)) for cluster in named}
        lines = tuple(f"cluster {cluster}: {line}" for cluster, line in left_out.items() if line)
        return SweepPlan(tasks, slurm, study, lines)


def _tasks(table: TomlTable, policies: Sequence[str], names: Sequence[str]) -> Iterator[SweepTask]:
    for name, setting in _settings(table, names):
        asked = policies or setting.get("policies", [])
        if not (isinstance(asked, list | tuple) and asked and all(isinstance(each, str) for each in asked)):
            raise InputError(f"policies is {asked!r}, must be a list of at least one name")
        specs = dict.fromkeys(spec for each in asked for spec in alternatives(each))
        seeds = setting.get("seeds", [0])
        if not (isinstance(seeds, list) and seeds and all(type(seed) is int for seed in seeds)):
            raise InputError(f"seeds is {seeds!r}, must be a list of whole numbers")
        values = {key: value for key, value in setting.items() if key not in _PER_RUN}
        for key in ("trace", "cluster"):
            if key not in values:
                raise InputError(f"{key} is missing")
        choices = [_choices(key, value) for key, value in values.items()]
        for combination in product(*choices):
            chosen = dict(zip(values, combination, strict=True))
            for seed, spec in product(dict.fromkeys(seeds), specs):
                inputs = _inputs(chosen, seed)
                refuse_unmodelled([parse_policy(spec)], inputs.contention)
                _ = inputs.knows  # what is wrong with it is told before anything runs
                yield SweepTask(name, chosen, spec, inputs)


def _settings(table: TomlTable, names: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Each setting's name and values: its own, else those of the whole file."""
    table.check_keys((*_OWN_KEYS, *OPTIONS))
    common = {key: value for key, value in table.values.items() if key in (*_PER_RUN, *OPTIONS)}
    own = table.tables("settings") or (TomlTable("settings[0]", {}),)
    found: dict[str, dict[str, Any]] = {}
    for number, each in enumerate(own):
        each.check_keys(("name", *_PER_RUN, *OPTIONS))
        name = str(each.values.get("name", number if len(own) > 1 else ""))
        if name in found:
            raise InputError(f"{each.path}.name is {name!r}, like that of another setting")
        found[name] = common | {key: value for key, value in each.values.items() if key != "name"}
    if unknown := [name for name in names if name not in found]:
        raise InputError(f"no setting {unknown[0]!r}; settings: {', '.join(found)}")
    return [(name, values) for name, values in found.items() if not names or name in names]


def _choices(key: str, value: Any) -> list[object]:
    given = value if isinstance(value, list) else [value]
    if not given:
        raise InputError(f"{key} is an empty list")
    converted = [_converted(key, each) for each in given]
    if key != "trace":
        return list(dict.fromkeys(converted))
    return [each for spec in converted for each in (alternatives(spec) if is_generator(spec) else [spec])]


def _converted(key: str, value: object) -> Any:
    """A value as the option of `dally simulate` takes it."""
    option = OPTIONS[key]
    wanted = bool if option.is_flag else (int, float) if option.type is click.FLOAT else str
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        kind = "true or false" if wanted is bool else "a text" if wanted is str else "a number"
        raise InputError(f"{key} is {value!r}, must be {kind}")
    try:
        return option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise InputError(f"{key} is {value!r}: {error.message}") from error


def _inputs(values: Mapping[str, Any], seed: int) -> Inputs:
    fields = {str(OPTIONS[key].name): value for key, value in values.items()}
    if "batch_split" in fields:
        fields["batch_split"] = Split(fields["batch_split"])
    if "knowledge" in fields:
        fields["knowledge"] = Knowledge(fields["knowledge"])
    return Inputs(seed=seed, **fields)


def alternatives(spec: str) -> list[str]:
    """The specifications that one with alternatives stands for: `a:x=1|2` for `a:x=1` and `a:x=2`."""
    name, colon, knobs = spec.partition(":")
    choices = [
        [f"{knob}{equals}{value.strip()}" for value in values.split("|")]
        for knob, equals, values in (item.partition("=") for item in knobs.split(","))
    ]
    return [f"{name}{colon}{','.join(chosen)}" for chosen in product(*choices)]
