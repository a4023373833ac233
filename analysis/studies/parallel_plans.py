"""Holds predicted step times of parallel plans against published ones: `python -m` and this module's name."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import click

from analysis.studies.common import StudyCommand, publish, write_option
from analysis.studies.pollux_validation import Errors, PairOrder, summarise
from analysis.studies.published_steps import (
    PublishedStep,
    read_llm_foundry,
    read_llm_foundry_fp8,
    read_megatron_bridge,
    read_sailor,
    read_vtrain,
)
from dally.markdown import table
from dally.profiles.parallel.constants_fit import fit_constants
from dally.profiles.parallel.step_constants import USUAL, StepConstants

DIFFERENT = 1.03
"""Two plans differ if one gives so many times the other's tokens per second."""

MANY_GPUS = 128

BLACKWELL = ("b200", "b300", "gb200", "gb300")

Key = Callable[[PublishedStep], Hashable]


@dataclass(frozen=True, slots=True)
class HeldOutSplit:
    """How a table's rows are divided into those that are fitted and those that are predicted.

    Attributes:
        rows: What the rows are.
        held_out: In words, what is held out.
        published: The error that the rows' authors report for their own predictor, if they do.
        fold: Rows of one fold are predicted from all others.
        alike: Pairs of plans are compared within it.
    """

    rows: str
    held_out: str
    published: str
    fold: Key
    alike: Key


@dataclass(frozen=True, slots=True)
class SplitScore:
    """How well a split's rows were predicted.

    Attributes:
        split: The split.
        folds: How many.
        errors: Of the predicted seconds.
        order: Pairs of plans that differ.
    """

    split: HeldOutSplit
    folds: int
    errors: Errors
    order: PairOrder


@dataclass(frozen=True, slots=True)
class FitTransfer:
    """Rows of one kind that are predicted from rows of another.

    Attributes:
        fitted: What is known, in words.
        known: Its rows.
        predicted: What is not, in words.
        unknown: Its rows.
    """

    fitted: str
    known: Sequence[PublishedStep]
    predicted: str
    unknown: Sequence[PublishedStep]


Predicted = Sequence[tuple[PublishedStep, float]]
"""Rows with their predicted seconds."""


def predict_folds(rows: Sequence[PublishedStep], fold: Key) -> Iterator[Predicted]:
    """Predict each fold with constants fitted to all rows outside it."""
    for key in dict.fromkeys(map(fold, rows)):
        constants = fit_rows([row for row in rows if fold(row) != key])
        yield [(row, row.step.seconds(constants)) for row in rows if fold(row) == key]


def fit_rows(rows: Sequence[PublishedStep]) -> StepConstants:
    """The constants that fit rows best."""
    return fit_constants([(row.step, row.seconds) for row in rows])


def score_split(rows: Sequence[PublishedStep], split: HeldOutSplit) -> SplitScore:
    """Predict all folds of a split and compare; pairs lie within a fold."""
    return score_folds(list(predict_folds(rows, split.fold)), split)


def score_folds(folds: Sequence[Predicted], split: HeldOutSplit) -> SplitScore:
    """Compare folds that are predicted."""
    errors = summarise([seconds / row.seconds - 1 for fold in folds for row, seconds in fold])
    orders = [order_pairs(fold, split.alike) for fold in folds]
    order = PairOrder(sum(each.pairs for each in orders), sum(each.right for each in orders))
    return SplitScore(split, len(folds), errors, order)


def order_pairs(predicted: Predicted, alike: Key) -> PairOrder:
    """Count the pairs of different plans, and those of which the faster one is predicted to be it."""
    pairs = right = 0
    for (one, one_s), (other, other_s) in combinations(predicted, 2):
        ratio = one.tokens_per_gpu(one.seconds) / other.tokens_per_gpu(other.seconds)
        if alike(one) != alike(other) or max(ratio, 1 / ratio) <= DIFFERENT or one.step == other.step:
            continue
        pairs += 1
        right += (ratio > 1) == (one.tokens_per_gpu(one_s) > other.tokens_per_gpu(other_s))
    return PairOrder(pairs, right)


def _size(row: PublishedStep) -> Hashable:
    return row.model


def _same_job(row: PublishedStep) -> Hashable:
    """Plans that a user chooses from: one model, batch and number of GPUs."""
    batch = row.step.batch
    return row.model, batch.global_batch, batch.sequence, row.step.plan.gpus


VTRAIN_MANY = HeldOutSplit("vTrain, 64 to 512 A100", "each model size", "14.7 %", _size, _same_job)
VTRAIN_ONE = HeldOutSplit("vTrain, one machine", "each model size", "8.4 %", _size, _same_job)
VTRAIN_WIDTH = HeldOutSplit(
    "vTrain, one machine", "each hidden width", "8.4 %", lambda row: row.step.model.hidden, _same_job
)
FOUNDRY = HeldOutSplit(
    "llm-foundry, 8 to 512 H100",
    "each model size",
    "",
    _size,
    lambda row: (row.model, row.step.batch.sequence),
)
SAILOR = HeldOutSplit(
    "Sailor, 4 to 128 GH200", "each number of machines", "", lambda row: len(row.step.machines), _same_job
)
SAILOR_STAGES = HeldOutSplit(
    "Sailor, 4 to 128 GH200", "each number of stages", "", lambda row: row.step.plan.pp, _same_job
)
BRIDGE = HeldOutSplit(
    "Megatron-Bridge", "each model", "", _size, lambda row: (row.model, row.gpu, row.step.plan.gpus)
)
BRIDGE_PRECISION = replace(
    BRIDGE,
    rows="the same, pairs of one precision",
    alike=lambda row: (BRIDGE.alike(row), row.step.precision),
)
BRIDGE_RELEASE = replace(
    BRIDGE, rows="the same, pairs of one release", alike=lambda row: (BRIDGE.alike(row), row.release)
)


