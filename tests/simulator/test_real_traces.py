"""Real traces on clusters like their own; skipped where the traces are not beside the repository."""

from functools import partial
from pathlib import Path

import pytest

from dally.policies.registry import parse_policy
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import Run, simulate

TRACES = Path(__file__).parents[3] / "shared" / "traces"
pytestmark = [
    pytest.mark.trace,
    pytest.mark.skipif(not TRACES.exists(), reason="the real traces are not beside the repository"),
]


real = partial(Inputs, profiles="realistic", model_mix="resnet50=0.5,bert-large=0.5", min_duration_s=1)


def run(policy: str, inputs: Inputs, folder: Path) -> Run:
    return simulate(load_scenario(inputs), parse_policy(policy), folder / "run")


@pytest.mark.parametrize("policy", ["srsf-delay", "dally", "tiresias", "slurm"])
def test_lingjun_on_its_own_topology(policy: str, tmp_path: Path) -> None:
    trace, topology = TRACES / "alibaba_lingjun.csv.gz", TRACES / "alibaba_lingjun_topo.csv"
    result = run(policy, real(str(trace), str(topology)), tmp_path)
    assert result.complete
    assert result.summary.completed == 2498


def test_venus_at_a_higher_load(tmp_path: Path) -> None:
    inputs = real(str(TRACES / "helios_venus.csv.gz"), "venus", arrival_scale=0.73)
    result = run("dally", inputs, tmp_path)
    assert result.complete
    assert result.summary.completed == 10_796
    assert result.summary.preemptions > 0


def test_two_days_of_philly_on_its_own_machines(tmp_path: Path) -> None:
    trace, machines = TRACES / "philly.csv.gz", TRACES / "philly_cluster_machine_list.csv"
    inputs = real(str(trace), str(machines), start_s=4_062_780, end_s=4_235_580)
    result = run("dally", inputs, tmp_path)
    assert result.complete
    assert result.summary.completed == 1999
