"""Settings of Dally to start with: what each asks of a site, and which of them to take."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.advise.effects import EVEN
from analysis.advise.simulated import SimulatedTimes


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy with knobs.

    Attributes:
        policy: As `dally policies` has it.
        asks: What it needs of a site; empty if the user chose it.
    """

    policy: str
    asks: str


SETTINGS = (
    Setting("srsf-delay:preempt=no,moves=0", "no checkpoints: no job is stopped"),
    Setting("srsf-delay", "checkpoints: jobs are stopped for others and moved"),
    Setting("srsf-delay:fair=user", "checkpoints; users have equal shares before all else"),
)
"""Those that ask for least come first."""


def choose(settings: Sequence[Setting], outcomes: Sequence[SimulatedTimes]) -> Setting:
    """The setting with the least mean completion time; of those within 1 %, the one that asks for least.

    Args:
        settings: At least one, those that ask for least first.
        outcomes: What became of the jobs under each.
    """
    means_s = [float(outcome.jct_s.mean()) for outcome in outcomes]
    best_s = min(means_s)
    return next(
        setting for setting, mean_s in zip(settings, means_s, strict=True) if mean_s <= best_s * (1 + EVEN)
    )
