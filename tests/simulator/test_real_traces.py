"""Real traces on clusters like their own; skipped where the traces are not beside the repository."""

from pathlib import Path

import pytest

from dally.policies.registry import parse_policy, policy_names
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import Run, simulate

TRACES = Path(__file__).parents[3] / "shared" / "traces"
MIX = "resnet50=0.5,bert-large=0.5"

pytestmark = [
    pytest.mark.trace,
    pytest.mark.skipif(not TRACES.exists(), reason="the real traces are not beside the repository"),
]


def run(policy: str, trace: str, cluster: str, folder: Path, **more: float) -> Run:
    inputs = Inputs(str(TRACES / trace), cluster, "realistic", MIX, min_duration_s=1, **more)  # type: ignore[arg-type]
    return simulate(load_scenario(inputs), parse_policy(policy), folder / "run")


@pytest.mark.parametrize("policy", policy_names())
def test_lingjun_on_its_own_topology(policy: str, tmp_path: Path) -> None:
    result = run(policy, "alibaba_lingjun.csv.gz", str(TRACES / "alibaba_lingjun_topo.csv"), tmp_path)
    assert result.complete
    assert result.summary.completed == 2498


def test_venus_at_a_higher_load(tmp_path: Path) -> None:
    result = run("dally-paper", "helios_venus.csv.gz", "venus", tmp_path, arrival_scale=0.73)
    assert result.complete
    assert result.summary.completed == 10_796
    assert result.summary.preemptions > 0


def test_a_week_of_philly_on_its_own_machines(tmp_path: Path) -> None:
    machines = str(TRACES / "philly_cluster_machine_list.csv")
    result = run("dally-paper", "philly.csv.gz", machines, tmp_path, start_s=4_062_780, end_s=4_667_580)
    assert result.complete
    assert result.summary.completed > 5000
