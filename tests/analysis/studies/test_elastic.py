"""Pollux's files become jobs, random ones repeat, and the study writes its tables or says what is wrong."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from analysis.studies.elastic import TIRESIAS_OF_POLLUX, VARIANTS, larger, main, steps_table
from analysis.studies.elastic_jobs import draw_jobs, ones_profiles, pollux_profiles, read_workload
from dally.cluster.load import load_cluster
from dally.errors import InputError
from dally.jobs.job import JobKind
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.goodput import mean_efficiency

HEADER = "name,time,application,num_replicas,batch_size"
WORKLOAD = f"{HEADER}\nncf-1,7,ncf,1,32768\ncifar10-0,53,cifar10,6,2048\nyolov3-2,60,yolov3,4,64\n"
COSTS = CostModel(load_cluster("pollux-64"), pollux_profiles())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With workloads 1 and 6, the same."""
    for number in (1, 6):
        (tmp_path / f"workload-{number}.csv").write_text(WORKLOAD)
    return tmp_path


def study(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_row_is_an_elastic_job_that_takes_all_its_epochs(folder: Path) -> None:
    """5,000,064 samples, 2048 a step, at what they are worth; 6 GPUs lie on two machines."""
    _, job = read_workload(folder / "workload-6.csv", COSTS).jobs
    assert (job.kind, job.least_gpus, job.gpus, job.most_gpus, job.batch) == (JobKind.ELASTIC, 1, 6, 64, 2048)
    learning = COSTS.curve(job)
    assert learning is not None
    steps = 5_000_064 / 2048 / mean_efficiency(learning, 2048)
    step_s = COSTS.prediction(job, ((0, 3), (1, 3)))
    assert step_s is not None
    assert steps > 5_000_064 / 2048
    assert job.duration_s == pytest.approx(steps * step_s.iteration_s, rel=0.2)


def test_applications_without_tables_are_a_rigid_job_or_left_out(folder: Path) -> None:
    workload = read_workload(folder / "workload-6.csv", COSTS)
    ncf = workload.jobs[0]
    assert (ncf.kind, ncf.gpus, ncf.duration_s, ncf.model) == (JobKind.RIGID, 1, 100.0, "")
    assert workload.left_out == {"yolov3": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\n", "has no jobs"),
        ("name,time\nx,1\n", "w.csv:2: not a job of name, time, .*application"),
        (f"{HEADER}\na,soon,cifar10,1,128\n", "w.csv:2: .*'soon'"),
        (f"{HEADER}\na,1,cifar10,0,128\n", "w.csv:2: .*gpus is 0"),
        (f"{HEADER}\na,1,cifar10\n", "w.csv:2: "),
    ],
)
def test_a_wrong_file_is_refused_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "w.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_workload(tmp_path / "w.csv", COSTS)


def test_starts_and_resizes_cost_what_they_do_in_the_published_simulator() -> None:
    job = draw_jobs(1, 30.0, 1, pollux_profiles())[0]
    assert (COSTS.launch_s(job), COSTS.restart_s(job), COSTS.resize_s(job)) == (30.0, 30.0, 30.0)


def test_random_jobs_repeat_by_seed_and_keep_to_their_ranges() -> None:
    profiles = load_profiles("pollux")
    jobs = draw_jobs(300, 30.0, 1, profiles)
    assert jobs == draw_jobs(300, 30.0, 1, profiles)
    assert jobs != draw_jobs(300, 30.0, 2, profiles)
    assert {job.gpus for job in jobs} == {1, 2, 4, 8}
    assert all(60 <= job.duration_s <= 1200 for job in jobs)
    assert jobs[-1].submit_s / 300 == pytest.approx(30, rel=0.2)


def test_the_table_has_a_row_for_each_policy_and_names_what_is_left_out(folder: Path) -> None:
    policies = ("--policy", "fifo", "--policy", "tiresias", "--policy", TIRESIAS_OF_POLLUX)
    result = study("pollux", "--folder", folder, "--workload", 6, *policies)
    assert result.exit_code == 0, result.output
    assert "left out: 1 of yolov3" in result.output
    assert "| `fifo` |" in result.output
    rows = [[*map(str.strip, line.split("|"))] for line in result.output.splitlines()[-2:]]
    (*_, none, _, _), (*_, ours, published, ratio, _) = rows
    assert none == "", "published for Tiresias with other settings"
    assert published == "3470"
    assert float(ratio) == pytest.approx(float(ours) / 3470, abs=1e-3)


