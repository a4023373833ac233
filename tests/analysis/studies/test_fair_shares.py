import pytest

from analysis.studies.common import StudyRun
from analysis.studies.fair_shares import (
    SharedRun,
    SharedSite,
    accounts,
    moved,
    shares_table,
    shifts,
    simulate_site,
)
from analysis.weekly_shares import shares
from simulator.priorities import PrioritySettings

ANN, BOB = ("vision", "ann"), ("text", "bob")


def test_shifts_are_by_week_of_users_or_accounts(small: StudyRun) -> None:
    before = SharedRun(small, [shares({ANN: 5, BOB: 5}), shares({ANN: 1})])
    after = SharedRun(small, [shares({ANN: 7, BOB: 3}), shares({ANN: 1})])
    assert sorted(shifts(before, after, users=True)) == pytest.approx([0, 0.2, 0.2])
    assert max(shifts(before, after, users=False)) == pytest.approx(0.2)
    assert moved(before, after) == pytest.approx(0.1)


@pytest.fixture(scope="module")
def site() -> SharedSite:
    settings = PrioritySettings(accounts=accounts(6, (2, 1)))
    return SharedSite("venus-like:jobs=60,users=6", "demo", 1.0, settings)


@pytest.fixture(scope="module")
def small(site: SharedSite) -> StudyRun:
    return simulate_site("slurm", site).run


def test_the_table_holds_a_ratio_against_slurm(site: SharedSite) -> None:
    slurm = simulate_site("slurm", site)
    again = shares_table(slurm, {0.0: slurm}).splitlines()
    assert len(again) == 4
    assert "| +0% |" in again[3]
    assert "| 0.0 | 0.0 | 0.0% |" in again[3]
    assert {owner[0] for week in slurm.shares for owner in week} == {"account-0", "account-1"}
