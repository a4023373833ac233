"""Writes the tables of layers that emulated jobs start with: `python scripts/count_layers.py`."""

from pathlib import Path

from workloads.layers import count_layers, format_layers
from workloads.registry import WORKLOADS
from workloads.task import make_task

TABLES = Path(__file__).parents[1] / "workloads" / "layer_tables"

if __name__ == "__main__":
    for name, workload in WORKLOADS.items():
        (TABLES / f"{name}.json").write_text(
            format_layers(count_layers(make_task(workload))), encoding="utf-8"
        )
