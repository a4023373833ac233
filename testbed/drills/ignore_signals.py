"""`python -m testbed.drills.ignore_signals`: like `dally-train`, but deaf to checkpoint signals."""

import signal
from unittest import mock

from workloads.stopping import StopRequest
from workloads.train import main

if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with mock.patch.object(StopRequest, "listen"):  # SIGTERM ends it at once
        main(prog_name="python -m testbed.drills.ignore_signals")
