"""Workload traces: read, generated, given models, summarised and written."""

from dally.traces.common_csv import write_workload
from dally.traces.generators import GENERATORS
from dally.traces.load import TraceFormat, format_names, load_trace
from dally.traces.model_mix import ModelMix, assign_models, parse_mix
from dally.traces.rows import Draft, JobCollector, Omission, RowError
from dally.traces.summary import TraceSummary, summarize
from dally.traces.workload import Workload, changes_text

__all__ = [
    "GENERATORS",
    "Draft",
    "JobCollector",
    "ModelMix",
    "Omission",
    "RowError",
    "TraceFormat",
    "TraceSummary",
    "Workload",
    "assign_models",
    "changes_text",
    "format_names",
    "load_trace",
    "parse_mix",
    "summarize",
    "write_workload",
]
