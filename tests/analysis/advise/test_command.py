"""`dally advise` as an administrator meets it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from analysis.advise.advice import advise as advise_site
from analysis.advise.advice import plan_simulations
from analysis.advise.simulated import SimulatedTimes, SimulationTask, run
from analysis.advise.site import cases
from dally.cluster import load_cluster, write_toml
from dally.commands import main
from dally.testing.worlds import racks
from tests.analysis.advise.histories import BUSY, Row, cluster_file, held_back, site, written
from tests.dally.cluster.sites import FOLDER, SITES
from tests.patience import LONGEST_S, wait_until

CSV = "job_id,submit_s,gpus,duration_s,user\n" + "".join(f"j{n},{n},4,100,u{n % 2}\n" for n in range(12))


def advise(folder: Path, *options: str, history: Path | None = None) -> Result:
    path = history or written(folder, BUSY)
    inputs = ["--cluster", str(cluster_file(folder)), "--processes", "1", "-o", str(folder / "advice.html")]
    return CliRunner().invoke(main, ["advise", str(path), *inputs, *options])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advise")


def test_the_error_of_the_calibration_comes_first(folder: Path) -> None:
    result = advise(folder)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert re.match(
        r"Calibration: slurm\S* simulated has 32 jobs wait .*; really they waited 13\.6 min\.", lines[0]
    )
    assert "on average" in lines[1]
    page = (folder / "advice.html").read_text("utf-8")
    assert page.index('<p class="calibrated">Calibration') < page.index("<h1>")
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "No profiles were given" in page


def test_models_come_from_rules_and_a_mix_with_a_range(folder: Path) -> None:
    rules = folder / "models.toml"
    rules.write_text('[models]\n"train-resnet*" = "resnet50"\n"bert*" = "bert-large"\n')
    options = (
        "--profiles",
        "dally",
        "--models",
        str(rules),
        "--model-mix",
        "vgg11=1,resnet18=1",
        "--seeds",
        "1",
    )
    result = advise(folder, *options, "--policy", "srsf-delay", "--today", "slurm", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert (said["today"], said["start_with"]) == ("slurm", "srsf-delay")
    assert (
        said["effects"]["all"]["least"] <= said["effects"]["all"]["change"] <= said["effects"]["all"]["most"]
    )
    page = (folder / "advice.html").read_text("utf-8")
    assert "the models of 24 are told" in page
    assert all(f"{case}, the others drawn from" in page for case in ("Low", "Middle", "High"))


def test_it_tells_which_part_of_a_long_history_was_simulated(folder: Path) -> None:
    result = advise(folder, "--most-jobs", "20")
    assert result.exit_code == 0, result.output
    line = (
        "Simulated: the last 20 of 32 jobs, those from 2026-01-05T00:04:00+00:00 on; --most-jobs takes more."
    )
    assert line in result.output
    page = (folder / "advice.html").read_text("utf-8")
    assert line in page
    assert "the last 20 jobs of jobs.sacct" in page


def test_what_the_calibration_has_simulated_is_not_simulated_again(folder: Path) -> None:
    """Without profiles distance costs nothing, so that today's scheduler is the same in the comparison."""
    here = site(folder, BUSY)
    todo = plan_simulations(here, "slurm", "srsf-delay", cases(here, None, 1))
    asked: list[SimulationTask] = []

    def simulate(tasks: Sequence[SimulationTask]) -> list[SimulatedTimes]:
        asked.extend(tasks)
        return [run(here, task) for task in tasks]

    found = advise_site(here, todo, simulate)
    assert [task.policy for task in asked] == ["slurm", "srsf-delay"]
    assert todo.simulations == len(asked)
    assert found.comparison is not None
    again = run(here, SimulationTask("slurm", todo.cases[0]))
    assert found.comparison.pairs[0].today.jct_s.tolist() == again.jct_s.tolist()


def test_without_starts_it_says_what_cannot_be_calibrated(folder: Path) -> None:
    path = folder / "jobs.csv"
    path.write_text(CSV)
    result = advise(folder, "--policy", "srsf-delay", history=path)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Not calibrated: the history tells no starts")
    assert "What cannot be checked: how long jobs really waited" in (folder / "advice.html").read_text(
        "utf-8"
    )