def test_what_policies_know_is_asked_for_and_stands_above_the_table(folder: Path) -> None:
    said = study("pollux", "--folder", folder, "--workload", 6, "--policy", "fifo").output
    assert "Running times known: exact. Optimus goes by them, as published" in said
    asked = ("ones", "--jobs", 120, "--gap", 1, "--seed", 1, "--policy", "srtf", "--policy", "fifo")
    exact, none = study(*asked).output, study(*asked, "--knowledge", "none").output
    assert "Running times known: none instead of exact" in none
    rows = [[line for line in said.splitlines() if "| `" in line] for said in (exact, none)]
    assert rows[0][0] != rows[1][0], "srtf goes by running times"
    assert rows[0][1] == rows[1][1], "fifo does not"


def test_jobs_like_those_of_ones_pass_over_their_data_as_often_as_its_artifact_says() -> None:
    passes = {
        profile.model.name: profile.learning.epochs
        for profile in ones_profiles().profiles
        if profile.learning
    }
    assert (passes["cifar10"], passes["imagenet"], passes["bert"]) == (36, 47, 5)


def test_variants_of_ones_have_rows_of_their_own() -> None:
    result = study("ones", "--jobs", 2, "--seed", 1, "--policy", "tiresias", "--variants")
    assert result.exit_code == 0, result.output
    rows = [line for line in result.output.splitlines() if line.startswith("| `")]
    assert len(rows) == 1 + len(VARIANTS)


def test_the_artifact_s_jobs_have_a_table_with_differences_and_percentiles() -> None:
    asked = ("artifact", "--jobs", 3, "--gpus", 16, "--seed", 1, "--seed", 2)
    result = study(*asked, "--policy", "tiresias", "--policy", "ones", "--policy", "optimus:interval_s=60")
    assert result.exit_code == 0, result.output
    rows = [[*map(str.strip, line.split("|"))] for line in result.output.splitlines() if "| `" in line]
    assert [row[1] for row in rows] == ["`tiresias`", "`ones`", "`optimus:interval_s=60`"]
    assert [bool(row[3]) for row in rows] == [False, True, True]
    assert " ± " in rows[0][2]
    assert all(float(row[6]) <= float(row[9]) for row in rows)


def test_tables_go_between_their_markers(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    document.write_text("before\n<!-- ones-5 -->\nold\n<!-- end ones-5 -->\nafter\n")
    result = study("ones", "--jobs", 5, "--seed", 1, "--policy", "fifo", "--write", document)
    assert result.exit_code == 0, result.output
    text = document.read_text()
    assert text.startswith("before\n<!-- ones-5 -->\nRunning times known: exact.")
    assert "\n\n| policy |" in text
    assert "\nold\n" not in text
    assert text.endswith("<!-- end ones-5 -->\nafter\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("pollux", "--workload", 9), "Error: cannot read workload"),
        (("ones", "--policy", "best"), "Error: unknown policy 'best'"),
        (
            ("ones", "--jobs", 2, "--policy", "fifo", "--write", "nowhere.md"),
            "Error: cannot write nowhere.md",
        ),
    ],
)
def test_bad_input_fails_in_one_line(folder: Path, args: tuple[object, ...], message: str) -> None:
    where = ("--folder", folder) if args[0] == "pollux" else ()
    result = study(*args, *where)
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_larger_cluster_has_the_same_machines_on_one_switch() -> None:
    topology = larger(COSTS.topology, 128)
    assert topology.gpus == 128
    assert (topology.levels, topology.gpu_types) == (COSTS.topology.levels, COSTS.topology.gpu_types)


def test_a_row_for_each_number_of_jobs() -> None:
    header, _, row = steps_table(COSTS.topology, [3], [8]).splitlines()
    assert header == "| median / longest, ms | 8 GPUs |"
    assert row.startswith("| 3 jobs |")
