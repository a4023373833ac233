"""What profiles hold, one entry each: for lists that people read, and for programs."""

from collections.abc import Iterable
from dataclasses import dataclass

from dally.profiles.schema import Point, Profile


@dataclass(frozen=True, slots=True)
class TierEntry:
    """What was measured on one tier.

    Attributes:
        tier: machine, rack or network.
        shapes: Machines x GPUs on each, like `2x4`, in order.
        slowdown: The largest, over one GPU alone or the fastest tier; None if no iteration was measured.
    """

    tier: str
    shapes: tuple[str, ...]
    slowdown: float | None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One profile: its model, the GPUs that it was measured on and how, and what came out.

    Attributes:
        model: What a job's `--model` says.
        gpu_type: None if it holds for any.
        mode: nccl, gloo, emulated, imported or given.
        local_batch: Samples of one GPU in an iteration; None if unknown.
        plan: How the training was split, of a recorded job; None of others.
        precision: In which it computed; None if unknown.
        measured: When, ISO 8601 in UTC.
        source: Where it comes from.
        tiers: From near to far.
        held_out_error: Mean error on what was held out, as a fraction; None if nothing was.
        flags: What to know before trusting it.
    """

    model: str
    gpu_type: str | None
    mode: str
    local_batch: int | None
    plan: str | None
    precision: str | None
    measured: str
    source: str
    tiers: tuple[TierEntry, ...]
    held_out_error: float | None
    flags: tuple[str, ...]


def model_entries(profiles: Iterable[Profile]) -> tuple[ModelEntry, ...]:
    """An entry for each profile, in their order."""
    return tuple(
        ModelEntry(
            model=profile.model.name,
            gpu_type=profile.env.gpu_type,
            mode=profile.provenance.mode.value,
            local_batch=profile.model.local_batch,
            plan=profile.plan,
            precision=profile.model.precision,
            measured=profile.provenance.utc_time,
            source=profile.provenance.source,
            tiers=tuple(
                _tier(tier, points, profile.compute.total_s) for tier, points in profile.tiers.items()
            ),
            held_out_error=profile.fit.held_out_mape if profile.fit else None,
            flags=profile.quality.flags if profile.quality else (),
        )
        for profile in profiles
    )


def _tier(tier: str, points: tuple[Point, ...], alone_s: float) -> TierEntry:
    shapes = sorted({(point.shape.nodes, point.shape.gpus_per_node) for point in points})
    slowdowns = []
    for point in points:
        if point.slowdown is not None:
            slowdowns.append(point.slowdown)
        elif point.iteration is not None:
            slowdowns.append(point.iteration.median_s / alone_s)
    return TierEntry(tier, tuple(f"{nodes}x{gpus}" for nodes, gpus in shapes), max(slowdowns, default=None))
