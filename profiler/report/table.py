"""Profiles as tables for people, and the same rows as data for programs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dally.profiles.checks import check_held_out, check_points
from dally.profiles.schema import TIERS, Point, Profile, ProfileMode
from dally.words import share
from profiler.report.contention import fit_contention

_COLUMNS = ("tier", "shape", "link", "slowdown", "measured", "predicted", "error", "held out")


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One measured iteration.

    Attributes:
        tier: Its tier.
        gpus: Of the whole gang.
        shape: Machines x GPUs on each, with the rank order and background flows where not the usual.
        bandwidth_bps: Of the slowest link crossed; None if unknown.
        background_flows: Foreign flows each way.
        slowdown: Over the fastest tier; over compute alone where the profile does not say.
        measured_s: The iteration, seconds.
        predicted_s: Without knowing it, but with the all-reduces of this place; None if that cannot be
            predicted.
        error: Predicted over measured, minus 1.
        held_out_error: The same of what is predicted without anything of this place; None if that cannot be
            predicted, or the profile's held-out errors are not of its own places.
    """

    tier: str
    gpus: int
    shape: str
    bandwidth_bps: float | None
    background_flows: int
    slowdown: float
    measured_s: float
    predicted_s: float | None
    error: float | None
    held_out_error: float | None


def list_rows(profile: Profile) -> tuple[MeasuredRow, ...]:
    """The measured iterations of a profile, nearer tiers first."""
    contention = fit_contention(profile)
    checks = [*check_points(profile), *(contention.checks if contention else ())]
    held_out = check_held_out(profile) if _holds_out(profile) else ()
    known, unknown = (
        {_place(check.tier, check.point): check for check in each} for each in (checks, held_out)
    )
    rows = []
    for tier in TIERS:
        for point in profile.tiers.get(tier, ()):
            if point.iteration is None:
                continue
            check, apart = known.get(_place(tier, point)), unknown.get(_place(tier, point))
            measured_s = point.iteration.median_s
            rows.append(
                MeasuredRow(
                    tier=tier,
                    gpus=point.shape.gpus,
                    shape=format_shape(point),
                    bandwidth_bps=point.link.bandwidth_bps if point.link else None,
                    background_flows=point.background_flows,
                    slowdown=point.slowdown or measured_s / profile.compute.total_s,
                    measured_s=measured_s,
                    predicted_s=check.prediction.iteration_s if check else None,
                    error=check.error if check else None,
                    held_out_error=apart.error if apart else None,
                )
            )
    return tuple(rows)


def describe_profiles(profiles: Iterable[Profile]) -> list[dict[str, object]]:
    """The tables as plain data: for each profile its model, compute times, rows, fit and flags."""
    return [
        {
            "model": profile.model.name,
            "gpu_type": profile.env.gpu_type,
            "mode": profile.provenance.mode,
            "compute": asdict(profile.compute),
            "rows": [asdict(row) for row in list_rows(profile)],
            "fit": asdict(profile.fit) if profile.fit else None,
            "flags": list(profile.quality.flags if profile.quality else ()),
        }
        for profile in profiles
    ]


def print_profiles(profiles: Iterable[Profile], console: Console) -> None:
    """Print for each model its compute time, then slowdown and errors by tier and shape, then flags."""
    for profile in profiles:
        compute, model, fit = profile.compute, profile.model, profile.fit
        gpu_type = f" on {profile.env.gpu_type}" if profile.env.gpu_type else ""
        console.print(Text(f"{model.name}{gpu_type} ({profile.provenance.mode})", style="bold"))
        parts = [f"compute {_duration(compute.total_s)}"]
        if compute.window_s is not None:
            parts.append(f"hides up to {_duration(compute.window_s)}")
        if compute.contention_factor is not None:
            parts.append(f"contention x{compute.contention_factor:.2f}")
        if model.grad_bytes:
            buckets = f" in {len(model.buckets)} buckets" if model.buckets else ""
            parts.append(f"{model.grad_bytes / 1e6:.1f} MB{buckets}")
        if profile.plan is not None:
            parts.append(f"plan {profile.plan}, {len(profile.events)} collectives in an iteration")
        console.print(Text(", ".join(parts)))
        if rows := list_rows(profile):
            console.print(_table(rows))
        lines = []
        if fit and fit.held_out_mape is not None and fit.held_out_max is not None:
            which = "held out" if _holds_out(profile) else "held out, not in this table"
            lines.append(
                f"{which}: {share(fit.held_out_mape, 1)} off on average, {share(fit.held_out_max, 1)} at most"
            )
        if fit and "background_weight" in fit.parameters:
            weight = fit.parameters["background_weight"]
            lines.append(f"beside n foreign flows a job keeps 1 / (1 + {weight:.2f} n) of a link")
        lines += [f"! {flag}" for flag in (profile.quality.flags if profile.quality else ())]
        for line in lines:
            console.print(Text(line))
        console.print()


def format_shape(point: Point) -> str:
    """Machines x GPUs on each, as in 2x4, and what was unusual."""
    ranks = point.shape.rank_order
    parts = [f"{point.shape.nodes}x{point.shape.gpus_per_node}"]
    parts += [ranks] if ranks not in (None, "blocked") else []
    parts += [f"+{point.background_flows} flows"] if point.background_flows else []
    return " ".join(parts)


def format_rate(bandwidth_bps: float | None) -> str:
    """A bandwidth in Mb/s or Gb/s; a dash if unknown."""
    if bandwidth_bps is None:
        return "-"
    return f"{bandwidth_bps / 1e9:g} Gb/s" if bandwidth_bps >= 1e9 else f"{bandwidth_bps / 1e6:g} Mb/s"


def _place(tier: str, point: Point) -> tuple[object, ...]:
    return tier, point.shape, point.link, point.background_flows


def _holds_out(profile: Profile) -> bool:
    """Whether its held-out errors are of its own places; imported profiles hold others out."""
    return profile.provenance.mode is not ProfileMode.IMPORTED


def _table(rows: Iterable[MeasuredRow]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=number != 1)
    for row in rows:
        table.add_row(
            row.tier,
            row.shape,
            format_rate(row.bandwidth_bps),
            f"{row.slowdown:.2f}",
            _duration(row.measured_s),
            "-" if row.predicted_s is None else _duration(row.predicted_s),
            *("-" if error is None else f"{100 * error:+.1f} %" for error in (row.error, row.held_out_error)),
        )
    return table


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 10 else f"{seconds * 1e3:.{0 if seconds >= 1 else 1}f} ms"
