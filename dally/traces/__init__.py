"""Workload traces: read, generated, given models, summarised and written."""

from dally.traces.formats import FORMAT_NAMES
from dally.traces.generators import GENERATORS
from dally.traces.load import load_trace
from dally.traces.model_mix import ModelMix, assign_models, parse_mix
from dally.traces.output_file import write_workload
from dally.traces.rows import RowError
from dally.traces.summary import TraceSummary, summarize
from dally.traces.workload import Workload, told_changes

__all__ = [
    "FORMAT_NAMES",
    "GENERATORS",
    "ModelMix",
    "RowError",
    "TraceSummary",
    "Workload",
    "assign_models",
    "load_trace",
    "parse_mix",
    "summarize",
    "told_changes",
    "write_workload",
]
