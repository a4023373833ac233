"""Stands for a rank that `rank_server` forks: `python -m` and this module's name, MODULE ARGUMENTS."""

import sys

from workloads.preload_client import run_preloaded

if __name__ == "__main__":
    sys.exit(run_preloaded(sys.argv[1:]))
