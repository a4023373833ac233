"""Training on a real Slurm, as docs/dally-sbatch.md has it: a signal ends it with 85 and a checkpoint."""

import json
import re
import sys

from dally.job import CHECKPOINTED
from testbed.local_slurm import LocalSlurm
from tests.workloads.ranks import ROOT

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks=2 --gpus-per-node=1 --no-requeue --output={folder}/output
trap : USR1
srun {python} -m workloads.train mobilenetv3 --steps {steps} --global-batch 4 --size 64 --backend gloo \\
    --checkpoint {folder}/job.pt --log-file {folder}/log.jsonl
exit $?
"""
START_S = 120.0


def test_a_job_checkpoints_at_a_signal_and_goes_on(lab: LocalSlurm) -> None:
    log = lab.work / "log.jsonl"
    job = submit(lab, 100_000)
    lab.wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 2, "three steps", START_S)
    lab.run("scancel", "--signal=USR1", "--full", job)
    assert wait_for_end(lab, job) == CHECKPOINTED
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert wait_for_end(lab, submit(lab, steps[-1] + 2)) == 0
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1))


def submit(lab: LocalSlurm, steps: int) -> str:
    """Submit the job, whose ranks meet on this machine whatever its nodes are called; its number."""
    script = lab.work / "train.sh"
    script.write_text(SCRIPT.format(folder=lab.work, python=sys.executable, steps=steps))
    export = "--export=ALL,MASTER_ADDR=127.0.0.1,OMP_NUM_THREADS=1"
    return lab.run("sbatch", "--parsable", f"--chdir={ROOT}", export, str(script)).strip()


def wait_for_end(lab: LocalSlurm, job: str) -> int:
    """Wait until the job has ended; its exit code."""

    def show() -> str:
        return lab.run("scontrol", "--oneliner", "show", "job", job)

    lab.wait_for(lambda: re.search(r"JobState=(COMPLETED|FAILED)", show()) is not None, "the end", START_S)
    found = re.search(r" ExitCode=(\d+):0", show())
    assert found
    return int(found[1])
