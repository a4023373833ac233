"""Makes some jobs of a workload elastic: `python -m analysis.studies.elastic_workload TRACE OUT.csv`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import click

from dally.jobs.job import Job, JobKind
from dally.traces import load_trace
from dally.traces.common_csv import write_workload
from dally.traces.published_workloads import GAVEL_SINGLE

LARGEST = 16
"""Most GPUs that any elastic job can use."""


def make_elastic(jobs: Sequence[Job], share: float, seed: int) -> list[Job]:
    """The same jobs, a share of them elastic: half to four times the GPUs asked for, at most 16.

    Jobs of models that Gavel measured on one GPU only stay as they are.
    """
    rng = Random(f"{seed}:elastic")
    drawn = [rng.random() < share for _ in jobs]
    made = []
    for job, chosen in zip(jobs, drawn, strict=True):
        least, most = max(1, job.gpus // 2), max(job.gpus, min(LARGEST, 4 * job.gpus))
        elastic = replace(job, kind=JobKind.ELASTIC, min_gpus=least, max_gpus=most)
        made.append(elastic if chosen and job.model not in GAVEL_SINGLE else job)
    return made


@click.command()
@click.argument("trace")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--share", default=0.5, show_default=True, help="Of the jobs whose models can be elastic.")
@click.option("--seed", default=0, show_default=True, help="Of the generator and of the choice.")
def main(trace: str, out: Path, share: float, seed: int) -> None:
    """Write a workload, from a file or a generator, with a share of its jobs made elastic."""
    write_workload(make_elastic(load_trace(trace, seed=seed).jobs, share, seed), out)


if __name__ == "__main__":
    main()
