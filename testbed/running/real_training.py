"""Real trainings whose sizes and batches policies choose: `python -m testbed.running.real_training FOLDER`.

Brings up a Slurm on this machine for each seed and runs the same jobs under each policy, the seed deciding
jobs, parameters and order of samples; another policy begins for each seed. Jobs train a small net on
scikit-learn's digits, at the pace of a pretended GPU. Results stay in FOLDER: what is done there is not done
again. The tables of docs/results/elastic-live.md are written anew.
"""

import csv
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, median

import click

from dally.interruption import interruptible
from dally.markdown import replace_section, table
from dally.runs.records import JobRecord, read_jobs
from dally.words import share
from simulator.scenario import folder_name
from slurm_plugin.local_cluster.local_slurm import temporary_slurm
from testbed.persistent.shape import LocalClusterShape
from testbed.running.batch import RunRequest, check_policies, plan_batch, run_policy, topology_of
from testbed.running.folder import job_path
from testbed.running.json_lines import read_lines
from testbed.running.script import STEPS

PAGE = Path(__file__).parents[2] / "docs" / "results" / "elastic-live.md"
SHAPE = LocalClusterShape(racks=(2, 2), gpus=2)
TFLOPS = 0.0002
"""Of the pretended GPU: 0.15 s for a step of 32 images, several times what these take for real."""

FIXED = "slurm:switch_wait_s=20"
POLICIES = (
    FIXED,
    "dally:lease_s=90",
    "tiresias:limits=60+240,quantum_s=20,quantum_restarts=1",
    "ones:interval_s=20",
    "pollux:round_s=15,restart_s=5",
)
RESIZED = POLICIES[-2:]
COMPANIONS = 3
"""With as many, `RESIZED` run once more."""

WITH_COMPANIONS = " by companions"
GPUS = (1, 1, 1, 2, 2, 2, 2, 4)
MOST_GPUS, LEAST_S, MOST_S, GAP_S = 8, 50, 80, 10.0
TIMEOUT_S = 400.0
HALF_A_POINT = 0.005


@dataclass(frozen=True, slots=True)
class FinishedTraining:
    """How one job went.

    Attributes:
        record: Its line of jobs.csv.
        accuracy: On the samples held out; None if it did not end.
        pauses_s: From the last step before each change of its number of ranks to the first after it.
        pair_s: Of its steps on two ranks.
        batches: The batches that it had, samples.
    """

    record: JobRecord
    accuracy: float | None
    pauses_s: tuple[float, ...]
    pair_s: tuple[float, ...]
    batches: frozenset[int]

    @property
    def jct_s(self) -> float:
        """From submission to end, seconds; without an end infinite."""
        return float("inf") if self.record.end_s is None else self.record.end_s - self.record.submit_s


Trainings = Mapping[str, FinishedTraining]
"""Of one run, by job."""


def write_workload(path: Path, seed: int) -> None:
    """Eight elastic jobs with sizes, lengths and times of submission of their own for each seed."""
    random = Random(seed)
    sizes, submit_s = random.sample(GPUS, len(GPUS)), 0.0
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["job_id", "submit_s", "gpus", "duration_s", "kind", "min_gpus", "max_gpus", "model"])
        for number, gpus in enumerate(sizes):
            lasts_s = random.uniform(LEAST_S, MOST_S)
            asked = f"{submit_s:.1f}", gpus, f"{lasts_s:.1f}"
            rows.writerow([f"job-{number}", *asked, "elastic", 1, MOST_GPUS, "digits"])
            submit_s += random.expovariate(1 / GAP_S)


def read_trainings(folder: Path) -> Trainings:
    """How the jobs of a run went."""
    found = {}
    for record in read_jobs(folder):
        lines = read_lines(job_path(folder, record.job_id) / STEPS)
        pairs = list(pairwise(line for line in lines if "step" in line))
        scores = [line["accuracy"] for line in lines if "accuracy" in line]
        found[record.job_id] = FinishedTraining(
            record,
            accuracy=scores[-1] if scores and record.end_s is not None else None,
            pauses_s=tuple(
                after["time"] - before["time"] for before, after in pairs if before["ranks"] != after["ranks"]
            ),
            pair_s=tuple(line["seconds"] for line in lines if "step" in line and line["ranks"] == 2),
            batches=frozenset(
                after["samples"] - before["samples"]
                for before, after in pairs
                if before["ranks"] == after["ranks"] and after["step"] > before["step"]
            ),
        )
    return found


Runs = Mapping[str, Sequence[Trainings]]
"""By policy, one for each seed."""


