"""How a training process is asked to stop, and how it ends."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

BACK_SIGNALS = (signal.SIGUSR2, signal.SIGUSR1)
STOP_SIGNALS = (*BACK_SIGNALS, signal.SIGTERM)


class StopRequest:
    """Whether a signal came by which Slurm or a person asks a job to write a checkpoint and end.

    Attributes:
        asked: It did.
        back: One was SIGUSR2 or SIGUSR1, with which Dally stops jobs that it will start again.
    """

    def __init__(self) -> None:
        self.asked = self.back = False

    def listen(self) -> None:
        """Note the signals from now on; without this they end the process, as always."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.back |= number in BACK_SIGNALS


def end_at_once(code: int) -> NoReturn:
    """End this process without Python's cleaning up.

    While that runs, a thread of torch's that lets go of a Python object is ended in the middle of C++ code,
    which aborts the process; and one that waits for a lost rank is waited for.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
