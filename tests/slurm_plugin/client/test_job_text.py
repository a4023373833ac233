"""Lines of squeue are told apart whatever users write, and one that says what it said is the same object."""

import pytest

from slurm_plugin.client.job_text import JobLines, squeue_format
from slurm_plugin.client.slurm import SlurmUnavailableError


def printed(key: str, *jobs: dict[str, str]) -> str:
    """What squeue prints of jobs of which some columns are given."""
    columns = [column.split(":") for column in squeue_format(key).split(",")]
    return "".join("".join(job.get(name, "") + mark for name, mark in columns) + "\n" for job in jobs)


def pending(number: int, **columns: str) -> dict[str, str]:
    return {"JobID": str(number), "State": "PENDING", "StartTime": "N/A", **columns}


def test_a_line_that_says_what_it_said_is_the_same_object_and_no_other_is() -> None:
    lines = JobLines()
    before = lines.read(printed("a1", pending(1), pending(2), pending(3)), "a1")
    after = lines.read(printed("b2", pending(3), pending(2, nice="5")), "b2")
    assert [*after] == [3, 2]
    assert after[3] is before[3]
    assert (before[2]["nice"], after[2]["nice"]) == ("", "5")


def test_when_slurm_expects_to_start_a_job_makes_no_other_line() -> None:
    lines = JobLines()
    before = lines.read(printed("a1", pending(1, StartTime="100")), "a1")
    for start_s in ("200", "N/A"):
        assert lines.read(printed("b2", pending(1, StartTime=start_s)), "b2")[1] is before[1]
    ran = lines.read(printed("c3", pending(1, State="RUNNING", StartTime="200")), "c3")
    assert (ran[1]["State"], ran[1]["StartTime"]) == ("RUNNING", "200")


def test_tasks_of_an_array_with_one_number_have_one_line_and_the_same_one_while_they_stay() -> None:
    lines = JobLines()
    tasks = [pending(1, ArrayTaskID=task) for task in ("0", "4", "6")]
    before = lines.read(printed("a1", *tasks, pending(2, ArrayTaskID="N/A")), "a1")
    assert {number: line["ArrayTaskID"] for number, line in before.items()} == {1: "0,4,6", 2: "N/A"}
    same = lines.read(printed("b2", *({**task, "StartTime": "9"} for task in tasks)), "b2")
    assert same[1] is before[1]
    fewer = lines.read(printed("c3", *tasks[1:]), "c3")
    assert {number: line["ArrayTaskID"] for number, line in fewer.items()} == {1: "4,6"}


def test_a_job_that_is_shown_twice_and_is_no_array_is_one_job() -> None:
    twice = JobLines().read(printed("a1", *(pending(1, ArrayTaskID="N/A", nice=n) for n in "12")), "a1")
    assert [line["ArrayTaskID"] for line in twice.values()] == ["N/A"]


@pytest.mark.parametrize("words", ["\nE", "Qa1", "Ea1\n", "\n2", "E\n", "Q", "\n\n"])
def test_users_cannot_write_another_field_or_job(words: str) -> None:
    jobs = [pending(number, Name=words, Account=words, Comment=words) for number in (1, 2)]
    lines = JobLines()
    lines.read(printed("a1", pending(1), pending(2)), "a1")
    found = lines.read(printed("b2", *jobs), "b2")
    assert {number: (line["Name"], line["Comment"]) for number, line in found.items()} == {
        1: (words, words),
        2: (words, words),
    }


@pytest.mark.parametrize(
    "text", ["slurm_load_jobs error", printed("a1", pending(1))[:-4], "1Qa1PENDINGEa1\n"]
)
def test_what_is_no_list_of_jobs_is_an_outage(text: str) -> None:
    with pytest.raises(SlurmUnavailableError, match="squeue printed no job"):
        JobLines().read(text, "a1")
