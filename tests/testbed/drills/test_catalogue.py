"""What drills do to a run, as far as it takes no cluster."""

import pytest

from testbed.drills.catalogue import ignoring_checkpoint_signal
from testbed.drills.fault_context import DrillError
from testbed.running.script import SubmitSettings, job_script
from tests.testbed.running.worlds import inputs, job


def test_a_deaf_job_keeps_all_but_its_ear() -> None:
    text = job_script(
        inputs(job("a", 4)).plans[0], "run-0", "/scratch/a", SubmitSettings("/opt/python", "gpu")
    )
    (training,) = [line for line in ignoring_checkpoint_signal(text).splitlines() if line.startswith("srun")]
    assert "-m testbed.drills.ignore_signals mobilenetv3" in training
    assert "--checkpoint-every 10 --checkpoint checkpoint.pt" in training
    assert "--checkpoint-grace=4" in ignoring_checkpoint_signal(text)


def test_a_script_that_cannot_be_made_deaf_is_no_drill() -> None:
    with pytest.raises(DrillError, match=r"workloads\.train"):
        ignoring_checkpoint_signal("#DALLY --checkpoint-grace=30\nsrun python train.py")
