"""`python -m testbed.drills.deaf`: like `dally-train`, but deaf to checkpoint signals."""

import signal
from unittest import mock

from workloads.stopping import StopRequest
from workloads.train import main


def deaf() -> None:
    """Train, and ignore what asks for a checkpoint; SIGTERM ends it at once."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with mock.patch.object(StopRequest, "listen"):
        main(prog_name="python -m testbed.drills.deaf")


if __name__ == "__main__":
    deaf()
