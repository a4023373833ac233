"""sacct's output without the names of people and projects, the same one always replaced alike."""

from collections.abc import Collection, Iterator
from pathlib import Path

from analysis.advise.history import read_whole, sacct_rows
from analysis.advise.naming import NamingRules
from dally.atomic_file import write_atomically
from dally.errors import InputError
from dally.traces.load import pick_format

_KEPT = (
    "JobIDRaw",
    "User",
    "Account",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "State",
    "AllocTRES",
    "ReqTRES",
    "TimelimitRaw",
    "NodeList",
    "JobName",
)
"""What advice needs; all other columns stay at home. JobName is last, as sacct's own may hold a `|`."""


class _Labels:
    """A short label for each name, numbered as the names come; the empty name stays empty."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._known: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self._known.setdefault(name, f"{self._kind}{len(self._known) + 1}") if name else ""


def anonymise(path: Path, target: Path, rules: NamingRules, models: Collection[str] = ()) -> int:
    """Write the GPU jobs of sacct's output with users, accounts and job names replaced.

    Names that the rules know become their model, so that the models are still known afterwards.

    Returns:
        How many jobs were written.

    Raises:
        InputError: The file is not sacct's output, truncated, or has no GPU jobs.
    """
    text = read_whole(path)
    if pick_format(str(path), text).name != "sacct":
        raise InputError(f"{path}: only sacct's output is anonymised, this is another format")
    lines = list(_lines(text, rules, models))
    if len(lines) < 2:
        raise InputError(f"{path}: no GPU jobs in it")
    write_atomically(target, "\n".join(lines) + "\n", mode=0o600)
    return len(lines) - 1


def _lines(text: str, rules: NamingRules, models: Collection[str]) -> Iterator[str]:
    rows = [
        row
        for _, row in sacct_rows(text)
        if "." not in (row.get("JobIDRaw") or row.get("JobID", ""))
        and "gres/gpu" in row.get("AllocTRES", "") + row.get("ReqTRES", "")
    ]
    columns = [name for name in _KEPT if rows and name in {"JobIDRaw": "", **rows[0]}]
    labels = {"User": _Labels("user"), "Account": _Labels("account"), "JobName": _Labels("name")}
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
