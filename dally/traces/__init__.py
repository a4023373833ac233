"""Workload traces: read, generated, given models, summarised and written."""

from dally.traces.common_csv import write_workload
from dally.traces.generators import GENERATORS
from dally.traces.load import FORMAT_NAMES, load_trace
from dally.traces.model_mix import ModelMix, assign_models, parse_mix
from dally.traces.rows import RowError
from dally.traces.summary import TraceSummary, summarize
from dally.traces.workload import Workload, changes_text

__all__ = [
    "FORMAT_NAMES",
    "GENERATORS",
    "ModelMix",
    "RowError",
    "TraceSummary",
    "Workload",
    "assign_models",
    "changes_text",
    "load_trace",
    "parse_mix",
    "summarize",
    "write_workload",
]
