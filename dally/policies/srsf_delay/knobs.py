"""The settings of the policy `srsf-delay`."""

from dataclasses import dataclass

from dally.errors import InputError
from dally.policies.common.knobs import knob


@dataclass(frozen=True, slots=True)
class SrsfDelayKnobs:
    """Settings of `srsf-delay`; each part can be switched off."""

    order: str = knob("service", "order by GPU-seconds left, or by seconds", ("service", "time"))
    preempt: bool = knob(True, "stop running jobs for waiting ones that need less")
    lease_s: float = knob(600.0, "seconds of work that a start is sure of, at least")
    lease_restarts: float = knob(3.0, "and so many times what the job's restart costs, if that is longer")
    margin: float = knob(1.5, "a job is stopped if it would hold this many times what the other needs")
    waste: float = knob(1.0, "power of a placement's slowdown in what a job needs; 0: distance costs nothing")
    patience: float = knob(4.0, "longest wait for closeness, over what a far placement would cost")
    moves: int = knob(8, "scattered jobs tried when GPUs come free; 0: none")
    guard_share: float = knob(0.25, "of an equal share, what a job that has waited long is sure of, 0 to 1")
    fair: str = knob(
        "none", "whose equal shares of the GPUs count before the order", ("none", "user", "group")
    )

    def __post_init__(self) -> None:
        if self.lease_s <= 0:
            raise InputError(f"lease_s {self.lease_s:g} must be positive")
        if min(self.waste, self.patience, self.moves, self.lease_restarts) < 0 or self.margin < 1:
            raise InputError(
                f"margin {self.margin:g} must be 1 or more; waste {self.waste:g}, "
                f"patience {self.patience:g}, moves {self.moves} and "
                f"lease_restarts {self.lease_restarts:g} 0 or more"
            )
        if not 0 <= self.guard_share <= 1:
            raise InputError(f"guard_share {self.guard_share:g} must be from 0 to 1")

    def weight(self, gpus: int) -> float:
        """What a second of a job on so many GPUs counts in the order."""
        return float(gpus) if self.order == "service" else 1.0

    def sure_s(self, restart_s: float) -> float:
        """How long a job whose restart costs so much works for sure once it has started, seconds."""
        return max(self.lease_s, self.lease_restarts * restart_s)
