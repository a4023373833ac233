from pathlib import Path

import pytest

from dally.traces import RowError, load_trace, summarize

TRACES = Path(__file__).parents[4] / "shared" / "traces"
pytestmark = [
    pytest.mark.trace,
    pytest.mark.skipif(not (TRACES / "philly.csv.gz").exists(), reason="no real traces in ../shared/traces"),
]


@pytest.mark.slow
def test_phillys_steady_slice_has_the_published_jobs() -> None:
    workload = load_trace(TRACES / "philly.csv.gz", start_s=4_062_780, end_s=10_542_780, min_duration_s=1)
    summary = summarize(workload)
    assert (summary.jobs, workload.outside) == (101_005, 10_544)
    assert workload.sha256 == "6345d5ab462385daa51403b18bcc8cdd863d51cd66e1410b8160458034d6228d"
    assert summary.mean_gap_s == pytest.approx(64, abs=0.5)
    assert summary.gap_cv == pytest.approx(2.7, abs=0.05)
    assert summary.gpus[1] / summary.jobs == pytest.approx(0.87, abs=0.005)
    assert max(summary.gpus) == 128


def test_venus_reads_without_a_wrong_row() -> None:
    workload = load_trace(TRACES / "helios_venus.csv.gz")
    summary = summarize(workload)
    assert (summary.jobs, summary.users, dict(workload.dropped)) == (10_796, 95, {})
    assert summary.mean_gap_s == pytest.approx(162, abs=0.5)


def test_lingjuns_jobs_of_duration_0_are_an_error_skipped_or_clamped() -> None:
    path = TRACES / "alibaba_lingjun.csv.gz"
    with pytest.raises(RowError, match="duration_s is 0"):
        load_trace(path)
    assert load_trace(path, skip_bad=True).dropped == {"duration_s is 0": 241}
    clamped = load_trace(path, min_duration_s=1)
    assert (len(clamped.jobs), clamped.clamped) == (2_498, 241)
