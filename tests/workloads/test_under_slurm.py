"""The script of docs/workloads.md on a real Slurm: a signal ends it with 85 and a checkpoint; it goes on."""

import json
import re
import sys

from dally.jobs.job import CHECKPOINTED
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.workloads.ranks import ROOT
from workloads.group import free_port

PAGE = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
SMALL = {
    "dally-train": f"{sys.executable} -m workloads.train",
    "resnet50 ": "mobilenetv3 ",
    "100000": "{steps}",
    "2048": "4",
    "--precision bf16": "--size 64 --backend gloo",
    "resnet50.": "{folder}/job.",
}
"""What makes the page's job one for this machine."""
START_S = 120.0


def test_a_job_checkpoints_at_a_signal_and_goes_on(local_slurm: LocalSlurm) -> None:
    log = local_slurm.work / "job.jsonl"
    job = submit(local_slurm, 100_000, nodes=2)
    local_slurm.wait_for(
        lambda: log.exists() and len(log.read_text().splitlines()) > 2, "three steps", START_S
    )
    local_slurm.run("scancel", "--signal=USR2", "--full", job)
    assert wait_for_end(local_slurm, job) == CHECKPOINTED
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert wait_for_end(local_slurm, submit(local_slurm, steps[-1] + 2, nodes=1)) == 0
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1))


def submit(local_slurm: LocalSlurm, steps: int, nodes: int) -> str:
    """Submit the job, one rank on each node, all of which meet on this machine; its number."""
    found = re.search(r"^#!/bin/bash\n#SBATCH .*?^exit \$\?\n", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    text = found[0]
    for word, other in SMALL.items():
        assert word in text
        text = text.replace(word, other)
    script = local_slurm.work / "train.sh"
    script.write_text(text.format(folder=local_slurm.work, steps=steps))
    options = ("--parsable", "--no-requeue", f"--chdir={ROOT}", f"--output={local_slurm.work}/output")
    size = (f"--nodes={nodes}", "--gpus-per-node=1", "--ntasks-per-node=1")
    # Beside this cluster there may be others, whose jobs have the same numbers and so the same ports.
    export = f"--export=ALL,MASTER_ADDR=127.0.0.1,MASTER_PORT={free_port()},OMP_NUM_THREADS=1"
    return local_slurm.run("sbatch", *options, *size, export, str(script)).strip()


def wait_for_end(local_slurm: LocalSlurm, job: str) -> int:
    """Wait until the job has ended; its exit code."""

    def show() -> str:
        return local_slurm.run("scontrol", "--oneliner", "show", "job", job)

    local_slurm.wait_for(
        lambda: re.search(r"JobState=(COMPLETED|FAILED)", show()) is not None, "the end", START_S
    )
    found = re.search(r" ExitCode=(\d+):0", show())
    assert found
    return int(found[1])
