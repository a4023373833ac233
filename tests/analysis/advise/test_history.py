"""A history is read with its real starts, and what is wrong with a file is one clear line."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.advise.history import idle_share, most_gpus_held, read_history
from dally.errors import InputError
from tests.analysis.advise.histories import HEADER, Row, read, sacct, written

CSV = "job_id,submit_s,gpus,duration_s\na,0,1,5\nb,3,2,7\n"


def test_starts_are_seconds_from_the_first_submission(tmp_path: Path) -> None:
    first, second = read(tmp_path, [Row(100, 130, 10), Row(150, 150, 20, name="a|b", nodes="n1")]).jobs
    assert (first.job.submit_s, first.start_s, first.wait_s) == (0, 30, 30)
    assert (second.job.submit_s, second.start_s, second.job.job_name, second.nodes) == (50, 50, "a|b", "n1")


def test_a_job_that_was_held_back_counts_from_when_it_was_eligible(tmp_path: Path) -> None:
    jobs = read(tmp_path, [Row(0, 500, 10, eligible_s=400), Row(10, 20, 10)]).jobs
    assert [(past.job.job_id, past.job.submit_s, past.wait_s) for past in jobs] == [
        ("2", 0, 10),
        ("1", 390, 100),
    ]


def test_gpus_are_shared_out_over_as_many_nodes_as_there_were(tmp_path: Path) -> None:
    text = sacct([Row(0, 0, 10, gpus) for gpus in (8, 8, 7, 1)])
    for number, nodes in enumerate((2, 0, 2, 1), 1):
        row = text.splitlines()[number]
        told = row.replace("|cpu=1,gres", f"|cpu=1,node={nodes},gres") if nodes else row
        text = text.replace(row, told)
    path = tmp_path / "jobs.sacct"
    path.write_text(text)
    assert [past.job.gpus_per_machine for past in read_history(path).jobs] == [4, None, None, 1]


def test_a_start_before_the_submission_is_no_start(tmp_path: Path) -> None:
    history = read(tmp_path, [Row(100, 90, 10), Row(100, 110, 10)])
    assert [past.start_s for past in history.jobs] == [None, 10]
    assert len(history.started) == 1


@pytest.mark.parametrize("order", [1, -1], ids=["in time", "backwards"])
def test_of_a_requeued_job_the_last_run_counts_with_its_own_start(tmp_path: Path, order: int) -> None:
    header, *rows = sacct(
        [Row(0, 10, 60, state="PREEMPTED"), Row(100, 150, 90), Row(500, 501, 9)]
    ).splitlines()
    again = rows[1].replace("2|", "1|", 1)
    path = tmp_path / "jobs.sacct"
    path.write_text("\n".join([header, *[rows[0], again, rows[2]][::order]]) + "\n")
    past = read_history(path).jobs[0]
    assert (past.job.duration_s, past.start_s, past.wait_s) == (90, 50, 50)


def test_of_many_jobs_the_last_are_kept_with_their_starts(tmp_path: Path) -> None:
    path = written(tmp_path, [Row(100 * n, 100 * n + 5, 10) for n in range(5)])
    history = read_history(path, most_jobs=2)
    assert [(past.job.job_id, past.job.submit_s, past.wait_s) for past in history.jobs] == [
        ("4", 0, 5),
        ("5", 100, 5),
    ]
    assert (history.workload.earlier, history.workload.origin) == (3, "2026-01-05T00:05:00+00:00")
    assert read_history(path, most_jobs=5).workload.earlier == 0


def test_json_tells_starts_names_and_nodes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    job = {
        "job_id": 7,
        "name": "train",
        "nodes": "n[1-2]",
        "state": {"current": ["COMPLETED"]},
        "time": {"submission": 1714557600, "eligible": 1714557610, "start": 1714557660, "elapsed": 60},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 4}, {"type": "node", "count": 2}]},
    }
    path.write_text(json.dumps({"jobs": [job]}))
    (past,) = read_history(path).jobs
    assert (past.wait_s, past.job.job_name, past.nodes, past.job.gpus_per_machine) == (
        50,
        "train",
        "n[1-2]",
        2,
    )


def test_other_traces_have_no_starts(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(CSV)
    history = read_history(path)
    assert (len(history.jobs), history.started) == (2, [])


def refused(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read_history(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_truncated_file_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, [Row(0, 0, 10, name="job-with-a-name")])
    path.write_text(path.read_text()[:-5])
    assert "the last line is cut off, the file is truncated" in refused(path)


def test_an_empty_history_is_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sacct"
    path.write_text(HEADER + "\n")
    assert "no jobs in it" in refused(path)
    path.write_text("")
    assert "the file is empty" in refused(path)


def test_columns_of_another_version_are_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sacct"
    path.write_text(sacct([Row(0, 0, 10)]).replace("TRES|", "GRES|").replace("ReqTRES", "ReqGRES"))
    assert "missing columns: AllocTRES or ReqTRES" in refused(path)


def test_output_for_people_is_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sacct"
    path.write_text("       JobID    JobName  Partition\n------------ ---------- ----------\n")
    assert "fits no trace format" in refused(path)


def test_a_wrong_date_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sacct"
    fields = sacct([Row(0, 0, 10)]).splitlines()[1].split("|")
    fields[5] = "tomorrow"
    path.write_text(f"{HEADER}\n{'|'.join(fields)}\n")
    assert "line 2: Start is 'tomorrow', must be a date" in refused(path)


def test_no_file_is_told(tmp_path: Path) -> None:
    assert "no history" in refused(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        ([Row(0, 0, 100, 8), Row(0, 100, 50, 4)], 0),
        ([Row(0, 0, 100, 4), Row(0, 100, 50, 4)], 1),
        ([Row(0, 0, 100, 4), Row(0, 100, 50, 5)], 0),
        ([Row(0, 0, 100, 8), Row(50, 150, 50, 8)], 0.5),
        ([Row(0, 0, 100, 8), Row(0, 40, 10, 8), Row(0, 200, 50, 1)], 100 / 240),
        ([Row(0, 0, 100, 8)], 0),
    ],
)
def test_waiting_counts_as_idle_while_there_was_room(
    tmp_path: Path, rows: Sequence[Row], share: float
) -> None:
    assert idle_share(read(tmp_path, rows), 8) == pytest.approx(share)


def test_gpus_held_at_once_count_a_job_that_starts_as_another_ends_alone(tmp_path: Path) -> None:
    rows = [Row(0, 0, 100, 4), Row(0, 50, 50, 3), Row(0, 100, 50, 6), Row(200, 150, 10, 9)]
    assert most_gpus_held(read(tmp_path, rows)) == 7
