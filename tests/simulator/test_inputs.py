"""What a simulation is told to use instead of what its inputs say."""

import pytest

from dally.costs import CostModel
from dally.errors import InputError
from simulator.inputs import Inputs, load_scenario


def test_restarts_cost_what_is_asked_for_whatever_the_gang() -> None:
    given = Inputs("gavel:jobs=50", "hadar-60", profiles="gavel", restart_s=10)
    scenario = load_scenario(given)
    costs = CostModel(scenario.topology, scenario.profiles)
    assert {costs.restart_s(job) for job in scenario.jobs} == {10.0}
    assert scenario.facts["restart_s"] == 10


def test_a_restart_cannot_take_less_than_no_time() -> None:
    with pytest.raises(InputError, match="restart_s is -1, must be 0 or more"):
        load_scenario(Inputs("gavel:jobs=5", "hadar-60", profiles="gavel", restart_s=-1))
