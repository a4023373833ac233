"""What the studies of Hadar, HadarE and JPS measure, on jobs small enough to do by hand."""

import pytest
from click.testing import CliRunner

from analysis.studies.common import simulate
from analysis.studies.hadar import finish_time_fairness, least_makespan_s, read_setting, run
from analysis.studies.hadar import main as hadar
from analysis.studies.hadar_e import equal_nodes, forked
from analysis.studies.jps_online import elastic
from dally.jobs.job import Job, JobKind

SETTING = read_setting()


def test_no_schedule_is_shorter_than_all_work_on_all_gpus_nor_than_the_longest_job() -> None:
    jobs = [Job(f"j{number}", 0, 1, 1000) for number in range(120)]
    assert least_makespan_s(SETTING, jobs) == pytest.approx(2000, rel=1e-4)
    assert least_makespan_s(SETTING, [*jobs, Job("long", 0, 1, 5000)]) == pytest.approx(5000, rel=1e-4)


def test_a_lone_job_is_as_much_faster_than_its_part_as_the_best_type_is_than_the_mean_of_types() -> None:
    outcome = run(SETTING, "hadar", [Job("a", 0, 1, 3600, model="resnet-50")])
    [mean_speed] = SETTING.demand([Job("a", 0, 1, 3600, model="resnet-50")]).fair_speeds
    assert outcome.fairness.tolist() == pytest.approx([mean_speed])
    assert mean_speed < 0.7


def test_of_jobs_that_wait_for_each_other_the_mean_number_present_counts() -> None:
    """Three gangs have a type each for an hour, then three others: 6 and 4.5 jobs are present to share."""
    jobs = [Job(name, 0, 20, 3600) for name in "abcdef"]
    records = simulate("fifo", jobs, SETTING.topology, SETTING.profiles).records
    fairness = finish_time_fairness(SETTING, jobs, records)
    assert fairness.tolist() == pytest.approx([1 / 2] * 3 + [4 / 3] * 3, rel=1e-3)


def test_jobs_are_forked_or_elastic_where_they_can_be() -> None:
    assert {(job.kind, job.max_copies, job.gpus) for job in forked(5, 1)} == {(JobKind.FORKED, 5, 1)}
    assert equal_nodes(1e9).gpu_types == ("v100",)
    assert elastic(Job("a", 0, 1, 10, model="cyclegan")).kind is JobKind.RIGID
    assert elastic(Job("a", 0, 2, 10, model="lm")).most_gpus == 8


def test_the_study_prints_a_table_of_each_part() -> None:
    result = CliRunner().invoke(hadar, ["wide", "--jobs", "9", "--seed", "1"])
    assert result.exit_code == 0, result.output
    assert "| `hadar:mixed=no` |" in result.output
    assert "| no schedule can have less than |" in result.output
