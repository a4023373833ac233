"""The command that a launch starts on every rank: `python -m profiler.rank ORDER_JSON`.

The environment says where ranks meet, as torchrun or Slurm set it; DALLY_HOST names the host where its own
name does not. Rank 0 writes findings to standard output, one JSON line each. A rank that fails writes one
line to standard error and exits 1; for want of memory it writes a finding too, whichever rank it is.
"""

import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

from profiler.findings import Failed, Finding, format_line
from profiler.orders import parse_order
from profiler.rank.failures import explain, is_out_of_memory
from profiler.rank.launch import Launch
from profiler.rank.peers import host_name
from profiler.rank.slurm_place import take_place
from profiler.rank.stall import StallWatch
from workloads.ending import end_at_once

_USAGE = "usage: python -m profiler.rank ORDER_JSON"


def main() -> None:
    """Run one rank."""
    if len(sys.argv) != 2:
        print(_USAGE, file=sys.stderr)
        sys.exit(2)
    findings = _take_stdout()
    launch = None

    def report(finding: Finding) -> None:
        print(format_line(finding), file=findings, flush=True)

    try:
        order = parse_order(sys.argv[1])
        take_place(os.environ, order.backend)
        launch = Launch(order, report, StallWatch(order.stall_s, _end))
        launch.run()
        end_at_once(0)
    except KeyboardInterrupt:
        end_at_once(130)
    except Exception as error:
        if launch and launch.model and is_out_of_memory(error):
            report(Failed(launch.model, explain(error, ())))
        others = [peer for peer in launch.peers if str(peer.rank) != _rank()] if launch else []
        _end(explain(error, others))


def _take_stdout() -> TextIO:
    """Standard output for findings alone: what else is written there, as by NCCL, goes to standard error."""
    findings = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return findings


def _end(message: str) -> NoReturn:
    """End, with one line that says why."""
    with suppress(OSError):
        print(f"rank {_rank()} on {host_name(os.environ)}: {message}", file=sys.stderr, flush=True)
    end_at_once(1)


def _rank() -> str:
    return os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"


if __name__ == "__main__":
    main()
