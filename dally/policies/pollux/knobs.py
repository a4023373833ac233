"""The settings of the policy `pollux`."""

from dataclasses import dataclass

from dally.errors import InputError
from dally.policies.common.knobs import knob


@dataclass(frozen=True, slots=True)
class PolluxKnobs:
    """Settings of `pollux`."""

    round_s: float = knob(60.0, "seconds from one search to the next", above=0)
    restart_s: float = knob(
        30.0, "seconds that a change of GPUs is taken to cost, against a job's age", least=0
    )
    power: float = knob(-1.0, "power of the mean of speed-ups; the lower, the fairer", most=1)
    growth: float = knob(2.0, "times the most GPUs a job has had that it may have; 0: any number", least=0)
    avoid: bool = knob(True, "at most one job over several machines on each machine")
    patience: int = knob(10, "generations without a better matrix after which a search ends", least=1)
    rest: int = knob(
        16, "rounds at most between searches that change nothing; 1: search in each round", least=1
    )

    def __post_init__(self) -> None:
        if self.growth and self.growth <= 1:
            raise InputError(f"knob growth is {self.growth:g}, must be 0 or more than 1")
