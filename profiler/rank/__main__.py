"""The command that a launch starts on every rank: `python -m profiler.rank ORDER_JSON`.

The environment says where ranks meet, as torchrun or Slurm set it; DALLY_HOST names the host where its own
name does not. Rank 0 writes findings to standard output, one JSON line each. A rank that fails writes one
line to standard error and exits 1.
"""

import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

from profiler.findings import Finding, format_line
from profiler.orders import parse_order
from profiler.rank.failures import explain
from profiler.rank.launch import Launch
from profiler.rank.peers import host_name
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
        launch = Launch(parse_order(sys.argv[1]), report)
        launch.run()
        end_at_once(0)
    except KeyboardInterrupt:
        end_at_once(130)
    except Exception as error:
        _fail(error, launch)


def _take_stdout() -> TextIO:
    """Standard output for findings alone: what else is written there, as by NCCL, goes to standard error."""
    findings = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return findings


def _fail(error: Exception, launch: Launch | None) -> NoReturn:
    rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"
    others = [peer for peer in launch.peers if str(peer.rank) != rank] if launch else []
    with suppress(OSError):
        message = explain(error, others)
        print(f"rank {rank} on {host_name(os.environ)}: {message}", file=sys.stderr, flush=True)
    end_at_once(1)


if __name__ == "__main__":
    main()
