"""The Standard Workload Format 2.2 of the Parallel Workloads Archive; processors are taken as GPUs."""

from dally.traces.rows import Draft, JobCollector, Omission, RowError, number, time_limit, whole

_FIELDS = 18
_STATUS = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED", "-1": ""}
_PARTIAL = frozenset({"2", "3", "4"})


def matches(first_line: str) -> bool:
    """Whether a file's first line is a `;` comment or has 18 fields led by a number."""
    fields = first_line.split()
    return first_line.startswith(";") or (len(fields) == _FIELDS and fields[0].isdecimal())


def read(text: str, collector: JobCollector) -> None:
    """Read an SWF file; -1 means missing.

    Raises:
        InputError: A row is wrong.
    """
    numbered = enumerate(text.splitlines(), 1)
    rows = ((at, line.split()) for at, line in numbered if line.strip() and not line.lstrip().startswith(";"))
    collector.collect(rows, _draft)


def _draft(fields: list[str]) -> Draft | Omission:
    """The draft of one line (fields counted from 1 in the format's definition)."""
    if len(fields) != _FIELDS:
        raise RowError("wrong number of fields", f"the row has {len(fields)} fields, must have {_FIELDS}")
    status, duration_s = fields[10], number(fields[3], "run time")
    if status in _PARTIAL:
        return Omission.PARTIAL
    if status not in _STATUS:
        raise RowError("unknown status", f"status is {status!r}, must be -1 to 5")
    if status == "5" and duration_s <= 0:
        return Omission.NEVER_STARTED
    gpus = whole(fields[4], "allocated processors")
    if gpus == -1:
        gpus = whole(fields[7], "requested processors")
    return Draft(
        fields[0],
        number(fields[1], "submit time"),
        gpus,
        duration_s,
        _known(fields[11]),
        _known(fields[12]),
        status=_STATUS[status],
        time_limit_s=time_limit(_known(fields[8])),
    )


def _known(text: str) -> str:
    """A field, empty where it is missing."""
    return "" if text == "-1" else text
