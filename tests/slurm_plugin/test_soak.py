"""Some days of the simulated weeks, which `python -m tests.slurm_plugin.soak --simulated` lets pass."""

from pathlib import Path

from tests.slurm_plugin.soak.simulated_weeks import simulate


def test_in_some_days_of_a_mixed_site_no_job_is_lost_or_waits_beside_gpus(tmp_path: Path) -> None:
    found = simulate(tmp_path, 0.2, "srsf-delay", seed=1)
    assert found.good, found
    assert found.jobs > 10
    assert found.ends["COMPLETED"] > 10
