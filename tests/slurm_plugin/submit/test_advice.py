"""What dally-sbatch sees of a script's handling of the checkpoint signal."""

import pytest

from slurm_plugin.submit.advice import handles


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\ntrap : USR2\nsrun x\n",
        "#!/bin/bash\ntrap 'asked=yes' TERM SIGUSR2\nsrun x\n",
        "#!/bin/sh\nset -e; trap '' 12\nsrun x\n",
        "#!/usr/bin/env python3\nimport signal\nsignal.signal(signal.SIGUSR2, note)\n",
        "#!/bin/bash\nexec srun python train.py\n",
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
    ],
)
def test_no_handler_is_seen(script: str) -> None:
    assert not handles(script, "USR2")


def test_a_script_is_read_for_the_signal_that_is_meant() -> None:
    assert handles("trap : TERM\n", "TERM")
    assert not handles("trap : TERM\n", "USR2")
