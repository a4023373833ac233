"""Workload traces: read, generated, given models, summarised and written."""

from dally.traces.formats import TraceFormat, format_names
from dally.traces.generators import GENERATORS
from dally.traces.intake import TraceIntake
from dally.traces.load import load_trace
from dally.traces.model_mix import ModelMix, assign_models, parse_mix
from dally.traces.output_file import write_workload
from dally.traces.rows import Draft, Omission, RowError
from dally.traces.summary import TraceSummary, summarize
from dally.traces.workload import Workload, told_changes

__all__ = [
    "GENERATORS",
    "Draft",
    "ModelMix",
    "Omission",
    "RowError",
    "TraceFormat",
    "TraceIntake",
    "TraceSummary",
    "Workload",
    "assign_models",
    "format_names",
    "load_trace",
    "parse_mix",
    "summarize",
    "told_changes",
    "write_workload",
]
