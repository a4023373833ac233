"""Names of jobs: which model they tell, by an administrator's rules, and sacct's output without names."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from analysis.advise.history import read_whole, sacct_rows
from dally.atomic_file import write_atomically
from dally.config_text import parse_toml, read_text
from dally.errors import InputError
from dally.traces.load import pick_format
from dally.traces.rows import RowError


@dataclass(frozen=True, slots=True)
class NamingRules:
    """Patterns of job names, as a shell has them, each with a model; the first that fits counts."""

    models: Mapping[str, str] = field(default_factory=dict)

    def model_of(self, name: str, known: Collection[str] = ()) -> str:
        """The model of a job's name; empty if no rule fits. A name that is a known model's needs no rule."""
        lower = name.lower()
        for pattern, model in self.models.items():
            if fnmatchcase(lower, pattern.lower()):
                return model
        return next((model for model in known if model.lower() == lower), "")


def read_rules(path: Path) -> NamingRules:
    """Read rules from a TOML file with one table, `[models]`, of `"pattern" = "model"`.

    Raises:
        InputError: It cannot be read, or has anything else in it.
    """
    text = read_text(path)
    try:
        said = parse_toml(text)
    except InputError as error:
        raise InputError(f"{path}: no TOML file: {error}") from error
    models = said.get("models")
    if set(said) != {"models"} or not isinstance(models, dict) or not models:
        raise InputError(f'{path}: must have one table, [models], of lines like "*bert*" = "bert-large"')
    for pattern, model in models.items():
        if not isinstance(model, str) or not model:
            raise InputError(f"{path}: the model of {pattern!r} is {model!r}, must be a name")
    return NamingRules(models)


def check_models(rules: NamingRules, known: Collection[str], where: Path) -> None:
    """Refuse rules that name models without a profile.

    Raises:
        InputError: A model is not known; names it and those that are.
    """
    for pattern, model in rules.models.items():
        if model not in known:
            raise InputError(
                f"{where}: {pattern!r} is of model {model!r}, of which there is no profile; "
                f"the profiles have {', '.join(known)}"
            )


COLUMNS = (
    "JobIDRaw,Cluster,User,Account,Submit,Eligible,Start,End,ElapsedRaw,Elapsed,State,AllocTRES,ReqTRES,"
    "TimelimitRaw,Timelimit,NodeList,Partition,JobName"
)
"""What advice needs; all other columns stay at home. JobName is last, as sacct's own may hold a `|`."""


class _Labels:
    """A short label for each name, numbered as the names come; the empty name stays empty."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._known: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self._known.setdefault(name, f"{self._kind}{len(self._known) + 1}") if name else ""


def anonymise(
    path: Path, target: Path, rules: NamingRules, models: Collection[str] = (), skip_bad: bool = False
) -> tuple[int, int]:
    """Write the GPU jobs of sacct's output with users, accounts and job names replaced.

    Names that the rules know become their model, so that the models are still known afterwards.

    Returns:
        How many jobs were written, and how many rows are wrong and were left out.

    Raises:
        InputError: The file is not sacct's output, truncated, or has no GPU jobs; or, unless such rows are to
            be skipped, a row is wrong.
    """
    text, _ = read_whole(path)
    if pick_format(str(path), text).name != "sacct":
        raise InputError(f"{path}: only sacct's output is anonymised, this is another format")
    bad: list[RowError] = []
    lines = list(_lines(sacct_rows(str(path), text, bad.append), rules, models))
    if bad and not skip_bad:
        raise bad[0]
    if len(lines) < 2:
        raise InputError(f"{path}: no GPU jobs in it")
    write_atomically(target, "\n".join(lines) + "\n", mode=0o600)
    return len(lines) - 1, len(bad)


def _lines(jobs: Iterable[Mapping[str, str]], rules: NamingRules, models: Collection[str]) -> Iterator[str]:
    rows = [
        row
        for row in jobs
        if "." not in (row.get("JobIDRaw") or row.get("JobID", ""))
        and "gres/gpu" in row.get("AllocTRES", "") + row.get("ReqTRES", "")
    ]
    columns = [name for name in COLUMNS.split(",") if rows and name in {"JobIDRaw": "", **rows[0]}]
    kinds = {"Cluster": "cluster", "User": "user", "Account": "account", "JobName": "name"}
    labels = {column: _Labels(kind) for column, kind in kinds.items()}
    yield "|".join(columns)
    for row in rows:
        said = {
            **row,
            "JobIDRaw": row.get("JobIDRaw") or row.get("JobID", ""),
            "State": row.get("State", "").partition(" ")[0],  # of `CANCELLED by 1000`
            **{name: label[row.get(name, "")] for name, label in labels.items()},
        }
        said["JobName"] = rules.model_of(row.get("JobName", ""), models) or said["JobName"]
        yield "|".join(said[name] for name in columns)
