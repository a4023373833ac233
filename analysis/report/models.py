"""Where the jobs of each model ran: how much of their GPU time at which level."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.report.history import DOWN, RunHistory
from dally.runs.records import JobRecord

MOST_MODELS = 12
OTHER_MODELS = "other models"
NO_MODEL = "no model"

GpuTime = Mapping[str, Sequence[float]]
"""GPU-seconds at each level, by model."""


@dataclass(frozen=True, slots=True)
class ModelPlacements:
    """A model's shares of GPU time at each level, percent, by run; without runs in which it had none."""

    model: str
    runs: Mapping[str, Sequence[float]]


def gpu_time_by_model(history: RunHistory, records: Sequence[JobRecord | None]) -> GpuTime:
    """The GPU time of the jobs with more than one GPU."""
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(history.levels))
    for each in history.held:
        record = records[each.job] if each.job != DOWN else None
        if record is not None and record.gpus > 1:
            found[record.model or NO_MODEL][each.level] += (each.end_s - each.begin_s) * len(each.slots)
    return found


def levels_by_model(runs: Mapping[str, GpuTime], levels: int) -> list[ModelPlacements]:
    """For each model its shares, the model with most GPU time first, the smallest models together."""
    total: Counter[str] = Counter()
    for run in runs.values():
        total.update({model: sum(gpu_s) for model, gpu_s in run.items()})
    models = [model for model, _ in total.most_common()]
    most = len(models) if len(models) <= MOST_MODELS else MOST_MODELS - 1
    groups = {model: [model] for model in models[:most]}
    if models[most:]:
        groups[OTHER_MODELS] = models[most:]
    return [
        ModelPlacements(
            name,
            {run: shares for run, times in runs.items() if (shares := _shares(times, members, levels))},
        )
        for name, members in groups.items()
    ]


def _shares(times: GpuTime, models: Sequence[str], levels: int) -> list[float]:
    sums = [sum(times[model][level] for model in models if model in times) for level in range(levels)]
    whole = sum(sums)
    return [100 * part / whole for part in sums] if whole else []
