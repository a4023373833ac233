"""Run folders are read back as they were written; damage is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.runs.records import JobRecord, JobsFile, read_events, read_jobs, read_run, write_jobs, write_run

RECORD = JobRecord(
    "a,1",
    "u",
    "g",
    "m",
    8,
    0.0,
    1.5,
    1001.25,
    500.0,
    900.0,
    100.25,
    3.5,
    14.0,
    0.0,
    1,
    0,
    "rack:2",
    "COMPLETED",
)
WAITING = JobRecord("b", "", "", "", 1, 10.0, None, None, 5.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0, 0, "", "WAITING")


def test_jobs_come_back_as_they_were(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.csv", [RECORD, WAITING])
    assert read_jobs(tmp_path) == [RECORD, WAITING]
    assert RECORD.jct_s == 1001.25


def test_records_come_in_any_order(tmp_path: Path) -> None:
    late = replace(RECORD, job_id="häufig\nor not", gpu_s=1.5)
    for records in ([RECORD, WAITING], [late, RECORD, WAITING]):
        file = JobsFile(tmp_path / "jobs.csv")
        for place, record in reversed(list(enumerate(records))):
            file.add(2 * place, record)
        file.close()
        assert read_jobs(tmp_path) == records
        assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job_id,gpus\n", "columns are not those of a run folder"),
        (
            "{header}\na,u,g,m,eight,0,0,9,5,9,0,0,0,0,0,0,,COMPLETED\n",
            r"jobs.csv:2: gpus is 'eight', must be a number",
        ),
        ("{header}\na,u,g,m,8\n", "jobs.csv:2: the line ends before column submit_s"),
    ],
)
def test_damaged_jobs_are_named(tmp_path: Path, text: str, message: str) -> None:
    write_jobs(tmp_path / "jobs.csv", [])
    header = (tmp_path / "jobs.csv").read_text().strip()
    (tmp_path / "jobs.csv").write_text(text.format(header=header))
    with pytest.raises(InputError, match=message):
        read_jobs(tmp_path)


def test_gpu_seconds_have_a_column_only_where_those_of_a_job_may_vary(tmp_path: Path) -> None:
    varied = replace(RECORD, gpu_s=9000.5)
    write_jobs(tmp_path / "jobs.csv", [RECORD, WAITING])
    assert "gpu_s" not in (tmp_path / "jobs.csv").read_text()
    write_jobs(tmp_path / "jobs.csv", [varied, WAITING])
    assert read_jobs(tmp_path) == [varied, WAITING]
    assert (RECORD.held_gpu_s, RECORD.mean_gpus) == (7200, 8)
    assert (varied.held_gpu_s, varied.mean_gpus) == (9000.5, 9000.5 / 900)


def test_plans_have_a_column_only_where_a_job_has_one(tmp_path: Path) -> None:
    planned = replace(RECORD, plan="tp=8,dp=2,micro=1,sequence=8192")
    for records in ([planned, WAITING], [planned, replace(RECORD, gpu_s=9000.5)], [WAITING]):
        write_jobs(tmp_path / "jobs.csv", records)
        assert read_jobs(tmp_path) == records
    assert "plan" not in (tmp_path / "jobs.csv").read_text()


def test_truncated_events_are_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"t":0,"event":"submit"}\n{"t":1,"ev')
    with pytest.raises(InputError, match=r"events.jsonl:2: not a JSON object, the file may be truncated"):
        list(read_events(tmp_path))


def test_a_run_of_another_schema_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "run.json", {"kind": "simulation"})
    assert read_run(tmp_path)["kind"] == "simulation"
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(InputError, match="not a run of schema 1"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 1')
    with pytest.raises(InputError, match="not JSON, the file may be truncated"):
        read_run(tmp_path)
