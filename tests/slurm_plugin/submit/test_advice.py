"""What dally-sbatch sees of a script's handling of the checkpoint signal, and what it says of a model."""

import pytest

from slurm_plugin.config import Config
from slurm_plugin.request import Request
from slurm_plugin.submit.advice import advice, handles


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\ntrap : USR2\nsrun x\n",
        "#!/bin/bash\ntrap 'asked=yes' TERM SIGUSR2\nsrun x\n",
        "#!/bin/sh\nset -e; trap '' 12\nsrun x\n",
        "#!/bin/bash\ntrap '\n  echo stop\n  touch stop\n' USR2\nsrun x\n",
        "#!/usr/bin/env python3\nimport signal\nsignal.signal(signal.SIGUSR2, note)\n",
        "#!/bin/bash\nexec srun python train.py\n",
        "#!/bin/bash\nexec /opt/venv/bin/python3.12 train.py\n",
    ],
)
def test_a_handler_is_seen(script: str) -> None:
    assert handles(script, "USR2")


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\nsrun x\nexit $?\n",
        "#!/bin/bash\n# trap : USR2\nsrun x\n",
        "#!/bin/bash\n#SBATCH --signal=USR2@60\nsrun x  # it has a handler of SIGUSR2\n",
        "#!/bin/bash\ntrap : USR1\nsrun x --seed 12\n",
        "#!/bin/bash\nsrun exec-trap USR2\n",
        "#!/bin/bash\nexec torchrun train.py\n",
        "#!/bin/bash\nexec > log.txt\npython train.py\n",
    ],
)
def test_no_handler_is_seen(script: str) -> None:
    assert not handles(script, "USR2")


def test_a_script_is_read_for_the_signal_that_is_meant() -> None:
    assert handles("trap : TERM\n", "TERM")
    assert not handles("trap : TERM\n", "USR2")


@pytest.mark.parametrize(
    ("gpus", "request_", "is_told"),
    [
        (1, Request(), False),
        (2, Request(), True),
        (None, Request(), True),
        (1, Request(max_gpus=4), True),
        (1, Request(max_copies=2), True),
        (1, Request(model="resnet5O"), True),
    ],
)
def test_only_a_job_of_one_gpu_for_good_is_not_told_that_distance_is_guessed(
    gpus: int | None, request_: Request, is_told: bool
) -> None:
    lines = list(advice(request_, "", Config(partitions=("gpu",)), gpus=gpus))
    assert ("what distance costs it" in " ".join(lines)) == is_told


def test_a_transformer_without_a_plan_is_asked_for_it() -> None:
    (line,) = advice(Request(model="llama3-8b"), "", Config(partitions=("gpu",)), gpus=8)
    assert line.endswith("; say how it trains with --parallel and --global-batch")