def scores_table(scores: Sequence[SplitScore]) -> str:
    """A row for each split."""
    header = ("rows", "steps", "held out", "mean error", "bias", "worst", "published", "pairs", "right order")
    return table(header, [_score_cells(score) for score in scores])


def _score_cells(score: SplitScore) -> list[str]:
    errors, order = score.errors, score.order
    return [
        score.split.rows,
        str(errors.rows),
        f"{score.split.held_out} ({score.folds})",
        f"{errors.mean:.1%}",
        f"{errors.bias:+.1%}",
        f"{errors.worst:.0%}",
        score.split.published,
        f"{order.pairs:,}",
        f"{order.right / order.pairs:.1%}" if order.pairs else "",
    ]


def transfers_table(transfers: Sequence[FitTransfer]) -> str:
    """A row for each transfer."""
    cells = []
    for each in transfers:
        constants = fit_rows(each.known)
        errors = summarise([row.step.seconds(constants) / row.seconds - 1 for row in each.unknown])
        figures = [f"{errors.mean:.1%}", f"{errors.bias:+.1%}", f"{errors.worst:.1%}"]
        cells.append([each.fitted, str(len(each.known)), each.predicted, str(errors.rows), *figures])
    header = ("fitted", "steps", "predicted", "steps", "mean error", "bias", "worst")
    return table(header, cells)


def constants_table(constants: Mapping[str, StepConstants]) -> str:
    """The constants by what they were fitted to."""
    names = list(asdict(USUAL))
    rows = [[name, *(f"{asdict(each)[name]:.3g}" for each in constants.values())] for name in names]
    return table(["constant", *constants], rows)


def sections(folder: Path) -> dict[str, str]:
    """The generated sections of docs/parallel-plans.md by name.

    Args:
        folder: The folder of the published tables.

    Raises:
        InputError: A table cannot be read.
    """
    many = read_vtrain(folder / "vtrain" / "multi_node.csv", recompute=True)
    one = read_vtrain(folder / "vtrain" / "single_node.csv", recompute=False)
    foundry = read_llm_foundry(folder / "llm_foundry")
    fp8 = read_llm_foundry_fp8(folder / "llm_foundry")
    sailor = read_sailor(folder / "sailor")
    bridge = read_megatron_bridge(folder / "megatron_bridge" / "performance.csv")
    many_folds, bridge_folds = (list(predict_folds(rows, _size)) for rows in (many, bridge))
    scores = [
        score_folds(many_folds, VTRAIN_MANY),
        score_split(one, VTRAIN_ONE),
        score_split(one, VTRAIN_WIDTH),
        score_split(foundry, FOUNDRY),
        score_split(sailor, SAILOR),
        score_split(sailor, SAILOR_STAGES),
        *(score_folds(bridge_folds, split) for split in (BRIDGE, BRIDGE_PRECISION, BRIDGE_RELEASE)),
    ]
    constants = {
        "a100": fit_rows(many),
        "h100": fit_rows(foundry),
        "gh200": fit_rows(sailor),
        "b200 to gb300": fit_rows([row for row in bridge if row.gpu in BLACKWELL]),
    }
    return {
        "scores": scores_table(scores),
        "sizes": sizes_table(many_folds),
        "transfers": transfers_table([*scale_transfers(foundry), FitTransfer("bf16", foundry, "fp8", fp8)]),
        "constants": constants_table(constants),
    }


def scale_transfers(rows: Sequence[PublishedStep]) -> list[FitTransfer]:
    """From few GPUs to many; models are the same on both sides."""
    many = [row for row in rows if row.step.plan.gpus >= MANY_GPUS]
    return [
        FitTransfer(
            f"up to {most} GPUs",
            [row for row in rows if row.step.plan.gpus <= most],
            f"{MANY_GPUS} to 512 GPUs",
            many,
        )
        for most in (8, 64)
    ]


def sizes_table(folds: Sequence[Predicted]) -> str:
    """The models of vTrain on several machines one by one, each predicted from the others."""
    cells = []
    for fold in folds:
        errors = summarise([seconds / row.seconds - 1 for row, seconds in fold])
        order = order_pairs(fold, _same_job)
        model = fold[0][0].step.model
        cells.append(
            [
                f"{model.parameters / 1e9:.3g} billion",
                str(errors.rows),
                f"{errors.mean:.1%}",
                f"{errors.bias:+.1%}",
                f"{errors.worst:.0%}",
                f"{order.right} of {order.pairs}",
            ]
        )
    return table(("parameters", "steps", "mean error", "bias", "worst", "pairs in the right order"), cells)


@click.command(cls=StudyCommand)
@click.argument("folder", type=click.Path(path_type=Path))
@write_option
def main(folder: Path, page: Path | None) -> None:
    """Predict the published steps in FOLDER, each model from the others, and print how wrong that is."""
    publish(sections(folder).items(), page)


if __name__ == "__main__":
    main()
