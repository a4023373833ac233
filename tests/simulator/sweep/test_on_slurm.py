"""Runs of a sweep as jobs of a real Slurm."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.commands import main
from slurm_plugin.local_cluster.local_slurm import LocalSlurm

STUDY = """policies = ["fifo", "srtf"]
seeds = [1, 2]
trace = "philly-like:jobs=60,gap_s=10"
cluster = "demo"
skip_bad = true
[slurm]
queue = "gpu"
walltime = "00:10:00"
memory = "1GiB"
log_directory = "{folder}"
local_directory = "{folder}"
"""


def test_runs_are_jobs_of_slurm(
    local_slurm: LocalSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in local_slurm.environment.items():
        monkeypatch.setenv(name, value)
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(folder=local_slurm.work))
    result = CliRunner().invoke(main, ["sweep", str(study), "--on", "slurm", "--workers", "2"])
    assert result.exit_code == 0, result.output
    assert len(list(csv.DictReader((tmp_path / "study" / "results.csv").open()))) == 4
    assert len(list(local_slurm.work.glob("dask-worker-*.out"))) == 2
    local_slurm.wait_for(
        lambda: not local_slurm.run("squeue", "--noheader").strip(), "the workers' jobs to end"
    )


def test_a_job_that_slurm_would_not_take_is_refused(
    local_slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in local_slurm.environment.items():
        monkeypatch.setenv(name, value)
    study = local_slurm.work / "study.toml"
    study.write_text(STUDY.format(folder=local_slurm.work).replace('"gpu"', '"nowhere"'))
    result = CliRunner().invoke(main, ["sweep", str(study), "--on", "slurm"])
    assert result.exit_code == 1
    assert "invalid partition specified: nowhere" in result.output


def test_an_option_that_its_cluster_does_not_know_is_named(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(folder=tmp_path) + 'colour = "red"\n')
    result = CliRunner().invoke(main, ["sweep", str(study), "--on", "slurm"])
    assert result.exit_code == 1
    assert "[slurm]" in result.output
    assert "colour" in result.output
