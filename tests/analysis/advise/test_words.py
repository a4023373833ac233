"""Advice is said plainly: what changes, whether the calibration bears it, who loses, where to start."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.advise import words
from analysis.advise.advice import Advice, advise, plan
from analysis.advise.settings import SETTINGS
from analysis.advise.simulated import runner
from analysis.advise.site import Case
from tests.analysis.advise.histories import Row, site

ROWS = [Row(0, 0, 100, 8), Row(10, 100, 50, 8), Row(20, 180, 50, 8, user="bob")]


@pytest.fixture
def advice(tmp_path: Path) -> Advice:
    """Three jobs, of which each needs the whole cluster; simulated waits are 10 s too short on average."""
    here = site(tmp_path, ROWS)
    with runner(here, 1, lambda task: None) as simulate:
        return advise(here, plan(here, "slurm", "dally", [Case("as told")]), simulate)


def with_change(advice: Advice, least: float, change: float, most: float) -> Advice:
    """The advice had it come to such a change of all completion times."""
    whole = advice.effects.whole
    told = replace(whole, least=least, change=change, most=most, dally_s=whole.today_s * (1 + change))
    return replace(advice, effects=replace(advice.effects, whole=told))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            (-0.3, -0.25, -0.2),
            "Under Dally, jobs would have ended 25 % sooner on average (20 % to 30 %, by what",
        ),
        ((0.1, 0.1, 0.1), "Under Dally, jobs would have ended 10 % later on average"),
        ((-0.005, 0.0, 0.005), "Dally would have changed little"),
        ((-0.1, -0.05, 0.03), "depends on what the jobs train: completion times -10 % to +3 % on average"),
    ],
)
def test_the_title_tells_the_change_and_its_range(
    advice: Advice, changes: tuple[float, float, float], said: str
) -> None:
    assert said in words.title(with_change(advice, *changes))


def test_a_difference_within_the_error_of_the_simulation_is_not_relied_on(advice: Advice) -> None:
    assert advice.calibration is not None
    assert advice.calibration.bias_s == pytest.approx(-10)
    assert words.trust(with_change(advice, -0.5, -0.5, -0.5)).startswith("It stands out")
    small = words.trust(with_change(advice, -0.05, -0.05, -0.05))
    assert small.startswith("Do not rely on it: the difference is 7 s a job, the error of the mean 10 s.")


def test_who_would_lose_is_named(advice: Advice) -> None:
    assert words.losers_line(advice).startswith("Nobody would lose")
    loser = replace(advice.effects.whole, name="user bob", change=0.2)
    told = replace(advice, effects=replace(advice.effects, losers=[loser]))
    assert words.losers_line(told) == "Who would lose: user bob (+20 %)."


def test_few_starts_are_told(advice: Advice) -> None:
    assert "3 starts are few: take the error as a hint." in list(words.calibration_lines(advice))


def test_where_to_start_tells_what_the_setting_asks_for(advice: Advice) -> None:
    gains = with_change(advice, -0.5, -0.5, -0.5)
    assert next(words.settings_lines(gains)).startswith("Only dally was tried")
    lines = list(words.settings_lines(replace(gains, chosen=SETTINGS[1])))
    assert lines[0].startswith(
        'Start with policy = "dally:estimates=attained" in dally.toml; it asks for checkp'
    )
    assert "100 % of the jobs had a time limit and ran for 1 % of it in the median" in lines[-1]
