"""A real Slurm with a real database: what sacct has of its jobs is a history that advice is calibrated on."""

import json
from dataclasses import replace

from click.testing import CliRunner

from analysis.advise.history import read_history
from analysis.studies.accounting_database import add_accounting
from analysis.studies.sleepers import ACCOUNTS, draw, history, run
from dally.commands import main
from slurm_plugin.local_cluster.local_slurm import LocalSlurm

JOBS = 25


def test_advice_is_calibrated_on_what_sacct_has_of_real_jobs(local_slurm: LocalSlurm) -> None:
    add_accounting(local_slurm, ACCOUNTS)
    run(local_slurm, [replace(job, sleep_s=min(job.sleep_s, 12)) for job in draw(JOBS, 0.4, seed=1)])
    path, page = local_slurm.work / "jobs.sacct", local_slurm.work / "advice.html"
    path.write_text(history(local_slurm))
    jobs = read_history(path).jobs
    assert {past.job.user for past in jobs} == {"dally-alice", "dally-bob"}
    assert {past.job.group for past in jobs} == {*ACCOUNTS}
    inputs = ["--cluster", str(local_slurm.spec.conf.parent), "--policy", "srsf-delay", "--processes", "1"]
    result = CliRunner().invoke(main, ["advise", str(path), *inputs, "-o", str(page), "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert said["calibration"]["jobs"] == JOBS
    # Whether it concludes anything depends on how long these seconds of sleep waited on this machine.
    assert 0 <= said["calibration"]["unexplained"] <= 1
