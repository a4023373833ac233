"""sacct's output as a trace: text and JSON, whole or odd."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces import RowError
from tests.dally.traces.test_formats import load

SACCT = """\
JobIDRaw|User|Account|Submit|Start|End|ElapsedRaw|State|AllocTRES|ReqTRES|TimelimitRaw|Partition|JobName
10|ann|lab|2024-05-01T10:00:00|2024-05-01T10:05:00|x|3600|COMPLETED|gres/gpu:a100=4,gres/gpu=4,n=1|gres/gpu=4|60|p|train
10.batch|||2024-05-01T10:00:00|2024-05-01T10:05:00|x|3600|COMPLETED|cpu=8,gres/gpu=4|||p|batch
9|bob|lab|2024-05-01T09:00:00|1714554300||60|CANCELLED by 1000|gres/gpu:a100=2|gres/gpu:a100=2|UNLIMITED|p|a|b
11|ann|lab|2024-05-01T11:00:00|2024-05-01T11:00:00|x|60|COMPLETED|cpu=4,gres/gpumem=3G|cpu=4||p|cpu
12|ann|lab|2024-05-01T11:00:00|Unknown|Unknown|0|PENDING||gres/gpu=8||p|waits
13|ann|lab|2024-05-01T11:00:00|None|2024-05-01T11:01:00|0|CANCELLED by 7||gres/gpu=8||p|never
"""


def test_sacct_takes_gpu_jobs_that_ran_and_counts_the_rest(tmp_path: Path) -> None:
    workload = load(tmp_path, SACCT)
    assert workload.jobs == (
        Job("9", 0, 2, 60, "bob", "lab", status="CANCELLED", gpu_type="a100", job_name="a|b", partition="p"),
        Job(
            "10",
            3600,
            4,
            3600,
            "ann",
            "lab",
            status="COMPLETED",
            time_limit_s=3600,
            job_name="train",
            partition="p",
        ),
    )
    assert workload.dropped == {"a job step": 1, "uses no GPU": 1, "not finished": 1, "never started": 1}
    assert workload.origin == "2024-05-01T09:00:00+00:00"


def test_sacct_reads_trailing_separators_array_ids_and_other_column_orders(tmp_path: Path) -> None:
    text = "State|JobID|ReqTRES|ElapsedRaw|Submit|\nFAILED|5_1|gres/gpu=1|7|1714557600|\n"
    text += "FAILED|6+1|gres/gpu:h100=2|7|2024-05-01T10:00:01|\n"
    assert load(tmp_path, text).jobs == (
        Job("5_1", 0, 1, 7, status="FAILED"),
        Job("6+1", 1, 2, 7, status="FAILED", gpu_type="h100"),
    )


def test_sacct_takes_times_with_colons_where_the_raw_ones_are_missing(tmp_path: Path) -> None:
    text = "JobID|Submit|Elapsed|State|ReqTRES|Timelimit\n"
    text += "1|2024-05-01T10:00:00|1-02:03:04|F|gres/gpu=1|2-00:00:00\n"
    text += "2|2024-05-01T10:00:00|00:00:10|F|gres/gpu=1|UNLIMITED\n"
    text += "3|2024-05-01T10:00:00|00:00:10|F|gres/gpu=1|Partition_Limit\n"
    text += "4|2024-05-01T10:00:00|03:04|F|gres/gpu=1|00:00:00\n"
    assert load(tmp_path, text).jobs == (
        Job("1", 0, 1, 93_784, status="F", time_limit_s=172_800),
        Job("2", 0, 1, 10, status="F"),
        Job("3", 0, 1, 10, status="F"),
        Job("4", 0, 1, 184, status="F"),
    )
    with pytest.raises(RowError, match="line 2: Elapsed is '26h', must be a time like 1-02:03:04"):
        load(tmp_path, text.replace("1-02:03:04", "26h"))


def test_of_several_records_of_a_job_the_last_counts_wherever_it_stands(tmp_path: Path) -> None:
    first, last = (
        f"5|2024-05-01T{hour}:00:00|{run_s}|{state}|gres/gpu=1\n"
        for hour, run_s, state in ((10, 60, "PREEMPTED"), (12, 90, "COMPLETED"))
    )
    for rows in (first + last, last + first, last + last + first):
        workload = load(tmp_path, "JobID|Submit|ElapsedRaw|State|ReqTRES\n" + rows)
        assert workload.jobs == (Job("5", 0, 1, 90, status="COMPLETED"),)
        assert workload.dropped == {"an older record of a job": rows.count("\n") - 1}


def test_sacct_exports_may_follow_one_another_headers_and_all(tmp_path: Path) -> None:
    assert (
        load(tmp_path, SACCT + SACCT.replace("2024-05", "2024-06").replace("\n10|", "\n20|")).jobs[-1].job_id
        == "20"
    )


def test_a_later_header_of_other_columns_is_an_error(tmp_path: Path) -> None:
    other = "State|JobID|Submit|ElapsedRaw|ReqTRES\nF|5|2024-05-01T10:00:00|9|gres/gpu=1\n"
    with pytest.raises(InputError, match="line 8: a header of other columns than the first, JobIDRaw"):
        load(tmp_path, SACCT + other, skip_bad=True)


def test_jobs_of_two_clusters_are_not_mixed(tmp_path: Path) -> None:
    text = "JobID|Cluster|Submit|ElapsedRaw|State|ReqTRES\n"
    text += "".join(
        f"{number}|{cluster}|2024-05-01T10:00:00|9|F|gres/gpu={gpus}\n"
        for number, cluster, gpus in ((1, "east", 0), (2, "west", 1), (3, "east", 1), (4, "west", 1))
    )
    with pytest.raises(RowError, match="line 4: the job is of cluster 'east', those before are of 'west'"):
        load(tmp_path, text)
    workload = load(tmp_path, text, skip_bad=True)
    assert [job.job_id for job in workload.jobs] == ["2", "4"]
    assert workload.dropped == {"uses no GPU": 1, "of another cluster than the first job": 1}


@pytest.mark.parametrize("wrapped", [False, True], ids=["Slurm 21.08 to 23.02", "Slurm 23.11 and newer"])
def test_sacct_json_has_the_same_jobs(tmp_path: Path, wrapped: bool) -> None:
    def number(value: int | None) -> object:
        said = {"set": value is not None, "infinite": False, "number": value or 0}
        return said if wrapped else 2**32 - 1 if value is None else value

    def job(job_id: int, state: str, limit: int | None, start: int = 1714557660) -> dict[str, Any]:
        gpu = {"type": "gres", "name": "gpu", "id": 1001, "count": 4}
        typed = {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4}
        return {
            "job_id": job_id,
            "name": "a|b",
            "association": {"account": "lab", "cluster": "c", "partition": None, "user": "ann"},
            "nodes": "n[1-2]",
            "state": {"current": [state] if wrapped else state, "reason": "None"},
            "time": {"submission": 1714557600, "start": start, "elapsed": 60, "limit": number(limit)},
            "tres": {
                "allocated": [{"type": "cpu", "name": None, "count": 8}, gpu],
                "requested": [gpu, typed],
            },
        }

    jobs = [
        job(7, "COMPLETED", 60),
        job(8, "FAILED", None),
        job(9, "PENDING", 60),
        job(10, "CANCELLED", 60, 0),
    ]
    workload = load(tmp_path, json.dumps({"meta": {}, "jobs": jobs}, indent=2 if wrapped else None))
    expected = Job(
        "7", 0, 4, 60, "ann", "lab", status="COMPLETED", gpu_type="a100", time_limit_s=3600, job_name="a|b"
    )
    assert workload.jobs == (expected, replace(expected, job_id="8", status="FAILED", time_limit_s=None))
    assert workload.dropped == {"never started": 1, "not finished": 1}
    assert workload.format == "sacct"


def test_half_a_character_in_json_is_one_skipped_row(tmp_path: Path) -> None:
    job = {"state": {"current": "F"}, "time": {"submission": 9, "start": 9, "elapsed": 1}, "tres": {}}
    gpu = {"tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 1}]}}
    text = json.dumps({"jobs": [job | gpu | {"job_id": 1, "name": "\ud800"}, job | gpu | {"job_id": 2}]})
    with pytest.raises(RowError, match=r"job 1: '.ud800' is not Unicode text"):
        load(tmp_path, text)
    assert [job.job_id for job in load(tmp_path, text, skip_bad=True).jobs] == ["2"]


def test_an_entry_that_is_not_sacct_s_is_skipped_and_counted_as_rows_of_text_are(tmp_path: Path) -> None:
    job = {
        "job_id": 7,
        "state": {"current": ["COMPLETED"]},
        "time": {"submission": 1714557600, "start": 1714557600, "elapsed": 60},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 4}]},
    }
    bad = [3, {"job_id": 1}, {**job, "name": {"en": "a"}}, {**job, "time": {"elapsed": "long"}}]
    workload = load(tmp_path, json.dumps({"jobs": [*bad, job]}), skip_bad=True)
    assert [found.job_id for found in workload.jobs] == ["7"]
    assert workload.dropped == {"not built like those of `sacct --json`": 4}


@pytest.mark.parametrize(
    ("eligible", "submit_s"),
    [
        ("10:20:00", 1200.0),
        ("09:50:00", 0.0),
        ("10:40:00", 0.0),
    ],
    ids=["after the submission", "before it", "after the start"],
)
def test_a_job_comes_when_it_is_eligible(tmp_path: Path, eligible: str, submit_s: float) -> None:
    """Both are submitted at 10:00; the second starts at 10:30."""
    rows = [
        "1|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T10:00:00|60|COMPLETED|gres/gpu=1",
        f"2|2024-05-01T10:00:00|2024-05-01T{eligible}|2024-05-01T10:30:00|60|COMPLETED|gres/gpu=1",
    ]
    header = "JobIDRaw|Submit|Eligible|Start|ElapsedRaw|State|AllocTRES"
    workload = load(tmp_path, "\n".join([header, *rows]) + "\n")
    assert [job.submit_s for job in workload.jobs] == [0.0, submit_s]
    assert workload.ran["2"].start_s == 1800


@pytest.mark.parametrize(
    ("first_line", "hint"),
    [("JobIDRaw;Submit;State", "without --delimiter"), ("1|ann|2024-05-01T10:00:00", "leave out --noheader")],
)
def test_what_helps_with_sacct_s_other_shapes_is_told(tmp_path: Path, first_line: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, f"{first_line}\n")
    assert hint in caught.value.hint


def test_an_export_without_gpus_tells_where_slurm_counts_them(tmp_path: Path) -> None:
    text = SACCT.replace("gres/gpu", "gres/disk")
    with pytest.raises(InputError, match=r"no jobs in it; left out [0-9]+: uses no GPU") as caught:
        load(tmp_path, text)
    assert "AccountingStorageTRES" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("|3600|COMPLETED->|-1|COMPLETED", "line 2: job 10: duration_s is -1"),
        ("2024-05-01T10:00:00|2024->yesterday|2024", "line 2: Submit is 'yesterday', must be a date"),
        ("2024-05-01T10:00:00|2024->170000000000000000|2024", "line 2: Submit is '170000000000000000', must"),
        (
            "|gres/gpu:a100=2|UN->|gres/gpu:a100=1,gres/gpu:h100=1|UN",
            "line 4: ReqTRES names several GPU types",
        ),
        ("|60|p|train->|soon|p|train", "line 2: time limit is 'soon'"),
        ("|gres/gpu=4|60->|60", "line 2: the row has 12 fields, must have 13"),
        ("gres/gpu=4,n=1->gres/gpu=many,n=1", "line 2: gres/gpu is 'many'"),
    ],
)
def test_a_wrong_sacct_row_is_an_error(tmp_path: Path, change: str, message: str) -> None:
    old, new = change.split("->")
    assert old in SACCT
    with pytest.raises(RowError) as caught:
        load(tmp_path, SACCT.replace(old, new))
    assert message in str(caught.value)


def test_a_name_in_latin_1_is_one_skipped_row_of_sacct(tmp_path: Path) -> None:
    lines = SACCT.encode().splitlines(keepends=True)
    wrong = lines[1].replace(b"ann", "zoé".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 2: byte 0xe9 in 'zo.*' is not UTF-8"):
        load(tmp_path, b"".join([lines[0], wrong, *lines[2:]]))
    workload = load(tmp_path, b"".join([lines[0], wrong, *lines[2:]]), skip_bad=True)
    assert len(workload.jobs) == len(load(tmp_path, SACCT).jobs) - 1
    assert workload.dropped["bytes that are not UTF-8"] == 1
