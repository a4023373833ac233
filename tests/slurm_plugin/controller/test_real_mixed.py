"""Random jobs of a mixed site on real Slurm: partitions, features, whole nodes, CPUs, licences and limits."""

from pathlib import Path

from tests.slurm_plugin.mixed_jobs import mixed_site, run_mixed_jobs


def test_no_job_is_lost_refused_or_stops_others_in_vain(cluster_folder: Path) -> None:
    with mixed_site(cluster_folder, "srtf") as site:
        found = run_mixed_jobs(site, 30, seed=1, others=0.0, lasting_s=(1, 5))
    assert found.states == {"COMPLETED": 30}
    assert found.refused == {}
    assert found.in_vain == []
