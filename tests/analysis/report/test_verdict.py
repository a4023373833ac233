"""The sentences of the first screen and the tables, on runs worked out by hand."""

from collections.abc import Sequence
from pathlib import Path

from analysis.report.history import RunHistory
from analysis.report.runs import WholeRun, load_runs
from analysis.report.tables import Cell, headline_table, preemption_table, timer_table
from analysis.report.verdict import compare_runs, setting, slower_sizes, warnings
from dally.runs.records import JobRecord
from tests.analysis.report.folders import change_run, record, simple_run, started, waits


def runs_of(folder: Path, **waits_s: Sequence[float]) -> list[WholeRun]:
    """Runs by policy; every job runs for 100 s after its wait."""
    return load_runs([simple_run(folder / policy, policy, waited) for policy, waited in waits_s.items()])


def waiting(wait_s: float, gpus: int) -> JobRecord:
    return record("job", submit_s=0, queue_s=wait_s, run_s=100, gpus=gpus)


def test_a_better_run_is_held_against_the_first(tmp_path: Path) -> None:
    verdict = compare_runs(runs_of(tmp_path, slurm=[100, 300], dally=[0, 200]))
    assert verdict.title == "dally was best: jobs took 3.33 min on average, 33 % less than under slurm"
    assert verdict.lines == [
        "Job by job against slurm: of 2 jobs, 100 % took less time, 0 % took more, "
        "the others as long within 1 %."
    ]


def test_a_first_run_that_is_best_is_held_against_the_next(tmp_path: Path) -> None:
    verdict = compare_runs(runs_of(tmp_path, dally=[0, 0], fifo=[900, 900], slurm=[0, 200]))
    best = "dally was best: jobs took 1.67 min on average"
    assert verdict.title == f"{best}, 50 % less than under slurm and 90 % less than under fifo"
    assert verdict.lines[-1] == (
        "Mean completion times, best first: dally 1.67 min, slurm 3.33 min (+100 %), fifo 16.7 min (10 x)."
    )


def test_what_is_worse_under_the_best_run_is_said(tmp_path: Path) -> None:
    verdict = compare_runs(runs_of(tmp_path, slurm=[400, 400, 400], dally=[0, 0, 500]))
    assert verdict.lines[1] == (
        "But the 99th percentile of completion times is 9.83 min, 8.33 min under slurm (+18 %); "
        "the longest wait is 8.33 min, 6.67 min under slurm (+25 %); "
        "the makespan is 12 min, 10.3 min under slurm (+16 %)."
    )


def test_what_the_best_policy_comes_to_with_other_knobs_is_told_as_a_share_of_the_difference(
    tmp_path: Path,
) -> None:
    waited_s = {"slurm": [500, 500], "srsf-delay": [100, 100], "srsf-delay:moves=0,waste=0": [200, 200]}
    runs = []
    for place, (spec, waited) in enumerate(waited_s.items()):
        runs.append(simple_run(tmp_path / str(place), spec, waited))
        change_run(runs[-1], policy={"name": spec.partition(":")[0], "spec": spec, "knobs": {}})
    assert compare_runs(load_runs(runs)).lines[1] == (
        "With moves=0,waste=0, srsf-delay took 5 min (+50 %), 25 % of the difference to slurm."
    )


def test_what_is_worse_is_held_against_the_run_that_is_best_at_that(tmp_path: Path) -> None:
    verdict = compare_runs(runs_of(tmp_path, dally=[0, 0, 400], slurm=[200, 200, 200], fifo=[300, 300, 300]))
    assert verdict.lines[1].startswith(
        "But the 99th percentile of completion times is 8.2 min, 5 min under slurm"
    )
    assert (verdict.best, verdict.rival) == (0, 1)


def test_sizes_that_are_worse_off_under_the_best_run_are_named() -> None:
    waited_s = [(1, 0, 200), (1, 20, 0), (16, 300, 100), (32, 4, 0)]
    pairs = [(waiting(ours_s, gpus), waiting(theirs_s, gpus)) for gpus, ours_s, theirs_s in waited_s]
    assert slower_sizes(pairs, "slurm") == (
        "On average it took longer than slurm for some: the 1 job of 16 GPUs 6.67 min, not 3.33 min (+100 %)."
    )


def test_the_report_of_one_run_holds_it_against_itself(tmp_path: Path) -> None:
    verdict = compare_runs(runs_of(tmp_path, a=[0, 50]))
    assert (verdict.best, verdict.rival) == (0, 0)


def test_runs_within_a_percent_are_even(tmp_path: Path) -> None:
    verdict = compare_runs(runs_of(tmp_path, a=[0], b=[0.5]))
    assert verdict.title == "a and b are even: jobs took 1.67 min and 1.68 min on average"


def test_a_single_run_is_described(tmp_path: Path) -> None:
    assert (
        compare_runs(runs_of(tmp_path, a=[0, 50])).title
        == "Under a a job took 2.08 min on average, 25 s of it waiting"
    )


