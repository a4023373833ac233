"""Workloads with elastic jobs."""

from pathlib import Path

from click.testing import CliRunner

from analysis.studies.elastic_workload import main
from dally.jobs.job import JobKind
from dally.traces import load_trace
from dally.traces.published_workloads import GAVEL_SINGLE


def test_a_share_of_the_jobs_becomes_elastic_and_nothing_else_changes(tmp_path: Path) -> None:
    out = tmp_path / "elastic.csv"
    result = CliRunner().invoke(main, ["gavel:jobs=200", str(out), "--seed", "3"])
    assert result.exit_code == 0, result.output
    before, after = load_trace("gavel:jobs=200", seed=3).jobs, load_trace(out).jobs
    for old, new in zip(before, after, strict=True):
        assert (old.job_id, old.gpus, old.duration_s, old.model) == (
            new.job_id,
            new.gpus,
            new.duration_s,
            new.model,
        )
    elastic = [job for job in after if job.kind is JobKind.ELASTIC]
    able = [job for job in after if job.model not in GAVEL_SINGLE]
    assert 0.35 < len(elastic) / len(able) < 0.65
    assert {job.model for job in elastic}.isdisjoint(GAVEL_SINGLE)
    assert {(job.gpus, job.min_gpus, job.max_gpus) for job in elastic} <= {
        (1, 1, 4),
        (2, 1, 8),
        (4, 2, 16),
        (8, 4, 16),
    }
