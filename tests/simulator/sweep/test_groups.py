"""Means over seeds, their intervals, and ratios, by hand."""

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from scipy.special import stdtrit

from simulator.sweep.groups import Mean, figures, grouped, mean, ratio_of_means
from simulator.sweep.plan import SweepTask, read_plan
from simulator.sweep.tables import lost_lines, overview, result_rows, summary_rows, to_csv


def result(jct_s: float, placements: Mapping[str, int]) -> Mapping[str, Any]:
    spread = {"mean": jct_s, "p99": 2 * jct_s}
    return {
        "complete": True,
        "cpu_s": 1.5,
        "summary": {"jobs": 3, "jct_s": spread, "slowdown": {"mean": 1.0}, "placements": placements},
    }


@pytest.fixture
def found(tmp_path: Path) -> list[tuple[SweepTask, Mapping[str, Any]]]:
    path = tmp_path / "study.toml"
    path.write_text(
        'policies = ["fifo", "sjf:backfill=easy"]\nseeds = [1, 2]\ntrace = "dally-batch"\ncluster = "demo"\n'
    )
    values = [(10.0, {}), (20.0, {"rack": 1}), (30.0, {}), (30.0, {"rack": 3})]
    return [(task, result(*each)) for task, each in zip(read_plan(path).tasks, values, strict=True)]


def test_the_interval_is_student_s() -> None:
    three = mean([1.0, 2.0, 3.0])
    assert three.value == 2
    assert three.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert mean([5.0]).half is None
    assert mean([5.0, 5.0]).half == 0
    for count in (2, 3, 4, 30, 301):
        half = mean([0.0, 2.0] + [1.0] * (count - 2)).half
        assert half == pytest.approx(stdtrit(count - 1, 0.975) * sqrt(2 / (count - 1) / count), rel=1e-12)


def test_a_ratio_of_means_has_the_error_of_what_it_leaves_over() -> None:
    """12 over 10 is 1.2; it leaves 3, 0 and -3 over, whose deviation is 3."""
    ratio = ratio_of_means([(15.0, 10.0), (12.0, 10.0), (9.0, 10.0)])
    assert ratio.value == pytest.approx(1.2)
    assert ratio.half == pytest.approx(4.302653 * 3 / 3**0.5 / 10, rel=1e-6)
    same = ratio_of_means([(2.0, 1.0), (20.0, 10.0)])
    assert (same.value, same.half) == (2, 0)
    assert ratio_of_means([(2.0, 4.0)]).half is None


BLOCKS = {"fifo": {1: [10.0, 20.0], 2: [30.0, 40.0]}, "sjf": {1: [12.0, 26.0], 2: [30.0, 52.0]}}


