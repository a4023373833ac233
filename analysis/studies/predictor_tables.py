"""Writes the predictor's comparisons with others' numbers into its documentation, as Markdown tables."""

from collections.abc import Callable, Iterable, Sequence

from analysis.studies.dally_slowdowns import DALLY_SLOWDOWNS, PER_GPU, SHARED, slowdowns
from analysis.studies.deepshare_validation import Explanation, Noise
from analysis.studies.gavel_validation import PairErrors
from analysis.studies.pollux_validation import ModelAccuracy, Validation
from analysis.studies.relative_errors import Errors, PairOrder
from dally.markdown import table
from dally.profiles.schema import Profile


def dally_table() -> str:
    """The author's slowdowns, ours with the uplinks per GPU, and ours with the uplinks shared."""
    per_gpu, shared = slowdowns(PER_GPU), slowdowns(SHARED)
    header = ("model", "8 in a machine", "16, two machines", "16, two racks", "16, 16 racks")
    rows = [
        (model, *(_cell(values) for values in zip(theirs, per_gpu[model], shared[model], strict=True)))
        for model, theirs in DALLY_SLOWDOWNS.items()
    ]
    return table(header, rows)


def errors_table(validations: Sequence[Validation], part: Callable[[ModelAccuracy], Errors]) -> str:
    """Mean errors and biases, ours beside Pollux's form on the same rows, by what is known."""
    header = ["model", "rows"]
    for name in validations[0].ours:
        header += [name, "Pollux's form"]
    rows = []
    for item in validations:
        cells = [
            _mean_and_bias(part(found[name])) for name in item.ours for found in (item.ours, item.pollux)
        ]
        everything = part(item.pollux_all)
        rows.append(
            (item.model, str(everything.rows), *cells, _mean_and_bias(everything), f"{item.noise.mean:.1%}")
        )
    return table((*header, "Pollux's form, all batches", "noise"), rows)


def order_table(validations: Sequence[Validation]) -> str:
    """Shares of pairs of placements that are put in the right order, near and far, by what is known."""
    names = tuple(validations[0].ours)
    ways = (*names, "Pollux's form, all batches")
    header = ("model", "apart", "pairs", *ways, "measured again", "far: pairs", *ways)
    rows = []
    for item in validations:
        found = (*(item.ours[name] for name in names), item.pollux_all)
        for least, again in item.again.items():
            near, far = [each.near_order[least] for each in found], [each.far_order[least] for each in found]
            cells = (*_shares(near), f"{again:.0%}", *_shares(far))
            rows.append((item.model, f"{least - 1:.0%}", *cells))
    return table(header, rows)


def _shares(orders: Sequence[PairOrder]) -> tuple[str, ...]:
    return (str(orders[0].pairs), *map(_share, orders))


def _share(order: PairOrder) -> str:
    return f"{order.right / order.pairs:.0%}" if order.pairs else "-"


def _mean_and_bias(errors: Errors) -> str:
    return f"{errors.mean:.1%} ({errors.bias:+.1%})"


def pairs_table(results: Iterable[PairErrors]) -> str:
    """Mean / max errors on 4 and 8 servers, and how often apart was faster, by model family and GPU type."""
    header = ("model", "GPU", "rows", "ours", "as on 2 servers", "pairs", "of them faster apart")
    rows = [
        (
            item.family,
            item.gpu_type,
            str(item.ours.rows),
            f"{item.ours.mean:.1%} / {item.ours.worst:.0%}",
            f"{item.unchanged.mean:.1%} / {item.unchanged.worst:.0%}",
            str(item.pairs),
            str(item.faster_apart),
        )
        for item in results
    ]
    return table(header, rows)


def fits_table(profiles: Iterable[Profile]) -> str:
    """The held-out errors that imported profiles carry."""
    header = ("profile", "held out: mean", "held out: max", "flags")
    rows = [
        (
            f"{profile.model.name} on {profile.env.gpu_type}",
            f"{fit.held_out_mape:.1%}",
            f"{fit.held_out_max:.1%}",
            str(len(profile.quality.flags) if profile.quality else 0),
        )
        for profile in profiles
        if (fit := profile.fit) and fit.held_out_mape is not None and fit.held_out_max is not None
    ]
    return table(header, rows)


def sharing_table(explanations: Iterable[Explanation], noise: Noise) -> str:
    """How well ways to predict explain what pairs of jobs keep, and what is known of the noise."""
    header = ("way to predict", "fitted", "mean error", "on the other half", "variance explained")
    rows = [
        (
            item.name,
            str(item.constants),
            f"{item.error:.3f}",
            f"{item.held_out:.3f}" if item.constants else "",
            f"{item.explained:.0%}",
        )
        for item in explanations
    ]
    notes = (
        f"Cells that are exactly 1, the most there is: {noise.capped:.1%}. Below 0.5: "
        f"{noise.below_half:.1%}. A job beside its copy keeps {noise.diagonal:.2f}.",
        f"The two jobs of a pair differ by {noise.asymmetry:.2f}; a cell is "
        f"{noise.family_deviation:.2f} (root mean square) from the mean of its two models.",
    )
    return "\n".join((table(header, rows), "", *notes))


def _cell(values: Iterable[float]) -> str:
    return " / ".join(f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in values)