def test_only_jobs_that_completed_everywhere_are_compared(tmp_path: Path) -> None:
    one = simple_run(tmp_path / "a", "a", [100, 300])
    part = simple_run(tmp_path / "b", "b", [0], complete=False, note="interrupted")
    verdict = compare_runs(load_runs([one, part]))
    assert verdict.title == "b was best: jobs took 1.67 min on average, 50 % less than under a"
    assert "of 1 job, 100 % took less time" in verdict.lines[0]


def test_a_reader_is_told_of_incomplete_runs_and_other_inputs(tmp_path: Path) -> None:
    one = simple_run(tmp_path / "a", "a", [0])
    two = simple_run(tmp_path / "b", "b", [0], complete=False, note="interrupted", contention=True)
    assert list(warnings(load_runs([one, two]))) == [
        "b is incomplete: interrupted. Its numbers are of the jobs that ended.",
        "Not only the policy differs, but also contention (a: off, b: on).",
        "No racks in the map of a, b: the cluster file is gone or has changed.",
    ]


def test_the_setting_in_a_line(tmp_path: Path) -> None:
    assert setting(runs_of(tmp_path, a=[0])) == (
        "1 job of jobs.csv · tiny: 8 GPUs in 2 machines · "
        "no profiles: distance costs nothing · simulated, seed 0 · running times known: exact"
    )


def test_headline_numbers_differ_from_the_first_run(tmp_path: Path) -> None:
    table = headline_table(runs_of(tmp_path, slurm=[100, 300], dally=[0, 200]))
    (_, first), (_, second) = table.rows
    assert first[0] == Cell("5 min")
    assert second[0] == Cell("3.33 min", "-33 %", "better")
    assert dict(zip([name for name, _ in table.headings], second, strict=True))["goodput"].verdict == "better"


def test_how_many_jobs_completed_is_told_where_it_differs(tmp_path: Path) -> None:
    one = simple_run(tmp_path / "a", "a", [100, 300])
    part = simple_run(tmp_path / "b", "b", [0], complete=False)
    table = headline_table(load_runs([one, part]))
    assert table.headings[0][0] == "jobs"
    assert [cells[0] for _, cells in table.rows] == [Cell("2"), Cell("1", "-50 %")]
    assert table.groups[:2] == [("", 1), ("completion time", 3)]


def test_what_timers_came_to() -> None:
    history = RunHistory(["machine", "rack"], {"a": 0, "b": 1, "c": 2})
    for job, reason in (
        ("a", "tuned from 3 waits"),
        ("b", "tuned from 0 waits"),
        ("c", "tuned from 0 waits"),
    ):
        history.add({"t": 0, "event": "submit", "job": job, "gpus": 2, "model": ""})
        history.add(waits(0, job, "machine", 60, reason))
    history.add(started(30, "a", {"m": 2}))
    history.add(started(60, "b", {"m": 1, "n": 1}, "rack"))
    (row,) = timer_table({"srsf-delay": history, "fifo": RunHistory(["machine"], {})}).rows
    assert (row[0], [cell.text for cell in row[1]]) == (
        "srsf-delay",
        ["one machine", "3", "60 s", "33 %", "33 %", "30 s", "33 %"],
    )


def test_runs_without_preemptions_say_so(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, a=[0])
    ((_, cells),) = preemption_table(runs, {"a": RunHistory([], {})}).rows
    assert [cell.text for cell in cells] == ["0", "0", "0", "0", "0", "none", "none"]


def test_runs_that_knew_as_much_are_compared_by_name(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, slurm=[100, 300], dally=[0, 200])
    assert "running times known: exact" in setting(runs)
    assert "knew" not in compare_runs(runs).title


def test_runs_whose_policies_saw_profiles_of_another_error_are_not_compared_silently(tmp_path: Path) -> None:
    folders = [
        simple_run(tmp_path / "a", "slurm", [100, 300]),
        simple_run(tmp_path / "b", "srsf-delay", [0, 200]),
    ]
    change_run(folders[1], profile_error=0.3)
    runs = load_runs(folders)
    assert "srsf-delay (knew: exact, profiles ± 0.3) was best" in compare_runs(runs).title
    told = "error of the profiles that policies saw (slurm: 0, srsf-delay: 0.3)"
    assert told in next(warnings(runs))


def test_a_comparison_across_classes_of_knowledge_says_so_in_its_headline(tmp_path: Path) -> None:
    folders = [
        simple_run(tmp_path / "slurm", "slurm", [100, 300]),
        simple_run(tmp_path / "d", "srsf-delay", [0, 200]),
    ]
    change_run(folders[0], knowledge="limits")
    change_run(folders[1], knowledge="exact", estimate_error=0.5)
    runs = load_runs(folders)
    assert compare_runs(runs).title == (
        "srsf-delay (knew: exact ± 0.5) was best: jobs took 3.33 min on average, "
        "33 % less than under slurm (knew: limits)"
    )
    assert "running times known" not in setting(runs)
    table = headline_table(runs)
    assert table.headings[0][0] == "knew"
    assert [cells[0].text for _, cells in table.rows] == ["limits", "exact ± 0.5"]
    assert table.groups[0] == ("", 1)
    assert "knowledge of running times (slurm: limits, srsf-delay: exact)" in next(warnings(runs))
