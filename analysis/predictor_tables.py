"""Writes the predictor's comparisons with others' numbers into its documentation, as Markdown tables."""

from collections.abc import Iterable

from analysis.author_slowdowns import AUTHOR_SLOWDOWNS, PER_GPU, SHARED, slowdowns
from analysis.pollux_validation import Errors, Validation
from dally.markdown import table


def author_table() -> str:
    """The author's slowdowns, ours with the uplinks per GPU, and ours with the uplinks shared."""
    per_gpu, shared = slowdowns(PER_GPU), slowdowns(SHARED)
    header = ("model", "8 in a machine", "16, two machines", "16, two racks", "16, 16 racks")
    rows = [
        (model, *(_cell(values) for values in zip(theirs, per_gpu[model], shared[model], strict=True)))
        for model, theirs in AUTHOR_SLOWDOWNS.items()
    ]
    return table(header, rows)


def validation_table(validations: Iterable[Validation]) -> str:
    """Median / mean / max errors in percent, by model."""
    header = ("model", "rows", "ours", "Pollux's formula", "noise", "far: ours", "far: Pollux's")
    rows = [
        (
            item.model,
            str(item.ours.rows),
            *(_percent(part) for part in (item.ours, item.pollux, item.noise, item.far, item.pollux_far)),
        )
        for item in validations
    ]
    return table(header, rows)


def _cell(values: Iterable[float]) -> str:
    return " / ".join(f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in values)


def _percent(errors: Errors) -> str:
    return f"{errors.median:.1%} / {errors.mean:.1%} / {errors.worst:.0%}"
