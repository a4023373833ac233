"""Classes of jobs by priority: how far a scheduler may reorder jobs that wait."""

from dally.errors import InputError

DEFAULT_RATIO = 0.75
"""Why three quarters: docs/decisions/0016-priorities.md."""


def check_ratio(ratio: float) -> None:
    """Refuse what is no part of a priority.

    Raises:
        InputError: It is not 0 to 1.
    """
    if not 0 <= ratio <= 1:
        raise InputError(f"priority_ratio is {ratio:g}, must be 0 (priorities do not count) to 1")


def may_take_gpus(priority: float, victim: float, ratio: float) -> bool:
    """Whether a job of a priority may take the GPUs of one of another."""
    return priority >= ratio * victim
