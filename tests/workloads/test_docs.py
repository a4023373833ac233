"""The page on workloads has the numbers of the registry and the options of the command."""

import re

from tests.workloads.ranks import ROOT
from workloads.registry import WORKLOADS, ModelRecipe
from workloads.train import main

PAGE = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")


def row(workload: ModelRecipe) -> str:
    text = workload.optimizer in ("adamw",)
    sample = f"{workload.size} tokens" if text else f"{workload.size} x {workload.size} pixels"
    return (
        f"| `{workload.name}` | {workload.title} | {workload.params:,} | {workload.grad_bytes / 1e6:.0f} MB "
        f"| {workload.local_batch:,} | {workload.optimizer} | {sample if workload.size else 'user, film'} |"
    )


def test_the_table_is_the_registry() -> None:
    assert re.findall(r"^\| `.*` \| .*MB.*$", PAGE, re.MULTILINE) == [
        row(item) for item in WORKLOADS.values()
    ]


def test_every_option_is_told() -> None:
    for option in main.params:
        assert option.name == "model" or f"`{option.opts[0]}" in PAGE, option.opts
