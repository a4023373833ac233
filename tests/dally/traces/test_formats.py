import gzip
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.traces import RowError, Workload, load_trace
from dally.traces.rows import Draft

HEADER = "job_id,submit_s,gpus,duration_s,user,group,model,status\n"


SWF = """\
; Version: 2.2
; UnixStartTime: 0
  1   10 5 100  8 -1 -1 16 600 -1 1  3  2 -1 1 -1 -1 -1
  2    4 0  50 -1 -1 -1  4  -1 -1 0 -1 -1 -1 1 -1 -1 -1
  3   20 9  -1 -1 -1 -1  4  -1 -1 5 -1 -1 -1 1 -1 -1 -1
  4   20 9  10  1 -1 -1  1  -1 -1 2 -1 -1 -1 1 -1 -1 -1
"""

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,vcA,8,32,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
6,u2,vcB,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
8,u2,vcB,0,4,1,COMPLETED,2020-06-09 18:42:01,2020-06-09 18:42:01,2020-06-10 04:55:09,36848,0
"""


def philly_job(**changes: Any) -> dict[str, Any]:
    attempt = {
        "start_time": "2017-10-07 01:00:00",
        "end_time": "2017-10-07 01:01:00",
        "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}],
    }
    job = {
        "status": "Pass",
        "vc": "v",
        "jobid": "a1",
        "attempts": [attempt, attempt],
        "submitted_time": "2017-10-07 00:59:00",
        "user": "u",
    }
    return job | changes


def load(folder: Path, content: str | bytes, **options: Any) -> Workload:
    path = folder / "trace"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_trace(path, **options)


def test_a_draft_has_the_fields_of_a_job_in_order() -> None:
    assert Draft._fields == (*(field.name for field in fields(Job) if field.init), "ran")
    assert Draft("a", 0, 1, 1)[4:-1] == tuple(
        getattr(Job("a", 0, 1, 1), name) for name in Draft._fields[4:-1]
    )


def test_csv_is_sorted_by_submission_and_starts_at_zero(tmp_path: Path) -> None:
    workload = load(tmp_path, HEADER + "b,30,8,60,u,g,m,COMPLETED\na,10,1,5.5,,,,\nc,10,2,7,,,,\n")
    assert workload.jobs == (
        Job("a", 0, 1, 5.5),
        Job("c", 0, 2, 7),
        Job("b", 20, 8, 60, "u", "g", "m", "COMPLETED"),
    )
    assert (workload.format, workload.origin) == ("csv", "10 s")


def test_csv_takes_optional_columns_in_any_order(tmp_path: Path) -> None:
    text = "gpus,job_id,duration_s,submit_s,kind,min_gpus,max_gpus,gpu_type,time_limit_s,max_copies\n"
    workload = load(tmp_path, text + "4,a,9,0,elastic,2,8,a100,100,\n1,b,9,0,forked,,,,,3\n")
    assert workload.jobs == (
        Job("a", 0, 4, 9, gpu_type="a100", kind=JobKind.ELASTIC, min_gpus=2, max_gpus=8, time_limit_s=100),
        Job("b", 0, 1, 9, kind=JobKind.FORKED, max_copies=3),
    )


def test_gzip_is_recognised_by_content_and_hashed_as_stored(tmp_path: Path) -> None:
    plain = load(tmp_path, HEADER + "a,0,1,5,,,,\n")
    packed = load(tmp_path, gzip.compress((HEADER + "a,0,1,5,,,,\n").encode()))
    assert packed.jobs == plain.jobs
    assert packed.sha256 != plain.sha256


def test_swf_takes_processors_as_gpus_and_minus_one_as_missing(tmp_path: Path) -> None:
    workload = load(tmp_path, SWF)
    assert workload.format == "swf"
    assert workload.jobs == (
        Job("2", 0, 4, 50, status="FAILED"),
        Job("1", 6, 8, 100, "3", "2", status="COMPLETED", time_limit_s=600),
    )
    assert workload.dropped == {"never started": 1, "a part of a job (status 2 to 4)": 1}


def test_helios_takes_vc_as_group_and_leaves_cpu_jobs_out(tmp_path: Path) -> None:
    workload = load(tmp_path, HELIOS)
    assert workload.jobs == (
        Job("6", 0, 1, 36848, "u2", "vcB", status="COMPLETED"),
        Job("7", 26, 8, 249, "u1", "vcA", status="FAILED"),
    )
    assert workload.dropped == {"uses no GPU": 1}


def test_acme_is_read_like_helios_with_the_type_as_group(tmp_path: Path) -> None:
    text = (
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,type,state,submit_time,start_time,duration,queue\n"
        "d1,u1,8,64,960,1000,Pretrain,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,18,10.0\n"
        "d2,u1,1,8,96,1000,Other,RUNNING,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,18,10.0\n"
        "d3,u1,1,8,96,1000,Other,CANCELLED,2023-05-17 11:00:58+00:00,,0,\n"
    )
    workload = load(tmp_path, text)
    assert workload.jobs == (Job("d1", 0, 64, 18, "u1", "Pretrain", status="FAILED"),)
    assert workload.dropped == {"never started": 1, "not finished": 1}


def test_philly_sums_attempts_and_counts_gpus_of_the_last(tmp_path: Path) -> None:
    running = philly_job(jobid="r", attempts=[philly_job()["attempts"][0] | {"end_time": None}])
    text = json.dumps([philly_job(), philly_job(jobid="n", attempts=[]), running], indent=1)
    workload = load(tmp_path, text)
    assert workload.format == "philly"
    assert workload.jobs == (Job("a1", 0, 3, 120, "u", "v", status="COMPLETED"),)
    assert workload.dropped == {"never started": 1, "not finished": 1}


@pytest.mark.parametrize(
    "text",
    [
        '"job_id","submit_s","gpus","duration_s"\n"a","0","8","5"\n',  # R's write.csv
        "job_id, submit_s, gpus, duration_s\na, 0, 8, 5\n",
        "job_id,submit_s,gpus,duration_s\na,0.0,8.0,5.0\n",  # pandas, of a column with gaps
    ],
)
def test_csv_is_read_as_other_programs_write_it(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).jobs == (Job("a", 0, 8, 5),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,0,1,0,,,,", "line 2: job a: duration_s is 0, must be a positive number"),
        ("a,0,1,-3,,,,", "line 2: job a: duration_s is -3"),
        ("a,0,1,nan,,,,", "line 2: job a: duration_s is nan"),
        ("a,0,1,inf,,,,", "line 2: job a: duration_s is inf"),
        ("a,0,1,x,,,,", "line 2: duration_s is 'x', must be a number"),
        ("a,-1,1,5,,,,", "line 2: job a: submit_s is -1"),
        ("a,0,0,5,,,,", "line 2: job a: gpus is 0"),
        ("a,0,1.5,5,,,,", "line 2: gpus is '1.5', must be a whole number"),
        (",0,1,5,,,,", "line 2: job_id is empty"),
        ("a,0,1,5,,,", "line 2: the row has 7 fields, must have 8"),
        ("a,0,1,5,,,,\na,1,1,5,,,,", "line 3: job_id 'a' was already used on line 2"),
    ],
)
def test_a_wrong_csv_row_is_named_or_skipped_and_counted(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(RowError) as caught:
        load(tmp_path, HEADER + row + "\n")
    assert str(caught.value).startswith(f"{tmp_path / 'trace'}, {message}")
    workload = load(tmp_path, HEADER + row + "\nz,5,1,5,,,,\n", skip_bad=True)
    assert workload.jobs[-1].job_id == "z"
    assert workload.dropped == {caught.value.reason: 1}


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("kind", "square", "kind is 'square', must be one of rigid, elastic, forked"),
        ("min_gpus", "9", "min_gpus 9, gpus 1"),
        ("max_copies", "0", "max_copies is 0"),
        ("max_copies", "2", "max_copies is 2, but only forked jobs have copies"),
        ("time_limit_s", "-5", "time limit is -5"),
    ],
)
def test_a_wrong_optional_field_is_an_error(tmp_path: Path, header: str, row: str, message: str) -> None:
    with pytest.raises(RowError, match=message):
        load(tmp_path, f"job_id,submit_s,gpus,duration_s,{header}\na,0,1,5,{row}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        ("hello world\n", "the first line 'hello world' fits no trace format; formats: helios, csv"),
        ("job_id,submit_s,user\n", "missing columns: gpus, duration_s; found: job_id, submit_s, user"),
        (HEADER.replace("user", "usr"), "unknown columns: 'usr'; known: job_id"),
        (HEADER.replace("user", "gpus"), "columns given twice: gpus"),
        (HEADER, "no jobs in it"),
        (HEADER + 'a,0,1,5,"x,,,\n', "broken CSV"),
        ("JobIDRaw|State\n", "missing columns: Submit"),
        ("JobIDRaw|State|Submit|ReqTRES\n", "missing columns: ElapsedRaw or Elapsed"),
        ('{"jobs": 3}', "the JSON has no list of jobs, as `sacct --json` has"),
        (
            '{"jobs": [{"job_id": 1}]}',
            "trace, job 1: not built like those of `sacct --json`: it lacks 'time'",
        ),
        ('{"jobs": [', "broken JSON"),
        ("JobIDRaw|State|Submit|ElapsedRaw\n", "missing columns: AllocTRES or ReqTRES"),
        ("job_id,gpu_num,submit_time\n", "missing columns: user, state, duration"),
        ("; only comments\n", "no jobs in it"),
        ("[{]", "broken JSON"),
        ("[" * 100_000, "broken JSON"),
        ("[]", "no jobs in it"),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*$") as caught:
        load(tmp_path, text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1 0 0 9 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1", "the row has 17 fields, must have 18"),
        ("1 0 0 9 -1 -1 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1", "job 1: gpus is -1"),
        ("1 0 0 -1 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1", "job 1: duration_s is -1"),
        ("1 -1 0 9 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1", "job 1: submit_s is -1"),
        ("1 0 0 9 1 -1 -1 1 -1 -1 7 1 1 -1 1 -1 -1 -1", "status is '7'"),
    ],
)
def test_a_wrong_swf_row_is_an_error(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(RowError, match=message):
        load(tmp_path, f"; c\n{row}\n")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"jobid": "x"}, "job 1: the entry lacks the key 'attempts' of Philly's log"),
        (3, "job 1: the entry is not built like Philly's"),
        (philly_job(jobid=5), "job 1: the entry is not built like Philly's: 5 is no text"),
        (philly_job(user="\ud800"), "job 1: '\\ud800' is not Unicode text"),
        (philly_job(status="Lost"), "job 1: status is 'Lost', must be one of Pass, Failed, Killed"),
        (philly_job(submitted_time="None"), "job 1: submitted_time is 'None', must be a date"),
        (
            philly_job(attempts=[philly_job()["attempts"][0] | {"start_time": None}]),
            "an attempt has no start_time",
        ),
        (
            philly_job(attempts=[philly_job()["attempts"][0] | {"start_time": "2018-01-01 00:00:00"}]),
            "an attempt ends before it starts",
        ),
    ],
)
def test_a_wrong_philly_entry_is_an_error(tmp_path: Path, entry: object, message: str) -> None:
    with pytest.raises(RowError) as caught:
        load(tmp_path, json.dumps([entry]))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("first_line", "hint"),
    [
        ("JobID,State,Elapsed", "`sacct -P` or `sacct --json` is read"),
        ("job_id;submit_s;gpus;duration_s", "with the columns job_id, submit_s, gpus, duration_s"),
        ("time,name,application,num_replicas", "with the columns job_id, submit_s, gpus, duration_s"),
    ],
)
def test_an_unknown_format_tells_what_would_be_read(tmp_path: Path, first_line: str, hint: str) -> None:
    with pytest.raises(InputError, match="fits no trace format") as caught:
        load(tmp_path, first_line + "\n1\n")
    assert hint in caught.value.hint


def test_truncated_and_damaged_gzip_are_errors(tmp_path: Path) -> None:
    packed = gzip.compress(("".join(f"{at}\n" for at in range(10_000))).encode())
    with pytest.raises(InputError, match="truncated"):
        load(tmp_path, packed[:-100])
    with pytest.raises(InputError, match="damaged gzip"):
        load(tmp_path, packed[:50] + bytes([packed[50] ^ 0xFF]) + packed[51:])


def test_bad_utf8_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: byte 0xff in 'a.*' is not UTF-8"):
        load(tmp_path, HEADER.encode() + b"a\xff,0,1,5,,,,\n")
    with pytest.raises(InputError, match="line 1: byte 0xff is not UTF-8"):
        load(tmp_path, b"\xff" + HEADER.encode())


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no generator of that name; generators: dally-batch"):
        load_trace(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="no plain file"):
        load_trace(tmp_path)


def test_the_format_can_be_forced_and_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing columns: gpu_num, state"):
        load(tmp_path, HEADER, trace_format="helios")
    with pytest.raises(InputError, match="unknown trace format 'xml', must be one of helios, csv"):
        load(tmp_path, HEADER, trace_format="xml")


def test_short_durations_are_raised_on_request_and_counted(tmp_path: Path) -> None:
    workload = load(tmp_path, HEADER + "a,0,1,0,,,,\nb,0,1,59,,,,\nc,0,1,60,,,,\n", min_duration_s=60)
    assert [job.duration_s for job in workload.jobs] == [60, 60, 60]
    assert workload.clamped == 2
    with pytest.raises(RowError, match="duration_s is -1"):
        load(tmp_path, HEADER + "a,0,1,-1,,,,\n", min_duration_s=60)


def test_a_slice_counts_from_the_files_own_zero_and_is_rebased(tmp_path: Path) -> None:
    text = HEADER + "".join(f"j{at},{at * 10},1,5,,,,\n" for at in range(1, 6))
    workload = load(tmp_path, text, start_s=20, end_s=40)
    assert [(job.job_id, job.submit_s) for job in workload.jobs] == [("j2", 0), ("j3", 10)]
    assert (workload.outside, workload.origin) == (3, "20 s")


def test_a_slice_of_dated_jobs_counts_from_the_first_submission(tmp_path: Path) -> None:
    workload = load(tmp_path, HELIOS, start_s=26)
    assert [job.job_id for job in workload.jobs] == ["7"]
    assert workload.origin == "2020-06-09T18:41:27+00:00"


def test_an_empty_slice_is_an_error(tmp_path: Path) -> None:
    text = HEADER + "a,0,1,5,,,,\n"
    with pytest.raises(InputError, match="no job was submitted from 5 s to 9 s; the last one is at 0 s"):
        load(tmp_path, text, start_s=5, end_s=9)
    with pytest.raises(InputError, match="the slice from 9 s to 5 s is empty"):
        load(tmp_path, text, start_s=9, end_s=5)


def test_a_trace_that_unpacks_beyond_all_bounds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dally.traces.load._MOST_BYTES", 1_000)
    with pytest.raises(InputError, match="more than 1,000 bytes"):
        load(tmp_path, gzip.compress(bytes(2_000)))
