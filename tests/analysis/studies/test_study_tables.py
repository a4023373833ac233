"""The tables of a study, from results that are made up."""

import pytest

from analysis.studies.study_tables import JCT, WAIT_P99, Case, behind
from simulator.inputs import Inputs
from simulator.sweep.groups import RunGroup
from simulator.sweep.plan import SweepTask


def case(**p99_s: float) -> Case:
    """Policies with one mean completion time and these waits."""
    inputs = Inputs(trace="venus-like", cluster="demo")
    groups = {
        policy: RunGroup(
            SweepTask("", {}, policy, inputs), {1: {JCT: 100.0, WAIT_P99: wait_s}}, lost={1: frozenset()}
        )
        for policy, wait_s in p99_s.items()
    }
    return Case("setting", "exact", groups)


@pytest.mark.parametrize(("fifo_s", "srtf_s"), [(0.9, 0.0), (1.0, 0.5), (109.0, 100.0), (5.0, 90.0)])
def test_who_waits_hardly_longer_is_not_behind(fifo_s: float, srtf_s: float) -> None:
    assert behind([case(fifo=fifo_s, srtf=srtf_s)]) == "In no setting."


def test_who_waits_longer_is_behind_the_best() -> None:
    assert "| 2 min, 0 s `srtf` |" in behind([case(fifo=120.0, srtf=0.0, slurm=60.0)])
    assert "| 2 min (+100.0 %), 60 s `slurm` |" in behind([case(fifo=120.0, srtf=90.0, slurm=60.0)])
