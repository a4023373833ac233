"""Settings of Dally to start with: what each asks of a site, and which of them to take."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.advise.effects import EVEN
from analysis.advise.history import History
from analysis.advise.simulated import Outcome
from dally.knowledge import Knowledge


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy with knobs, and what it knows of running times.

    Attributes:
        policy: As `dally policies` has it.
        asks: What it needs of a site; empty if the user chose it.
        reachable: Whether a site can have it as simulated.
        knowledge: What it knows of running times.
    """

    policy: str
    asks: str
    reachable: bool = True
    knowledge: Knowledge = Knowledge.AUTO

    @property
    def name(self) -> str:
        """The policy, and that it knows running times if no site can."""
        return self.policy if self.reachable else f"{self.policy} (exact run times)"


SETTINGS = (
    Setting(
        "srsf-delay:preempt=no,moves=0",
        "nothing of users: no checkpoints, no time limits that are true; no job is stopped",
    ),
    Setting("srsf-delay", "checkpoints: jobs are stopped for others and moved"),
    Setting("srsf-delay:fair=user", "checkpoints; users have equal shares before all else"),
    Setting(
        "srsf-delay",
        "checkpoints, and run times known as exactly as no site knows them: a bound",
        reachable=False,
        knowledge=Knowledge.EXACT,
    ),
)
"""Those that ask for least come first."""


def choose(settings: Sequence[Setting], outcomes: Sequence[Outcome]) -> Setting:
    """The setting with the least mean completion time; of those within 1 %, the one that asks for least.

    Args:
        settings: At least one, those that ask for least first; bounds count only if nothing else is there.
        outcomes: What became of the jobs under each.
    """
    means_s = [float(outcome.jct_s.mean()) for outcome in outcomes]
    able = [place for place, setting in enumerate(settings) if setting.reachable] or range(len(settings))
    best_s = min(means_s[place] for place in able)
    return next(settings[place] for place in able if means_s[place] <= best_s * (1 + EVEN))


def limits_used(history: History) -> tuple[int, float]:
    """How many jobs have a time limit, and the median share of it that they ran."""
    shares = [
        past.job.duration_s / past.job.time_limit_s
        for past in history.jobs
        if past.job.time_limit_s is not None
    ]
    return len(shares), float(np.median(shares)) if shares else 0.0
