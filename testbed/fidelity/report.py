"""What a comparison leaves in the run's folder: compare.json, compare.md and compare.png."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dally.atomic_file import write_atomically
from dally.markdown import table
from dally.optional import MissingModuleError, import_optional
from testbed.fidelity import policy_ranking, report_tables, sentences
from testbed.fidelity.comparison import JOB_TARGET, MAKESPAN_TARGET, Comparison, JobComparison
from testbed.fidelity.report_tables import METRICS, ComparisonTable, relative
from testbed.fidelity.slowdowns import HeldSpan

Section = str | ComparisonTable
"""A part of a report: a sentence, or a table."""

DATA, TEXT, FIGURE = "compare.json", "compare.md", "compare.png"


def sections(comparison: Comparison) -> list[Section]:
    """What there is to say of one comparison, in order."""
    contention = "slow each other" if comparison.contention else "do not slow each other"
    return [
        sentences.headline(comparison),
        sentences.chance_alone(comparison),
        f"In the simulation jobs that share links {contention}. Errors: simulated against real.",
        report_tables.aggregate(comparison),
        sentences.model_alone(comparison),
        report_tables.causes(comparison),
        sentences.main_causes(comparison),
        sentences.decisions(comparison),
        report_tables.startup_and_steps(comparison),
        report_tables.jobs(comparison),
        report_tables.parts(comparison),
        report_tables.in_words(comparison),
        *(f"left out: {name} {reason}" for name, reason in comparison.left_out.items()),
    ]


def policy_sections(comparisons: Sequence[Comparison]) -> list[Section]:
    """What there is to say of several policies together, in order."""
    return [
        *map(sentences.headline, comparisons),
        policy_ranking.side_by_side(comparisons),
        *policy_ranking.ranking_sentences(comparisons),
        *(
            f"left out of {comparison.run.policy}: {name} {reason}"
            for comparison in comparisons
            for name, reason in comparison.left_out.items()
        ),
    ]


def write_report(comparison: Comparison) -> str:
    """Write all three files; why there is no figure, or nothing."""
    folder = comparison.run.folder
    figure = f"![Completion times, and GPUs in use over time]({FIGURE})"
    _write(folder, as_data(comparison), [*sections(comparison), figure])
    return _draw(comparison, folder / FIGURE)


def write_policies(comparisons: Sequence[Comparison], folder: Path) -> None:
    """Write what several policies together tell into the folder above their runs."""
    _write(folder, all_data(comparisons), policy_sections(comparisons))


def all_data(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Several comparisons, for programs."""
    rankings = policy_ranking.rankings(comparisons)
    return {
        "runs": [as_data(item) for item in comparisons],
        "rankings": {name: asdict(ranking) for name, ranking in rankings.items()},
    }


def as_data(comparison: Comparison) -> dict[str, Any]:
    """One comparison, for programs; times in seconds, errors as fractions of the real value."""
    whole_run = {}
    for metric in METRICS:
        real, simulated = metric.value(comparison.real), metric.value(comparison.simulated)
        errors = {"error": relative(simulated, real), "unit": metric.unit}
        whole_run[metric.name] = {"real": real, "simulated": simulated, **errors}
    return {
        "run": str(comparison.run.folder),
        "policy": comparison.run.policy,
        "contention": comparison.contention,
        "jobs_compared": len(comparison.jobs),
        "left_out": dict(comparison.left_out),
        "mean_absolute_job_error": comparison.job_error,
        "greatest_job_error": comparison.jobs[0].error,
        "makespan_error": comparison.makespan_error,
        "targets": {"mean_absolute_job_error": JOB_TARGET, "makespan_error": MAKESPAN_TARGET},
        "mean_absolute_running_error_given_placements": comparison.run_error,
        "chance_alone": asdict(comparison.chance),
        "whole_run": whole_run,
        "jobs": [_job(job) for job in comparison.jobs],
    }


def _write(folder: Path, data: object, said: Sequence[Section]) -> None:
    write_atomically(folder / DATA, json.dumps(data, indent=1, allow_nan=False) + "\n")
    parts = [f"# {folder.name}: simulator and reality"]
    for part in said:
        if isinstance(part, ComparisonTable):
            parts += [f"## {part.title}", part.note, table(part.header, part.rows)]
        else:
            parts.append(part)
    write_atomically(folder / TEXT, "\n\n".join(parts) + "\n")


def _job(job: JobComparison) -> dict[str, Any]:
    return {
        "job": job.real.job_id,
        "error": job.error,
        "real": {"jct_s": job.real.jct_s, **asdict(job.real)},
        "simulated": {"jct_s": job.simulated.jct_s, **asdict(job.simulated)},
        "parts": asdict(job.parts),
        "cause": sentences.cause(job),
        "real_levels": list(job.levels),
        "simulated_levels": list(job.simulated_levels),
        "running_given_placements": {
            "real_s": job.run_s,
            "predicted_s": job.predicted_run_s,
            "error": job.run_error,
        },
        "stretches": [
            {
                "number": item.interval.number,
                "gpus": dict(item.interval.gpus),
                "steps": item.interval.steps,
                "startup_s": item.span.startup_s,
                "predicted_startup_s": job.expected_startup_s(item),
                "step_s": item.interval.step_s,
                "predicted_step_alone_s": item.alone_s,
                "predicted_step_beside_others_s": item.shared_s,
                "rest_s": item.rest_s,
            }
            for item in job.intervals
        ],
    }


def _draw(comparison: Comparison, path: Path) -> str:
    """Draw the figure if the analysis extra is installed; why not, if not."""
    try:
        figures = import_optional("analysis.fidelity", "analysis")
    except MissingModuleError as error:
        return str(error)
    by_model: dict[str, list[tuple[float, float]]] = {}
    for job in sorted(comparison.jobs, key=lambda job: job.real.model):
        by_model.setdefault(job.real.model or "no model", []).append((job.real.jct_s, job.simulated.jct_s))
    usage = {
        "real": gpus_in_use(comparison.real_spans),
        "simulated": gpus_in_use(comparison.simulated_spans),
    }
    partial = path.with_name(f".{path.stem}.{os.getpid()}.png")
    try:
        figures.draw_fidelity(by_model, usage, comparison.gpus, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return ""


def gpus_in_use(spans: Sequence[HeldSpan]) -> list[tuple[float, int]]:
    """How many GPUs jobs held from each moment on at which that changed, seconds."""
    changes = {0.0: 0}
    for span in spans:
        changes[span.start_s] = changes.get(span.start_s, 0) + span.job.gpus
        changes[span.end_s] = changes.get(span.end_s, 0) - span.job.gpus
    held, found = 0, []
    for moment in sorted(changes):
        held += changes[moment]
        found.append((moment, held))
    return found
