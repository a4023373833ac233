"""By what the policy `srsf-delay` decides."""

from dataclasses import dataclass, field

from dally.errors import InputError


@dataclass(frozen=True, slots=True)
class SrsfDelayKnobs:
    """Settings of `srsf-delay`; each part can be switched off."""

    order: str = field(
        default="service",
        metadata={"help": "claims are of GPU-seconds, or of seconds", "choices": ("service", "time")},
    )
    preempt: bool = field(default=True, metadata={"help": "stop running jobs for lesser claims"})
    lease_s: float = field(
        default=600.0, metadata={"help": "seconds of work that a start is sure of, at least"}
    )
    lease_restarts: float = field(
        default=3.0, metadata={"help": "and so many times what the job's restart costs, if that is longer"}
    )
    margin: float = field(
        default=1.5, metadata={"help": "times that a job must hold what another claims to be stopped for it"}
    )
    waste: float = field(
        default=1.0,
        metadata={"help": "power of a placement's slowdown in a claim; 0: distance costs nothing"},
    )
    patience: float = field(
        default=4.0, metadata={"help": "wait for closeness, over what a far placement would cost"}
    )
    moves: int = field(default=8, metadata={"help": "scattered jobs tried when GPUs come free; 0: none"})
    guard_share: float = field(
        default=0.25, metadata={"help": "of an equal share, what who has waited long is sure of, 0 to 1"}
    )
    fair: str = field(
        default="none",
        metadata={
            "help": "whose equal shares of the GPUs count before claims",
            "choices": ("none", "user", "group"),
        },
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
        """What a second of a job on so many GPUs counts in a claim."""
        return float(gpus) if self.order == "service" else 1.0

    def sure_s(self, restart_s: float) -> float:
        """How long a job whose restart costs so much works for sure once it has started, seconds."""
        return max(self.lease_s, self.lease_restarts * restart_s)
