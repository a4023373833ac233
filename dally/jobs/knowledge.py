"""What schedulers know of how long jobs take and of their profiles: the same for all of a comparison."""

from dataclasses import dataclass
from enum import StrEnum

from dally.bounds import check_number
from dally.errors import InputError

_MOST_SIGMA = 10.0
"""Of a log-normal error: then one value in three is off by more than 22,000."""


class Knowledge(StrEnum):
    """Classes of knowledge, from the most to the least.

    EXACT: the durations that jobs come with: true in a simulation, time limits on a live cluster.
    LIMITS: what users ask for.
    HISTORY: how long jobs took that have ended, and how long each has run.
    AUTO: limits or history, whichever was nearer so far for the jobs that ended.
    NONE: only how long each has run.
    """

    EXACT = "exact"
    LIMITS = "limits"
    HISTORY = "history"
    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Known:
    """What schedulers know, and how wrong it is.

    Attributes:
        knowledge: The class.
        error: Of exact durations: standard deviation of the logarithm of what is believed over what is true.
        seed: Of errors, and of limits that jobs do not come with.
        profile_error: How wrong the profiles are that they go by; `ProfileError` says what that means.
        hides_profiles: Whether they see neither profiles nor parallel plans, though jobs run as these say.
        learns_costs: Whether step times of running jobs correct what they believe (`learnt_costs`).

    Raises:
        InputError: An error is no number of 0 or more, or that of durations is of another class.
    """

    knowledge: Knowledge = Knowledge.EXACT
    error: float = 0.0
    seed: int = 0
    profile_error: float = 0.0
    learns_costs: bool = False
    hides_profiles: bool = False

    def __post_init__(self) -> None:
        for name, value in (("estimate_error", self.error), ("profile_error", self.profile_error)):
            check_number(name, value, 0, _MOST_SIGMA)
        if self.hides_profiles and self.profile_error:
            raise InputError(
                "profiles that nobody sees cannot be wrong; leave profile_error or hide_profiles out"
            )
        if self.error and self.knowledge is not Knowledge.EXACT:
            raise InputError(f"estimate_error goes with knowledge exact, not with {self.knowledge}")

    def __str__(self) -> str:
        """As tables say it: `limits`, `exact ± 0.5`, `none, profiles ± 0.3, learns costs`."""
        times = f"{self.knowledge} ± {self.error:g}" if self.error else str(self.knowledge)
        if self.hides_profiles:
            times += ", no profiles"
        elif self.profile_error:
            times += f", profiles ± {self.profile_error:g}"
        return f"{times}, learns costs" if self.learns_costs else times


EXACTLY = Known()
"""The durations that jobs come with, as they are."""
