"""GPU time is counted by week and user, and the difference between two schedulers by each of them."""

import pytest

from analysis.weekly_shares import WEEK_S, Owner, WeeklyGpuTime, share_changes, shares

ANN, BOB = ("vision", "ann"), ("text", "bob")


def test_gpu_time_is_split_by_week_and_owner() -> None:
    time = WeeklyGpuTime({"a": ANN, "b": BOB}, WEEK_S + 140)
    time.write(WEEK_S - 100, "start", job="a", gpus={"m0": 4, "m1": 4})
    time.write(WEEK_S, "start", job="b", gpus={"m2": 2})
    time.write(WEEK_S + 50, "preempt", job="b")
    time.write(WEEK_S + 50, "resize", job="a", gpus={"m0": 4})
    time.write(WEEK_S + 150, "end", job="a")
    assert time.gpu_s == {0: {ANN: 800}, 1: {ANN: 8 * 50 + 4 * 90, BOB: 100}}
    assert time.total_gpu_s == 800 + 8 * 50 + 4 * 90 + 100


def test_an_account_has_what_its_users_have() -> None:
    cid: Owner = ("vision", "cid")
    found = shares({ANN: 6.0, cid: 2.0, BOB: 2.0})
    assert found[ANN] == pytest.approx(0.6)
    assert found["vision", ""] == pytest.approx(0.8)
    assert found["text", ""] == pytest.approx(0.2)


@pytest.mark.parametrize(("last_submit_s", "weeks"), [(0.5, 1), (1.5, 1), (2, 2)])
def test_whole_weeks_count_and_the_first_until_the_last_submission(last_submit_s: float, weeks: int) -> None:
    time = WeeklyGpuTime({"a": ANN, "b": BOB}, last_submit_s * WEEK_S)
    time.write(0, "start", job="a", gpus={"m0": 1})
    time.write(0.25 * WEEK_S, "start", job="b", gpus={"m1": 1})
    for job in "ab":
        time.write(3 * WEEK_S, "end", job=job)
    found = time.shares()
    assert len(found) == weeks
    assert found[0][ANN] == pytest.approx(2 / 3 if last_submit_s == 0.5 else 4 / 7)


def test_changes_tell_whose_part_of_which_week_moved_and_how_far() -> None:
    early, late = [shares({ANN: 3, BOB: 1}), shares({ANN: 1})], [shares({ANN: 2, BOB: 2}), shares({BOB: 1})]
    changes = {(each.week, each.owner): each for each in share_changes(early, late)}
    assert (changes[0, BOB].before, changes[0, BOB].after) == (0.25, 0.5)
    assert changes[1, ANN].size == changes[1, BOB].size == changes[1, ("text", "")].size == 1
