"""`python -m tests.slurm_plugin.soak --hours 1 --faults`, `--blocks --jobs 1000`, `--simulated --weeks 6`."""

import argparse
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from tests.slurm_plugin.quick_journals import quick_journals
from tests.slurm_plugin.soak.block_starts import BlockFindings, block_site, many_starts
from tests.slurm_plugin.soak.real_soak import SoakFindings, soak, soak_site
from tests.slurm_plugin.soak.simulated_weeks import WeeksFindings, simulate


def main() -> None:
    """Read the arguments and run; exits 1 if something was lost, leaked or run twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm_plugin.soak")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=100_000, help="most jobs")
    parser.add_argument("--faults", action="store_true", help="kill, restart and drain meanwhile")
    parser.add_argument("--blocks", action="store_true", help="so many starts under topology/block instead")
    parser.add_argument("--simulated", action="store_true", help="in virtual time, over a Slurm in memory")
    parser.add_argument("--weeks", type=float, default=6.0, help="of a simulated site")
    parser.add_argument("--policy", default="srsf-delay")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found: BlockFindings | SoakFindings | WeeksFindings
    if asked.simulated:
        with tempfile.TemporaryDirectory() as folder, quick_journals():
            found = simulate(Path(folder), asked.weeks, asked.policy, asked.seed)
    elif asked.blocks:
        with block_site(Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp")), asked.policy) as blocks:
            found = many_starts(blocks, asked.jobs, asked.seed)
    else:
        with soak_site(Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp")), asked.policy) as site:
            found = soak(site, asked.hours, asked.jobs, asked.faults, asked.seed)
    for each in fields(found):
        print(f"{each.name}: {getattr(found, each.name)}")
    sys.exit(not found.good)


if __name__ == "__main__":
    main()
