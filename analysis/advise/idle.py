"""How much of the real waiting passed while GPUs stood idle: what no scheduler of GPUs alone explains."""

from collections.abc import Sequence

import numpy as np

from analysis.advise.history import PastJob, SiteHistory
from analysis.advise.simulated import Floats


def idle_share(history: SiteHistory, gpus: int) -> float:
    """The share of the real waiting during which as many GPUs as the job asked for were idle.

    Idle is what the jobs of the history left of the cluster; others, and nodes that were down, do not count.

    Args:
        history: The jobs; those without a start are left out.
        gpus: GPUs of the cluster.
    """
    times_s, used = _usage(history.started)
    waited_s = idle_s = 0.0
    for past in history.started:
        assert past.start_s is not None
        first, last = np.searchsorted(times_s, [past.job.submit_s, past.start_s], side="right")
        edges_s = np.concatenate(([past.job.submit_s], times_s[first:last], [past.start_s]))
        room = gpus - used[first : last + 1] >= past.job.gpus
        lengths_s = np.diff(edges_s)
        waited_s += float(lengths_s.sum())
        idle_s += float(lengths_s[room].sum())
    return idle_s / waited_s if waited_s else 0.0


def _usage(started: Sequence[PastJob]) -> tuple[Floats, Floats]:
    """When the number of used GPUs changes, and how many are used before, between and after these moments."""
    starts_s = np.array([past.start_s for past in started], dtype=float)
    ends_s = starts_s + np.array([past.job.duration_s for past in started])
    gpus = np.array([past.job.gpus for past in started], dtype=float)
    times_s, changes = np.concatenate((starts_s, ends_s)), np.concatenate((gpus, -gpus))
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.concatenate(([0.0], np.cumsum(changes[order])))
