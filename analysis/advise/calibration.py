"""How far the simulation of today's scheduler is from the starts that really happened."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.advise.history import SiteHistory
from analysis.advise.simulated import Floats, SimulatedTimes

TODAYS = ("slurm:switch_wait_s=0", "slurm", "slurm:switch_wait_s=0,scheduler=builtin")
"""Policies that may stand for today's scheduler; the first counts where the history tells no starts."""

TIED = 0.1
"""Simulations whose errors differ by no more than this share are about as close."""

CLOSE, CLOSE_S = 0.1, 2.0
"""A completion time is close to the real one within this share of it, or within these seconds."""

CHANCE = 2 / 3
"""Unexplained share of waits dealt out anew from one exponential distribution: E|x - y| / E max(x, y)."""

UNLIKE = 0.5
"""Simulated waits of which a larger share is unexplained do not resemble the real ones: at half, as much
speaks against the simulation as for it, and `CHANCE` is not far."""

NEGLIGIBLE = 0.01
"""Waits off by no more than this share of the completion time decide nothing, however unlike they are."""


@dataclass(frozen=True, slots=True)
class TriedPolicy:
    """A simulation of today's scheduler: mean size of the error of a start, and mean wait; seconds."""

    policy: str
    error_s: float
    wait_s: float


@dataclass(frozen=True)
class Calibration:
    """Real and simulated times of the jobs whose starts are known, in the history's order; seconds.

    Attributes:
        policy: The simulation of today's scheduler that came closest.
        jobs: How many jobs the history has.
        gpus: GPUs of each job whose start is known.
        submit_s: Their submissions.
        real_wait_s: From submission to start, really.
        wait_s: The same in the simulation.
        run_s: The time that they really ran, and ran in the simulation.
        tried: All policies that were tried, the closest first.
    """

    policy: str
    jobs: int
    gpus: Floats
    submit_s: Floats
    real_wait_s: Floats
    wait_s: Floats
    run_s: Floats
    tried: Sequence[TriedPolicy]

    @property
    def error_s(self) -> float:
        """Mean size of the error of a start."""
        return _off_s(self.wait_s, self.real_wait_s)

    @property
    def bias_s(self) -> float:
        """Mean simulated wait less mean real wait."""
        return float(np.mean(self.wait_s) - np.mean(self.real_wait_s))

    @property
    def mean_error(self) -> float:
        """Mean simulated over mean real completion time, less 1."""
        return self.bias_s / float(np.mean(self.real_wait_s + self.run_s))

    @property
    def unexplained(self) -> float:
        """The share of waiting that real and simulated waits do not have in common, job by job, 0 to 1.

        That is the sum of the waits' differences over the sum of the longer one of each job. It is 0 if all
        waits are met and 1 if only those wait who really did not.
        """
        longer_s = float(np.sum(np.maximum(self.wait_s, self.real_wait_s)))
        return float(np.sum(np.abs(self.wait_s - self.real_wait_s))) / longer_s if longer_s else 0.0

    @property
    def resembles(self) -> bool:
        """Whether the simulated waits are like the real ones, or both are too short to matter."""
        negligible_s = NEGLIGIBLE * float(np.mean(self.real_wait_s + self.run_s))
        return self.unexplained <= UNLIKE or self.error_s <= negligible_s

    @property
    def close(self) -> float:
        """The share of the jobs whose simulated completion time is close to the real one."""
        real_s = self.real_wait_s + self.run_s
        return float(np.mean(np.abs(self.wait_s - self.real_wait_s) <= np.maximum(CLOSE * real_s, CLOSE_S)))


def calibrate(history: SiteHistory, outcomes: Sequence[SimulatedTimes]) -> Calibration:
    """Hold simulations of today's scheduler against what really happened.

    Args:
        history: What really happened; it tells the start of one job at least.
        outcomes: Simulations in which jobs hold GPUs as long as they really did.

    Returns:
        The one with the least mean error of a start; of those that are about as close, the one with the
        shortest waits, which leaves Dally the least to gain.
    """
    known = np.array([past.start_s is not None for past in history.jobs])
    started = history.started
    submit_s, gpus, run_s = (
        np.array([getattr(past.job, name) for past in started], dtype=float)
        for name in ("submit_s", "gpus", "duration_s")
    )
    real_wait_s = np.array([past.wait_s for past in started], dtype=float)
    waits_s = [outcome.start_s[known] - submit_s for outcome in outcomes]
    tried = [
        TriedPolicy(outcome.task.policy, _off_s(wait_s, real_wait_s), float(wait_s.mean()))
        for outcome, wait_s in zip(outcomes, waits_s, strict=True)
    ]
    least_s = min(each.error_s for each in tried)
    able = [place for place, each in enumerate(tried) if each.error_s <= least_s * (1 + TIED)]
    best = min(able, key=lambda place: tried[place].wait_s)
    return Calibration(
        tried[best].policy,
        len(history.jobs),
        gpus,
        submit_s,
        real_wait_s,
        waits_s[best],
        run_s,
        sorted(tried, key=lambda each: each.error_s),
    )


def _off_s(one_s: Floats, other_s: Floats) -> float:
    return float(np.mean(np.abs(one_s - other_s)))
