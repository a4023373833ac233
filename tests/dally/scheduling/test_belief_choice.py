import json
from random import Random

import pytest

from dally.jobs.knowledge import Knowledge
from dally.scheduling.belief_choice import FEWEST_JOBS, HALF_LIFE_JOBS, MARGIN, Choice, Ended

LIMITS, HISTORY = Knowledge.LIMITS, Knowledge.HISTORY


def told(choice: Choice, count: int, limits: float, history: float, seed: int = 1) -> list[int]:
    """Jobs end of which each side knew the truth times a log-normal error; when the choice changed."""
    draws = Random(seed)
    changes = []
    for number in range(count):
        work_s = draws.lognormvariate(7.0, 2.0)
        believed_s = {
            side: work_s * draws.lognormvariate(0.0, error)
            for side, error in ((LIMITS, limits), (HISTORY, history))
        }
        if choice.judge(Ended(work_s, believed_s, 2 * work_s), float(number)):
            changes.append(number)
    return changes


def test_a_new_site_goes_by_limits_until_some_jobs_have_ended() -> None:
    choice = Choice()
    assert told(choice, FEWEST_JOBS - 1, limits=9.0, history=0.0) == []
    assert choice.best is LIMITS
    assert told(choice, 1, limits=9.0, history=0.0)
    assert (choice.best, choice.since_s) == (HISTORY, 0.0)


def test_limits_that_are_all_alike_are_chance_and_give_way() -> None:
    choice = Choice()
    for number in range(200):
        work_s = 10.0 * (1 + number % 7) ** 2
        choice.judge(Ended(work_s, {LIMITS: 86_400.0, HISTORY: work_s}, 86_400.0), number)
    assert choice.shares() == {LIMITS: 0.5, HISTORY: 1.0}
    assert choice.best is HISTORY


def test_whoever_is_right_more_often_wins_whatever_the_scale() -> None:
    """Limits of ten times the truth put every pair in order; history errs by a factor of e."""
    choice = Choice()
    assert told(choice, 1000, limits=0.0, history=1.0) == []
    shares = choice.shares()
    assert shares[LIMITS] == 1.0 > shares[HISTORY] > 0.8


@pytest.mark.parametrize("seed", range(5))
def test_sides_that_are_as_good_as_each_other_do_not_take_turns(seed: int) -> None:
    assert len(told(Choice(), 5000, limits=1.0, history=1.0, seed=seed)) <= 1


def test_what_became_better_is_taken_up_in_time() -> None:
    choice = Choice()
    told(choice, 2000, limits=0.5, history=2.0)
    assert choice.best is LIMITS
    (when,) = told(choice, 2000, limits=2.0, history=0.5)
    assert MARGIN * HALF_LIFE_JOBS < when < 2 * HALF_LIFE_JOBS


def test_it_is_kept_over_a_restart() -> None:
    choice, again = Choice(), Choice()
    told(choice, 300, limits=2.0, history=0.5)
    again.restore(json.loads(json.dumps(choice.snapshot())))
    assert again.snapshot() == choice.snapshot()
    assert told(again, 500, 0.2, 1.0) == told(choice, 500, 0.2, 1.0)
    assert again.shares() == choice.shares()


def test_it_tells_how_much_of_their_limits_jobs_take() -> None:
    choice = Choice()
    assert choice.limit_used() is None
    told(choice, 3, 1.0, 1.0)
    assert choice.limit_used() == 0.5