def in_blocks(
    tmp_path: Path,
    trace: str,
    unfinished: bool = False,
    lost: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Mean | None:
    """The second policy against the first, of two seeds with two blocks each."""
    path = tmp_path / "study.toml"
    path.write_text(f'policies = ["fifo", "sjf"]\nseeds = [1, 2]\ntrace = "{trace}"\ncluster = "demo"\n')
    found = []
    for task in read_plan(path).tasks:
        blocks = [{"jct_mean_s": each} for each in BLOCKS[task.policy][task.inputs.seed]]
        ended = dict(result(1.0, {})) | {
            "blocks": blocks,
            "complete": not (unfinished and task.policy == "sjf"),
            "lost": lost.get(task.policy, []),
        }
        found.append((task, ended))
    ((first, second),) = grouped(found).values()
    return second.against(first)


def test_generated_jobs_are_paired_by_seed_and_block(tmp_path: Path) -> None:
    """120 over 100 is 1.2; (12, 26, 30, 52) - 1.2 * (10, 20, 30, 40) is (0, 2, -6, 4): variance 56 / 3."""
    found = in_blocks(tmp_path, "dally-poisson")
    assert found is not None
    assert found.value == pytest.approx(1.2)
    assert found.half == pytest.approx(3.182446 * (56 / 3) ** 0.5 / 4**0.5 / 25, rel=1e-6)


def test_seeds_of_a_trace_are_no_other_jobs_and_count_once(tmp_path: Path) -> None:
    """Means over the seeds are (21, 39) and (20, 30), which leaves -3 and 3 over."""
    found = in_blocks(tmp_path, "week.csv")
    assert found is not None
    assert found.value == pytest.approx(1.2)
    assert found.half == pytest.approx(12.7062 * 18**0.5 / 2**0.5 / 25, rel=1e-5)


def test_a_run_that_did_not_end_is_compared_with_nothing(tmp_path: Path) -> None:
    assert in_blocks(tmp_path, "dally-poisson", unfinished=True) is None


def test_runs_in_which_other_jobs_failed_are_not_compared_though_as_many_did(tmp_path: Path) -> None:
    assert in_blocks(tmp_path, "dally-poisson", lost={"sjf": ["a"]}) is None
    assert in_blocks(tmp_path, "dally-poisson", lost={"fifo": ["b"], "sjf": ["a"]}) is None
    assert in_blocks(tmp_path, "dally-poisson", lost={"fifo": ["a"], "sjf": ["a"]}) is not None


def test_it_is_told_which_policy_lost_how_many_other_jobs(
    found: list[tuple[SweepTask, Mapping[str, Any]]],
) -> None:
    lost: list[list[str]] = [["a"], ["a", "b"], ["c"], ["c"]]
    cases = grouped((task, {**result, "lost": ids}) for (task, result), ids in zip(found, lost, strict=True))
    seed = found[0][0].inputs.seed
    assert list(lost_lines(cases)) == [
        f"not compared: all runs, seed {seed}: sjf:backfill=easy lost 2 jobs, fifo 1 job, not the same ones"
    ]


@pytest.mark.parametrize("fault", ["failed jobs", "no end"])
def test_seeds_without_the_same_jobs_are_in_no_ratio(
    found: list[tuple[SweepTask, Mapping[str, Any]]], fault: str
) -> None:
    changed = {"complete": False} if fault == "no end" else {"lost": ["a"]}
    found[2] = (found[2][0], {**found[2][1], **changed})
    ((first, second),) = grouped(found).values()
    ratio = second.ratio(first, "jct_mean_s")
    assert ratio is not None
    assert ratio.value == pytest.approx(30 / 30 if found[2][0].inputs.seed == 1 else 20 / 10)


def test_figures_are_flat() -> None:
    assert figures(result(10.0, {"rack": 4})) == {
        "jobs": 3,
        "jct_mean_s": 10,
        "jct_p99_s": 20,
        "slowdown_mean": 1,
        "starts_rack": 4,
    }


def test_runs_of_a_policy_are_compared_with_the_first_policy_s_of_the_same_seed(
    found: list[tuple[SweepTask, Mapping[str, Any]]],
) -> None:
    ((first, second),) = grouped(found).values()
    assert first.mean("jct_mean_s").value == 20
    ratio = second.ratio(first, "jct_mean_s")
    assert ratio is not None
    assert ratio.value == pytest.approx((20 / 10 + 30 / 30) / 2)
    assert second.mean("starts_rack").value == 2
    assert second.ratio(first, "starts_rack") is None


def test_what_tells_runs_apart_stands_before_their_figures(
    found: list[tuple[SweepTask, Mapping[str, Any]]],
) -> None:
    header, first, second, *_ = to_csv(result_rows(found), "complete").splitlines()
    assert header == (
        "setting,policy,trace,cluster,knowledge,seed,policy.backfill,complete,cpu_s,jobs,jct_mean_s,jct_p99_s,"
        "slowdown_mean,starts_rack"
    )
    assert first == ",fifo,dally-batch,demo,exact,1,,yes,1.5,3,10,20,1,"
    assert second == ",sjf:backfill=easy,dally-batch,demo,exact,1,easy,yes,1.5,3,20,40,1,1"
    means = to_csv(summary_rows(grouped(found)), "figure").splitlines()
    assert means[0].endswith("policy.backfill,figure,runs,mean,ci95,ratio,ratio_ci95")
    assert ",fifo,dally-batch,demo,exact,,jct_mean_s,2,20,127.062047,1,0" in means


def test_the_overview_shows_paired_differences_with_their_interval(tmp_path: Path) -> None:
    """The second policy takes 9 and 17 s where the first takes 10 and 20: ratios of .9 and .85."""
    path = tmp_path / "study.toml"
    path.write_text('policies = ["fifo", "sjf"]\nseeds = [1, 2]\ntrace = "dally-batch"\ncluster = "demo"\n')
    values = [10.0, 9.0, 20.0, 17.0]
    found = [(task, result(jct_s, {})) for task, jct_s in zip(read_plan(path).tasks, values, strict=True)]
    (table,) = overview(grouped(found))
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert list(columns)[:2] == ["policy", "JCT mean"]
    half = 12.7062 * 0.05 / 2
    assert table.columns[2]._cells == ["", f"-12.5 ±{100 * half:.1f} %"]


SETTINGS = """
policies = ["fifo", "sjf"]
trace = "dally-batch"
cluster = "demo"
profiles = "dally"
[[settings]]
name = "told"
knowledge = ["exact", "limits"]
profile_error = 0.3
[[settings]]
name = "untold"
knowledge = "none"
"""


def test_runs_that_knew_different_things_stand_in_tables_that_say_so(tmp_path: Path) -> None:
    """Four seconds under the first policy of a class and its double under the second; no other ratio."""
    path = tmp_path / "study.toml"
    path.write_text(SETTINGS)
    values = [4.0, 8.0, 40.0, 80.0, 400.0, 800.0]
    found = [(task, result(jct_s, {})) for task, jct_s in zip(read_plan(path).tasks, values, strict=True)]
    places = grouped(found)
    assert [table.title for table in overview(places)] == [
        "told (knew: exact, profiles ± 0.3)",
        "told (knew: limits, profiles ± 0.3)",
        "untold (knew: none)",
    ]
    means = [row for row in summary_rows(places) if row["figure"] == "jct_mean_s"]
    assert [row["ratio"] for row in means] == [1, 2, 1, 2, 1, 2]
    assert [row["knowledge"] for row in means[::2]] == [
        "exact, profiles ± 0.3",
        "limits, profiles ± 0.3",
        "none",
    ]
