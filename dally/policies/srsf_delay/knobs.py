"""The settings of the policy `srsf-delay`."""

from dataclasses import dataclass

from dally.policies.common.knobs import knob


@dataclass(frozen=True, slots=True)
class SrsfDelayKnobs:
    """Settings of `srsf-delay`; each part can be switched off."""

    order: str = knob("service", "order by GPU-seconds left, or by seconds", ("service", "time"))
    preempt: bool = knob(True, "stop running jobs for waiting ones that need less")
    lease_s: float = knob(600.0, "seconds of work that a start is sure of, at least", above=0)
    lease_restarts: float = knob(
        3.0, "and so many times what the job's restart costs, if that is longer", least=0
    )
    margin: float = knob(
        1.5, "a job is stopped if it would hold this many times what the other needs", least=1
    )
    waste: float = knob(
        1.0, "power of a placement's slowdown in what a job needs; 0: distance costs nothing", least=0
    )
    patience: float = knob(4.0, "longest wait for closeness, over what a far placement would cost", least=0)
    moves: int = knob(8, "scattered jobs tried when GPUs come free; 0: none", least=0)
    guard_share: float = knob(
        0.25, "of an equal share, what a job that has waited long is sure of", least=0, most=1
    )
    fair: str = knob(
        "none", "whose equal shares of the GPUs count before the order", ("none", "user", "group")
    )

    def weight(self, gpus: int) -> float:
        """What a second of a job on so many GPUs counts in the order."""
        return float(gpus) if self.order == "service" else 1.0

    def sure_s(self, restart_s: float) -> float:
        """How long a job whose restart costs so much works for sure once it has started, seconds."""
        return max(self.lease_s, self.lease_restarts * restart_s)