def test_priorities_count_as_far_as_a_ratio_says_and_the_page_tells_who_pays(folder: Path) -> None:
    path, priorities = folder / "jobs.csv", folder / "priorities.toml"
    path.write_text(CSV)
    priorities.write_text("[users.u1]\nnice = 5000\n")
    result = advise(folder, "--priorities", str(priorities), "--policy", "srsf-delay", "--json", history=path)
    assert result.exit_code == 0, result.output
    ratios = json.loads(result.output)["priority_ratios"]
    assert list(ratios) == ["1", "0.9", "0.75", "0.5", "0"]
    assert [each["name"] for each in ratios["0"]["losers"]] == ["user u0"], "u1's jobs no longer come last"
    assert ratios["1"]["losers"] == []
    page = (folder / "advice.html").read_text("utf-8")
    assert "and nobody would lose; with 0 by" in page
    assert "Not simulated: partitions, limits of users" in page
    assert "How far jobs may overtake" in page
    advise(folder, "--policy", "srsf-delay", history=path)
    page = (folder / "advice.html").read_text("utf-8")
    assert "Not simulated: partitions, priorities, fair share" in page
    assert "How far jobs may overtake" not in page


def test_the_page_tells_whose_part_of_the_gpu_time_moves(folder: Path) -> None:
    path, priorities = folder / "jobs.csv", folder / "priorities.toml"
    path.write_text(
        CSV.partition("\n")[0] + "\n" + "".join(f"j{n},{30 * n},4,100,u{n % 2}\n" for n in range(40))
    )
    priorities.write_text("[users.u0]\nshares = 9\n")
    result = advise(folder, "--priorities", str(priorities), "--policy", "srsf-delay", "--json", history=path)
    moved = {
        ratio: each["share_moved"] for ratio, each in json.loads(result.output)["priority_ratios"].items()
    }
    assert moved["1"]["before"] == moved["1"]["after"]
    assert (moved["0"]["name"], moved["0"]["week"]) == ("user u0", 0)
    assert moved["0"]["before"] > 0.75, "u0 has nine shares of ten"
    assert moved["0"]["after"] < 0.6, "who asks for as much gets as much"
    page = (folder / "advice.html").read_text("utf-8")
    assert "share moved" in page
    assert "moves by 0.5 points or more" in page


def test_rules_for_segments_are_held_against_none(folder: Path) -> None:
    path = folder / "wide.csv"
    path.write_text(
        "job_id,submit_s,gpus,duration_s,gpus_per_machine\n"
        + "".join(f"j{n},{n},{(4, 2, 8)[n % 3]},100,2\n" for n in range(30))
    )
    result = advise(folder, "--segments", "--policy", "srsf-delay", "--today", "slurm", history=path)
    assert result.exit_code == 0, result.output
    assert "Under slurm, set no segments" in result.output
    assert "Under srsf-delay, set no segments" in result.output
    assert "This is of 20 jobs with several machines; what distance costs is known of 0." in result.output
    page = (folder / "advice.html").read_text("utf-8")
    assert page.count("128:16,32:4") == 2
    said = json.loads(advise(folder, "--segments", "--policy", "srsf-delay", "--json", history=path).output)[
        "segments"
    ]["dally"]
    assert said["rule"] == "none"
    assert list(said["tried"]) == ["none", "32:4", "128:8,32:4", "128:16,32:4", "0:16"]
    assert said["tried"]["none"]["gpu_h"] == pytest.approx(10 * (4 + 2 + 8) * 100 / 3600)


def test_rules_for_segments_need_blocks_and_jobs_on_several_machines(folder: Path) -> None:
    path, flat = folder / "jobs.csv", folder / "flat.toml"
    path.write_text(CSV)
    result = advise(folder, "--segments", history=path)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "no job of the history has the same number of GPUs on several machines" in result.output
    flat.write_text(write_toml(racks([[2, 2]])), encoding="utf-8")
    result = advise(folder, "--segments", "--cluster", str(flat), history=path)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "has all machines in one" in result.output


def test_a_history_whose_waits_come_from_elsewhere_is_told_so_and_nothing_else(folder: Path) -> None:
    result = advise(folder, history=written(folder, held_back()))
    assert result.exit_code == 0, result.output
    assert "No conclusion: the simulation of today's scheduler does not resemble" in result.output
    page = (folder / "advice.html").read_text("utf-8")
    assert "<h1>No conclusion" in page
    assert 'id="calibration"' in page
    for part in ("Who would lose", "Settings to start with", 'id="plot-changes"', "jobs would have ended"):
        assert part not in page


def test_what_is_concluded_is_said_in_the_data(folder: Path) -> None:
    said = json.loads(advise(folder, "--json", history=written(folder, held_back())).output)
    assert (said["concluded"], "effects" in said, "start_with" in said) == (False, False, False)
    assert said["calibration"]["unexplained"] > 0.9


