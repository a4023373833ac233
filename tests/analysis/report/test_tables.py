"""Where models ran and how plans fared, by hand."""

from pathlib import Path

from analysis.report.history import RunHistory
from analysis.report.runs import WholeRun, load_runs
from analysis.report.tables import (
    OTHER_MODELS,
    ModelPlacements,
    gpu_time_by_model,
    levels_by_model,
    plan_table,
)
from tests.analysis.report.folders import life, record, started, write_folder


def test_gpu_time_is_of_gangs() -> None:
    jobs = [
        record(name, submit_s=0, queue_s=0, run_s=9, gpus=gpus, model="m")
        for name, gpus in (("a", 2), ("b", 1))
    ]
    history = RunHistory(["machine", "rack"], {"a": 0, "b": 1})
    history.add(started(0, "a", {"x": 1, "y": 1}, "rack"))
    history.add(started(0, "b", {"x": 1}))
    history.close(10)
    assert gpu_time_by_model(history, jobs) == {"m": [0.0, 20.0]}


def test_models_stand_by_gpu_time_and_the_smallest_together() -> None:
    runs = {"x": {f"model-{n}": [n + 1.0, n + 1.0] for n in range(15)}, "y": {"model-14": [1.0, 3.0]}}
    found = levels_by_model(runs, 2)
    assert [each.model for each in found] == [*(f"model-{n}" for n in range(14, 3, -1)), OTHER_MODELS]
    assert found[0] == ModelPlacements("model-14", {"x": [50.0, 50.0], "y": [25.0, 75.0]})
    assert found[-1] == ModelPlacements(OTHER_MODELS, {"x": [50.0, 50.0]})


SMALL, LARGE = "tp=2,dp=2,micro=1,sequence=8", "tp=4,dp=2,micro=1,sequence=8"


def run_of_plans(folder: Path, policy: str, waits_s: float, status: str = "COMPLETED") -> WholeRun:
    """Two jobs of one plan, one of a larger one and one without; all waited so long and ran 100 s."""
    jobs = [
        record(
            f"job-{n}",
            submit_s=n,
            queue_s=waits_s,
            run_s=100,
            gpus=gpus,
            model=model,
            plan=plan,
            status=status,
        )
        for n, (gpus, model, plan) in enumerate(
            [(4, "m", SMALL), (8, "m", LARGE), (4, "m", SMALL), (8, "other", "")]
        )
    ]
    events = [event for job in jobs for event in life(job)]
    return load_runs([write_folder(folder / policy, jobs, events, policy)])[0]


def test_jobs_with_a_plan_are_told_by_plan_under_each_run(tmp_path: Path) -> None:
    table = plan_table([run_of_plans(tmp_path, "first", 100), run_of_plans(tmp_path, "second", 50)])
    assert [name for name, _ in table.rows] == [
        "m tp=2, dp=2, micro=1, sequence=8",
        "",
        "m tp=4, dp=2, micro=1, sequence=8",
        "",
    ]
    run, gpus, completed, taken, waited, _ = table.rows[1][1]
    assert (run.text, gpus.text, completed.text) == ("second", "4", "2")
    assert (taken.text, taken.difference, taken.verdict) == ("2.5 min", "-25 %", "better")
    assert (waited.text, waited.difference) == ("50 s", "-50 %")
    assert plan_table([]).rows == []


def test_a_plan_of_which_no_job_completed_has_no_times(tmp_path: Path) -> None:
    failed, well = run_of_plans(tmp_path, "failed", 100, "FAILED"), run_of_plans(tmp_path, "well", 100)
    for runs, row in (([failed, well], 0), ([well, failed], 1)):
        table = plan_table(runs)
        assert [cell.text for cell in table.rows[row][1]] == ["failed", "4", "0", "none", "none", "none"]
        assert [cell.difference for cell in table.rows[1][1][2:]] == [""] * 4
