"""`python -m testbed.drills.ignore_signals`: like `dally-train`, but deaf to checkpoint signals."""

import signal
from unittest import mock

from workloads.stopping import StopRequest
from workloads.train import main


def train_ignoring_signals() -> None:
    """Train, and ignore what asks for a checkpoint; SIGTERM ends it at once."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with mock.patch.object(StopRequest, "listen"):
        main(prog_name="python -m testbed.drills.ignore_signals")


if __name__ == "__main__":
    train_ignoring_signals()
