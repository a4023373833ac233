"""What predicted costs rest on, for people and run folders."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Predictions:
    """What predicted costs rest on.

    Attributes:
        modes: How the profiles came about: nccl, gloo, emulated or imported; empty without profiles.
        models_without_profile: Models of gangs of which nothing was known.
        shapes: Different placements of models that were predicted.
        extrapolated_shapes: Of these, how many lie outside of what was measured.
        stand_ins: Which GPU type's profiles stood in for which, and how they were scaled, in words.
        models_by_plan: Models of gangs whose costs followed from their parallel plans.
        plan_gaps: Why the plans of others did not count, in words.
    """

    modes: tuple[str, ...]
    models_without_profile: tuple[str, ...]
    shapes: int
    extrapolated_shapes: int
    stand_ins: tuple[str, ...] = ()
    models_by_plan: tuple[str, ...] = ()
    plan_gaps: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """As plain data; what came later only where it says something."""
        later = ("stand_ins", "models_by_plan", "plan_gaps")
        return {name: value for name, value in asdict(self).items() if value or name not in later}