def overview(runs: Runs) -> str:
    """A row for each policy."""
    header = ["policy", "mean JCT, s, by seed", "mean JCT, s"]
    header += ["changes of size", "pause, s", "jobs with several batches", "restarts"]
    header += ["mean accuracy", "against the fixed size, points", "within half a point", "lowest"]
    header += ["step on two ranks, s"]
    fixed = runs[FIXED]
    rows = []
    for policy, seeds in runs.items():
        jobs = [job for trainings in seeds for job in trainings.values()]
        # Accuracies less those of the same jobs at their fixed sizes, of those that ended in both.
        gaps = [
            job.accuracy - other
            for trainings, others in zip(seeds, fixed, strict=True)
            for job_id, job in trainings.items()
            if job.accuracy is not None and (other := others[job_id].accuracy) is not None
        ]
        means = [fmean(job.jct_s for job in trainings.values()) for trainings in seeds]
        spec, by, companions = policy.partition(WITH_COMPANIONS)
        row = [
            f"`{spec}`{by}{companions}",
            ", ".join(f"{mean_s:.0f}" for mean_s in means),
            f"{fmean(means):.0f}",
        ]
        pauses_s = [pause_s for job in jobs for pause_s in job.pauses_s]
        row += [str(len(pauses_s)), f"{median(pauses_s):.2f}" if pauses_s else ""]
        row += [str(sum(len(job.batches) > 1 for job in jobs))]
        row += [str(sum(job.record.preemptions + job.record.failures for job in jobs))]
        row += [share(fmean(job.accuracy for job in jobs if job.accuracy is not None), 2)]
        if policy == FIXED:
            row += ["", "", ""]
        else:
            inside = sum(gap >= -HALF_A_POINT for gap in gaps)
            row += [f"{100 * fmean(gaps):+.2f}", f"{inside} of {len(jobs)}", f"{100 * min(gaps):+.2f}"]
        rows.append([*row, f"{median(pair_s for job in jobs for pair_s in job.pair_s):.3f}"])
    return table(header, rows)


def by_job(runs: Runs, seeds: Iterable[int]) -> str:
    """A row for each job of each seed: its accuracy at its fixed size, and elsewhere against that, points."""
    policies = [policy for policy in runs if policy != FIXED]
    rows = []
    for number, seed in enumerate(seeds):
        for job_id, job in runs[FIXED][number].items():
            fixed = "did not end" if job.accuracy is None else share(job.accuracy, 2)
            row = [str(seed), job_id, str(job.record.gpus), fixed]
            for policy in policies:
                other = runs[policy][number][job_id]
                points = "-"
                if other.accuracy is not None and job.accuracy is not None:
                    points = f"{100 * (other.accuracy - job.accuracy):+.2f}"
                row.append(f"{points} ({len(other.pauses_s)}; {'/'.join(map(str, sorted(other.batches)))})")
            rows.append(row)
    names = [
        f"`{policy.partition(':')[0]}`{WITH_COMPANIONS if policy.endswith(WITH_COMPANIONS) else ''}"
        for policy in policies
    ]
    return table(["seed", "job", "GPUs asked for", "fixed size", *names], rows)


def out_folder(folder: Path, seed: int, companions: int = 0) -> Path:
    """Where the run folders of a seed are."""
    return folder / (f"seed-{seed}-companions-{companions}" if companions else f"seed-{seed}")


def run_seed(folder: Path, seed: int, policies: Sequence[str], companions: int = 0) -> None:
    """Run the jobs of a seed under each policy that has not had them, on a cluster of its own."""
    out = out_folder(folder, seed, companions)
    out.mkdir(exist_ok=True)
    workload = out_folder(folder, seed) / "jobs.csv"
    write_workload(workload, seed)
    request = RunRequest(
        str(workload),
        str(folder / "profiles"),
        emulate=TFLOPS,
        seed=seed,
        timeout_s=TIMEOUT_S,
        data=folder / "digits.npz",
        companions=companions,
    )
    turn = seed % len(policies)
    with interruptible() as stop, temporary_slurm(SHAPE.spec) as local_slurm:
        batch = plan_batch(request, topology_of(local_slurm.cluster, None), out)
        for policy in check_policies([*policies[turn:], *policies[:turn]]):
            run = run_policy(local_slurm.cluster, batch, policy, stop, lambda policy, counts: None)
            click.echo(f"seed {seed}: {policy.spec}: mean JCT {run.summary.jct_s.mean:.0f} s {run.note}")
            if stop():
                sys.exit(1)


def _prepare(folder: Path) -> None:
    """The samples, and what the pretended GPU takes for a step, measured by Dally's own profiler."""
    folder.mkdir(exist_ok=True)
    if not (folder / "digits.npz").exists():
        subprocess.run([sys.executable, "-P", "-m", "workloads.digits", folder / "digits.npz"], check=True)
    if not (folder / "profiles" / "digits.json").exists():
        command = [sys.executable, "-P", "-c", "from profiler.commands import main; main()"]
        command += ["local", "digits", "--racks", "2,2", "--ranks", "2", "--rate", "1Gb", "--uplink", "200Mb"]
        command += ["--allow-busy", "--emulate", f"{TFLOPS:g}", "--sweep", "64K:256K", "--budget", "3"]
        command += ["--warm-up", "2", "--shapes", "machine-1x2,network-4x2"]
        subprocess.run([*command, "--out", str(folder / "profiles")], check=True)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--seeds", default="1,2", show_default=True, help="With commas between.")
def main(folder: Path, seeds: str) -> None:
    """Run what has not been run yet, and write the tables."""
    _prepare(folder)
    numbers = [int(word) for word in seeds.split(",")]
    for seed in numbers:
        run_seed(folder, seed, POLICIES)
        run_seed(folder, seed, RESIZED, COMPANIONS)
    runs = {
        policy: [read_trainings(out_folder(folder, seed) / folder_name(policy)) for seed in numbers]
        for policy in POLICIES
    }
    for policy in RESIZED:
        runs[f"{policy}{WITH_COMPANIONS}"] = [
            read_trainings(out_folder(folder, seed, COMPANIONS) / folder_name(policy)) for seed in numbers
        ]
    text = PAGE.read_text(encoding="utf-8")
    text = replace_section(text, "overview", overview(runs))
    PAGE.write_text(replace_section(text, "jobs", by_job(runs, numbers)), encoding="utf-8")


if __name__ == "__main__":
    main()
