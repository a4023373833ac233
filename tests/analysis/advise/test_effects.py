"""Who gains and who loses is told for all, by size, group and user, over all that was assumed."""

from pathlib import Path

import numpy as np
import pytest

from analysis.advise.advice import SETTINGS, choose
from analysis.advise.effects import MOST, Effect, SimulatedPair, changes_by_case, effects
from analysis.advise.simulated import SimulatedTimes, SimulationTask
from analysis.advise.site import ModelAssumption
from tests.analysis.advise.histories import Row, read

ROWS = [
    Row(0, 0, 3600, 1, user="ann"),
    Row(0, 0, 3600, 3, user="bob", account="language"),
    Row(0, 0, 3600, 4, user="bob"),
]


def outcome(jct_s: list[float], case: ModelAssumption | None = None) -> SimulatedTimes:
    """Jobs that took so long, half of it waiting."""
    times_s = np.array(jct_s)
    return SimulatedTimes(SimulationTask("p", case), times_s / 2, times_s / 2, times_s, 0, max(jct_s))


def pair(today_s: list[float], dally_s: list[float], case: str = "middle") -> SimulatedPair:
    return SimulatedPair(outcome(today_s, ModelAssumption(case)), outcome(dally_s, ModelAssumption(case)))


def named(found: list[Effect]) -> dict[str, Effect]:
    return {each.name: each for each in found}


def test_means_and_changes_of_each_part(tmp_path: Path) -> None:
    pairs = [pair([100, 200, 300], [100, 220, 130]), pair([100, 200, 300], [100, 180, 200])]
    found = effects(read(tmp_path, ROWS), pairs)
    assert (found.whole.today_s, found.whole.dally_s, found.whole.today_wait_s) == (200, 150, 100)
    assert (found.whole.change, found.whole.least, found.whole.most) == pytest.approx((-0.25, -0.25, -0.2))
    assert (found.whole.sooner, found.whole.later) == pytest.approx((1 / 3, 1 / 3))
    assert [(each.name, each.jobs, each.gpu_h) for each in found.sizes] == [
        ("1 GPU", 1, 1),
        ("3 to 4 GPUs", 2, 7),
    ]
    users = named(list(found.users))
    assert (users["ann"].verdict, users["bob"].verdict) == ("even", "gain")
    groups = named(list(found.groups))
    assert groups["language"].verdict == "depends"
    assert [each.name for each in found.losers] == ["group language"]


def test_small_users_are_put_together(tmp_path: Path) -> None:
    rows = [Row(0, 0, 3600 + 10 * n, user=f"u{n}") for n in range(MOST + 3)]
    times_s = [1.0] * len(rows)
    found = effects(read(tmp_path, rows), [pair(times_s, times_s)])
    assert [each.name for each in found.users][:2] == [f"u{MOST + 2}", f"u{MOST + 1}"]
    assert (found.users[-1].name, found.users[-1].jobs) == ("other 3 users", 3)


def test_changes_are_told_by_case() -> None:
    pairs = [pair([10.0], [9.0]), pair([10.0], [8.0]), pair([10.0], [11.0], "high")]
    found = {name: pytest.approx(changes) for name, changes in changes_by_case(pairs)}
    assert found == {"middle": [-0.1, -0.2], "high": [0.1]}


def test_of_even_settings_the_one_that_asks_for_least_is_chosen() -> None:
    assert choose(SETTINGS, [outcome([t]) for t in (100.5, 100, 120)]) is SETTINGS[0]
    assert choose(SETTINGS, [outcome([t]) for t in (110, 100, 99.5)]) is SETTINGS[1]
