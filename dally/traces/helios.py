"""SenseTime Helios and Shanghai AI Laboratory's Acme as published: `cluster_log.csv`, `trace_kalos.csv`."""

from dally.traces.rows import (
    Draft,
    JobCollector,
    Omission,
    check_fields,
    check_header,
    csv_rows,
    number,
    timestamp_s,
    whole,
)

COLUMNS = ("job_id", "user", "gpu_num", "state", "submit_time", "duration")
_UNFINISHED = frozenset({"PENDING", "RUNNING"})


def matches(first_line: str) -> bool:
    """Whether a file's first line is Helios's or Acme's header."""
    return {"gpu_num", "submit_time"} <= set(first_line.split(","))


def read(text: str, collector: JobCollector) -> None:
    """Read the job log; Helios's `vc`, Acme's `type` becomes the group.

    Jobs without GPUs, jobs that run still and jobs that never started are left out.

    Raises:
        InputError: The header or a row is wrong.
    """
    rows = csv_rows(collector.source, text)
    _, header = next(rows)
    check_header(collector.source, header, COLUMNS)

    def build(fields: list[str]) -> Draft | Omission:
        check_fields(fields, len(header))
        row = dict(zip(header, fields, strict=True))
        gpus = whole(row["gpu_num"], "gpu_num")
        if gpus == 0:
            return Omission.NO_GPU
        if row["state"] in _UNFINISHED:
            return Omission.UNFINISHED
        if not row.get("start_time", "unknown"):
            return Omission.NEVER_STARTED
        return Draft(
            row["job_id"],
            timestamp_s(row["submit_time"], "submit_time"),
            gpus,
            number(row["duration"], "duration"),
            row["user"],
            row.get("vc") or row.get("type", ""),
            status=row["state"],
        )

    collector.collect(rows, build)
