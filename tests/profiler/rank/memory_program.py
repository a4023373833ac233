"""A rank on which one model does not fit into memory: `memory_program SPEC MODEL RANK`."""

import os
import sys
from unittest.mock import patch

import torch

from profiler.messages import Trained
from profiler.rank import session
from profiler.rank.__main__ import main
from profiler.rank.training import Bench, measure_model
from workloads.registry import ModelRecipe


def _measure(workload: ModelRecipe, bench: Bench) -> Trained:
    if workload.name == _MODEL and os.environ["RANK"] == _RANK:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nand a page more")
    return measure_model(workload, bench)


if __name__ == "__main__":
    _RANK, _MODEL = sys.argv.pop(), sys.argv.pop()
    with patch.object(session, "measure_model", _measure):
        main()
