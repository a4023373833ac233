"""The command that a launcher starts on every rank: `python -m profiler.rank SPEC_JSON`.

The environment says where ranks meet, as torchrun or Slurm set it; DALLY_HOST names the host where its own
name does not. Rank 0 writes messages to standard output, one JSON line each. A rank that fails writes one
line to standard error and exits 1; for want of memory it writes a message too, whichever rank it is.
"""

import os
import sys
from contextlib import suppress
from typing import NoReturn

from profiler.messages import Failed, Message, format_line
from profiler.rank.failures import StallWatch, explain, is_out_of_memory
from profiler.rank.peers import host_name
from profiler.rank.session import RankSession
from profiler.rank.slurm_rank import set_rank
from profiler.spec import parse_spec
from workloads.stopping import end_at_once


def main() -> None:
    """Run one rank."""
    if len(sys.argv) != 2:
        print("usage: python -m profiler.rank SPEC_JSON", file=sys.stderr)
        sys.exit(2)
    # Standard output is for messages alone: what else is written there, as by NCCL, goes to standard error.
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    session = None

    def report(message: Message) -> None:
        print(format_line(message), file=messages, flush=True)

    try:
        spec = parse_spec(sys.argv[1])
        set_rank(os.environ, spec.backend)
        session = RankSession(spec, report, StallWatch(spec.stall_s, _fail))
        session.run()
        end_at_once(0)
    except KeyboardInterrupt:
        end_at_once(130)
    except Exception as error:
        if session and session.model and is_out_of_memory(error):
            report(Failed(session.model, explain(error, ())))
        others = [peer for peer in session.peers if str(peer.rank) != _rank()] if session else []
        _fail(explain(error, others))


def _fail(text: str) -> NoReturn:
    """End with one line that says why."""
    with suppress(OSError):
        print(f"rank {_rank()} on {host_name(os.environ)}: {text}", file=sys.stderr, flush=True)
    end_at_once(1)


def _rank() -> str:
    return os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"


if __name__ == "__main__":
    main()
