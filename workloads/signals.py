"""Signals by which Slurm or a person asks a job to write a checkpoint and end."""

import signal
from types import FrameType

BACK_SIGNALS = (signal.SIGUSR2, signal.SIGUSR1)
STOP_SIGNALS = (*BACK_SIGNALS, signal.SIGTERM)


class StopRequest:
    """Whether such a signal came.

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
