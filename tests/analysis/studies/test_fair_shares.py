import pytest

from analysis.studies.common import StudyRun
from analysis.studies.fair_shares import (
    WEEK_S,
    Owner,
    OwnerTime,
    SharedRun,
    SharedSite,
    accounts,
    moved,
    parts,
    shares_table,
    shifts,
    simulate_site,
)
from simulator.priorities import PrioritySettings

ANN, BOB = ("vision", "ann"), ("text", "bob")


def test_gpu_time_is_split_by_week_and_owner() -> None:
    log = OwnerTime({"a": ANN, "b": BOB})
    log.write(WEEK_S - 100, "start", job="a", gpus={"m0": 4, "m1": 4})
    log.write(WEEK_S, "start", job="b", gpus={"m2": 2})
    log.write(WEEK_S + 50, "preempt", job="b")
    log.write(WEEK_S + 50, "resize", job="a", gpus={"m0": 4})
    log.write(WEEK_S + 150, "end", job="a")
    assert log.gpu_s == {0: {ANN: 800}, 1: {ANN: 8 * 50 + 4 * 100, BOB: 100}}


def test_an_account_has_what_its_users_have() -> None:
    cid: Owner = ("vision", "cid")
    found = parts({ANN: 6.0, cid: 2.0, BOB: 2.0})
    assert found[ANN] == pytest.approx(0.6)
    assert found["vision", ""] == pytest.approx(0.8)
    assert found["text", ""] == pytest.approx(0.2)


def test_shifts_are_by_week_of_users_or_accounts(small: StudyRun) -> None:
    before = SharedRun(small, [parts({ANN: 5, BOB: 5}), parts({ANN: 1})])
    after = SharedRun(small, [parts({ANN: 7, BOB: 3}), parts({ANN: 1})])
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
