"""What a simulation is told to use instead of what its inputs say."""

import pytest

from dally.costs import CostModel
from dally.errors import InputError
from dally.policies.registry import parse_policy
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import simulate_jobs


def test_restarts_cost_what_is_asked_for_whatever_the_gang() -> None:
    for profiles in ("gavel", None):
        given = Inputs("gavel:jobs=50", "hadar-60", profiles=profiles, restart_s=10)
        scenario = load_scenario(given)
        costs = CostModel(scenario.topology, scenario.profiles, restart_s=scenario.restart_s)
        assert {costs.restart_s(job) for job in scenario.jobs} == {10.0}
        assert scenario.facts["restart_s"] == 10


def test_restarts_of_jobs_without_a_profile_take_as_long_as_is_asked_for() -> None:
    given = Inputs("venus-like:jobs=30,load=1.5,cluster_gpus=64", "demo", restart_s=500)
    run, records = simulate_jobs(load_scenario(given), parse_policy("tiresias"))
    once = [record.restart_s for record in records if record.preemptions == 1]
    assert run.complete
    assert once
    assert once == pytest.approx([500.0] * len(once))


def test_a_restart_cannot_take_less_than_no_time() -> None:
    with pytest.raises(InputError, match="restart_s is -1, must be 0 or more"):
        load_scenario(Inputs("gavel:jobs=5", "hadar-60", profiles="gavel", restart_s=-1))
