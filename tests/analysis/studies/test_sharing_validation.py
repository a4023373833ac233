"""Fair sharing of links by hand, and against DeepShare's and Gavel's tables."""

from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.studies.deepshare_validation import (
    MeasuredJob,
    explain,
    fit_traffic,
    isolated_traffic,
    noise_lines,
    read_jobs,
    read_kept,
    share_fairly,
)
from analysis.studies.gavel_validation import validate_pairs
from dally.errors import InputError

TABLES = Path(__file__).parents[4] / "shared" / "throughputs"
needs_tables = [
    pytest.mark.trace,
    pytest.mark.skipif(not TABLES.is_dir(), reason="no published tables in ../shared/throughputs"),
]
JOBS = tuple(MeasuredJob("m", 8, nodes, 8 / time_s) for nodes, time_s in ((2, 3.0), (4, 4.0), (8, 4.5)))


def test_two_jobs_that_only_communicate_keep_half_and_one_that_never_does_keeps_all() -> None:
    kept = share_fairly(np.array([1.0, 0.0]))
    assert kept[0, 0] == pytest.approx(0.5)
    assert (kept[0, 1], kept[1, 0]) == pytest.approx((1.0, 1.0))


def test_half_communication_beside_a_job_that_only_communicates_takes_twice_as_long() -> None:
    kept = share_fairly(np.array([0.5, 1.0]))
    assert kept[0, 1] == pytest.approx(1 / 1.5)
    # The other one meets traffic in two thirds of the time: it lasts 1 / (1 - 1/3).
    assert kept[1, 0] == pytest.approx(2 / 3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_fair_sharing_keeps_between_half_and_all_and_solves_its_equations(shares: list[float]) -> None:
    traffic = np.array(shares)
    kept = share_fairly(traffic)
    assert (kept >= 0.5 - 1e-9).all()
    assert (kept <= 1 + 1e-9).all()
    busy = 1 - (1 - traffic)[None, :] * kept.T
    lasting = 1 - traffic[:, None] + traffic[:, None] / (1 - busy / 2)
    assert np.allclose(kept * lasting, 1, atol=1e-5)


def test_traffic_that_shares_fairly_is_found_again() -> None:
    truth = np.array([0.1, 0.5, 0.9, 0.3])
    kept = share_fairly(truth)
    assert np.allclose(fit_traffic(kept, np.ones_like(kept, dtype=bool)), truth, atol=1e-3)


def test_the_traffic_share_is_the_part_that_grows_with_the_ring_factor() -> None:
    # 1 + 2 x (1, 1.5, 1.75) seconds.
    assert isolated_traffic(JOBS) == pytest.approx([2 / 3, 3 / 4, 3.5 / 4.5])


def test_a_table_that_is_fair_sharing_is_explained_by_it() -> None:
    kept = share_fairly(isolated_traffic(JOBS))
    by_name = {item.name: item for item in explain(JOBS, kept)}
    assert by_name["fair sharing, traffic from the times alone"].error == pytest.approx(0.0, abs=1e-9)
    assert by_name["every job keeps everything"].error == pytest.approx(1 - kept.mean())


def write_tables(folder: Path, jobs: str, shares: str) -> Path:
    (folder / "isolated_thp.csv").write_text(jobs)
    (folder / "shared_thp_ratio.csv").write_text(shares)
    return folder


def test_tables_are_read_by_job(tmp_path: Path) -> None:
    folder = write_tables(
        tmp_path, ',thp\n"m,2,2",5.0\n"n,4,2",6.0\n', ',a,b\n"m,2,2",1,0.5\n"n,4,2",0.25,1\n'
    )
    jobs = read_jobs(folder)
    assert jobs == (MeasuredJob("m", 2, 2, 5.0), MeasuredJob("n", 4, 2, 6.0))
    kept = read_kept(folder, jobs)
    assert kept[0, 1] == 0.5
    said = noise_lines(jobs, kept)
    assert "the most there is: 50.0%. Below 0.5: 25.0%." in said
    assert "differ by 0.25" in said


@pytest.mark.parametrize(
    ("jobs", "shares", "message"),
    [
        (',thp\n"m,2",5.0\n', "", "must have rows of MODEL,GPUS,NODES and a throughput"),
        (',thp\n"m,2,2",fast\n', "", "isolated_thp.csv cannot be read: could not convert"),
        (',thp\n"m,2,2",5.0\n', ',b\n"n,2,2",1.0\n', "name different jobs"),
        (',thp\n"m,2,2",5.0\n', ',b\n"m,2,2",1.0,1.0\n', "name different jobs"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, jobs: str, shares: str, message: str) -> None:
    folder = write_tables(tmp_path, jobs, shares)
    with pytest.raises(InputError, match=message):
        read_kept(folder, read_jobs(folder))


class TestPublishedSharing:
    pytestmark = needs_tables

    def test_one_traffic_share_per_job_explains_as_much_as_row_and_column_effects(self) -> None:
        jobs = read_jobs(TABLES / "deepshare")
        kept = read_kept(TABLES / "deepshare", jobs)
        by_name = {item.name: item for item in explain(jobs, kept)}
        fair = by_name["fair sharing, a fitted traffic share per job"]
        additive = by_name["an effect per row and one per column"]
        assert fair.held_out < additive.held_out < by_name["every job keeps the mean"].held_out
        assert by_name["fair sharing, traffic from the times alone"].explained < 0

    def test_the_ring_factor_beats_no_change_on_gavels_pairs_where_apart_costs_something(self) -> None:
        results = validate_pairs(TABLES / "gavel")
        assert len(results) == 12
        for item in results:
            if item.faster_apart < item.pairs / 4:  # on a K80 many batches of LM are faster apart
                assert item.ours.mean < item.unchanged.mean
        assert mean(item.ours.mean for item in results) < mean(item.unchanged.mean for item in results) / 2