@pytest.mark.parametrize("name", SITES)
def test_advice_starts_on_a_sites_own_files(folder: Path, name: str) -> None:
    options = ["--cluster", str(FOLDER / name), "--processes", "1", "-o", str(folder / "advice.html")]
    path = str(written(folder, [Row(0, 0, 100, 1), Row(10, 10, 100, 2)]))
    result = CliRunner().invoke(
        main, ["advise", path, *options, "--policy", "srsf-delay", "--today", "slurm"]
    )
    assert result.exit_code == 0, result.output
    assert ("cluster: left out" in result.stderr) == bool(load_cluster(FOLDER / name).left_out)


def test_names_in_a_history_are_no_html(folder: Path) -> None:
    path = folder / "odd.csv"
    path.write_text(CSV.replace("u1", "<script>alert(1)</script>"))
    assert advise(folder, "--policy", "srsf-delay", history=path).exit_code == 0
    assert "<script>alert" not in (folder / "advice.html").read_text("utf-8")


def test_anonymising_needs_no_cluster(folder: Path) -> None:
    target = folder / "anonymous"
    path = written(folder, BUSY)
    result = CliRunner().invoke(main, ["advise", str(path), "--anonymise", str(target)])
    assert (result.exit_code, result.output) == (0, f"32 jobs without names: {target}\n")
    assert "ann" not in target.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--policy", "nobody"), "unknown policy 'nobody'"),
        (("--arrival-scale", "0"), "arrival_scale is 0"),
        (("-o", "nowhere/advice.html"), "there is no folder nowhere"),
        (("--profiles", "dally", "--model-mix", "gpt=1"), "no profile of gpt"),
        (("--profiles", "dally", "--models", "missing.toml"), "missing.toml: No such file"),
        (("--from-s", "9e9"), "no job was submitted"),
        (("--priorities", "missing.toml"), "dally: missing.toml: No such file"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_no_page(
    folder: Path, options: tuple[str, ...], said: str
) -> None:
    (folder / "advice.html").unlink(missing_ok=True)
    result = advise(folder, *options)
    assert result.exit_code == 1
    assert said in result.output
    assert result.output.count("\n") == 1
    assert not (folder / "advice.html").exists()


def test_a_job_larger_than_the_cluster_is_one_line(folder: Path) -> None:
    result = advise(folder, history=written(folder, [Row(0, 0, 10, 9)]))
    assert result.output.startswith("dally: job 1: a gang of 9 GPUs does not fit")
    assert "--skip-bad leaves such jobs out" in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("option", ["--models", "--model-mix"])
def test_models_without_profiles_are_refused(folder: Path, option: str) -> None:
    (folder / "m.toml").write_text('[models]\n"a*" = "vgg11"\n')
    result = advise(folder, option, str(folder / "m.toml"))
    assert result.exit_code == 2
    assert "--models and --model-mix need --profiles" in result.output


def test_a_cluster_is_needed(folder: Path) -> None:
    result = CliRunner().invoke(main, ["advise", str(written(folder, BUSY))])
    assert result.exit_code == 2
    assert "--cluster is missing" in result.output


@pytest.mark.parametrize(("options", "known"), [((), "limits"), (("--knowledge", "none"), "none")])
def test_all_schedulers_know_limits_where_there_are_any_or_what_is_asked_for(
    folder: Path, options: tuple[str, ...], known: str
) -> None:
    result = advise(folder, *options, "--policy", "srsf-delay", "--today", "slurm", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["knowledge"] == known
    assert f"running times known: {known}" in (folder / "advice.html").read_text("utf-8")


def test_without_limits_schedulers_know_what_ended(folder: Path) -> None:
    path = folder / "unlimited.csv"
    path.write_text(CSV)
    result = advise(folder, "--policy", "srsf-delay", "--json", history=path)
    assert json.loads(result.output)["knowledge"] == "history"


def is_alive(group: int) -> bool:
    """Whether there is any process of a group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_by_a_signal_it_leaves_no_process_and_no_traceback(tmp_path: Path, number: int) -> None:
    """Ctrl-C goes to all of them, as the terminal sends it; others to the command alone."""
    history = tmp_path / "long.csv"
    rows = (f"j{n},{n},4,100000,u{n % 2}\n" for n in range(20_000))
    history.write_text("job_id,submit_s,gpus,duration_s,user\n" + "".join(rows))
    argv = ("-m", "dally", "advise", str(history), "--cluster", "demo", "--processes", "2")
    process = subprocess.Popen(
        [sys.executable, *argv, "-o", str(tmp_path / "page.html")],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: len(children.read_text().split()) == 2, "its workers")
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    said, _ = process.communicate(timeout=LONGEST_S)  # ends when nobody has the terminal any more
    assert said.strip() == ("Aborted!" if number == signal.SIGINT else "")
    wait_until(lambda: not is_alive(process.pid), "all its processes to end")
