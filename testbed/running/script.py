"""The batch script of one job: it trains, writes checkpoints when asked, and keeps a script log of its own."""

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dally.jobs.job import CHECKPOINTED, JobKind
from dally.policies.slurm.node_choice import LEAF
from dally.policies.slurm.policy import SlurmKnobs
from testbed.running.job_plan import JobPlan
from workloads.handover import PRELOADED

STEPS, SCRIPT_LOG, OUTPUT, CHECKPOINT, SCRIPT = (
    "steps.jsonl",
    "diary",
    "output.txt",
    "checkpoint.pt",
    "job.sh",
)
COMPANION = "companion.sh"
PROGRESS, RANKS = "progress.json", "ranks"
"""Files of a job, in its folder; the last is a folder, where ranks of an elastic job meet."""

FAILURES = "failures"
TRIES_AGAIN = 3
"""So often a job whose training fails puts itself back; a file of its folder counts."""

CHECKPOINT_SIGNAL = "USR2"
GRACE_S = 30
"""Longest time that a job gets for its checkpoint."""

SLOT_S = 360.0
"""How often the copies of a forked job are averaged, under a policy without rounds."""

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class SubmitSettings:
    """Where jobs of a run are submitted, and how they train.

    Attributes:
        python: Interpreter on the nodes.
        partition: Slurm's partition.
        interface: Over which ranks on different nodes talk; empty: whichever they choose.
        backend: What carries the collectives: gloo or nccl.
        emulate_tflops: Speed of the pretended GPUs of each node; None to compute for real.
        preloaded: Folder where nodes may have a preloaded process for training to start from.
        slot_s: How often the copies of a forked job are averaged, seconds.
        data: File of samples on the nodes, on which jobs train for real; empty: they are made up.
        seed: Of the trainings on it.
        companions: Each elastic job that trains for real has so many.
    """

    python: str
    partition: str
    interface: str = ""
    backend: str = "gloo"
    emulate_tflops: Mapping[str, float] | None = None
    preloaded: str = ""
    slot_s: float = SLOT_S
    data: str = ""
    seed: int = 0
    companions: int = 0


def job_script(plan: JobPlan, name: str, folder: str, place: SubmitSettings) -> str:
    """The text of a job's script.

    Args:
        plan: What it trains.
        name: The job's name in Slurm.
        folder: The job's folder, on the nodes.
        place: Where and how.
    """
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(plan, name, folder, place)),
        *_dally_line(plan, folder, place),
        f"trap : {CHECKPOINT_SIGNAL}",
        "restart=${SLURM_RESTART_COUNT:-0}",
        f'echo "start $EPOCHREALTIME $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE $restart" >> {SCRIPT_LOG}',
        *_environment(place),
        *_count_tasks(plan),
        f"srun {' '.join(_launch(plan))} {shlex.join(_rank(plan, place))}",
        "code=$?",
        *_code_of_copies(plan),
        f'echo "end $EPOCHREALTIME $code $restart" >> {SCRIPT_LOG}',
        *_again(),
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def companion_script(plan: JobPlan, name: str, folder: str, place: SubmitSettings) -> str:
    """The text of the script of a companion, whose ranks join those of the job.

    Args: as of `job_script`.
    """
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(plan, f"{name}-companion", folder, place)),
        "#SBATCH --ntasks=1 --output=companion-%j.txt",
        f"#DALLY --checkpoint-signal={CHECKPOINT_SIGNAL} --checkpoint-grace={GRACE_S}",
        f"trap : {CHECKPOINT_SIGNAL}",
        *_environment(place),
        *_count_tasks(plan),
        f"srun {' '.join(_launch(plan))} {shlex.join(_rank(plan, place, '--join'))}",
        "exit $?",
    ]
    return "\n".join(lines) + "\n"


def switch_options(plan: JobPlan, best_level: int, knobs: SlurmKnobs) -> tuple[str, ...]:
    """What a job asks Slurm's own scheduler for: one leaf switch, for some time, if it fits under one.

    Args:
        plan: The job.
        best_level: The lowest level of the cluster that holds it.
        knobs: Of the policy `slurm`.
    """
    if best_level > LEAF or not knobs.switch_wait_s or plan.job.gpus == 1:
        return ()
    seconds = math.ceil(min(knobs.switch_wait_s, 86_400.0))
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return (f"--switches=1@{clock}",)


def _options(plan: JobPlan, name: str, folder: str, place: SubmitSettings) -> Iterator[str]:
    job = plan.job
    gpu_type = f"{job.gpu_type}:" if job.gpu_type else ""
    assert job.time_limit_s is not None, "it was planned"
    limit_min = round(job.time_limit_s / _MINUTE_S)
    yield f"--job-name={name} --partition={place.partition} --time={limit_min} --cpus-per-task=1"
    if job.kind is JobKind.FORKED:  # Dally changes the number of nodes, and all that is said by node holds
        yield f"--nodes=1 --ntasks-per-node={job.gpus} --gpus-per-node={gpu_type}{job.gpus}"
    else:
        yield f"--ntasks={job.gpus} --gpus-per-task={gpu_type}1"
        if job.gang.per_machine:
            yield f"--nodes={job.gang.units} --ntasks-per-node={job.gang.per_machine}"
    yield f"--requeue --open-mode=append --chdir={folder} --output={OUTPUT}"


def _dally_line(plan: JobPlan, folder: str, place: SubmitSettings) -> Iterator[str]:
    """What Dally is told; a job that trains for real names no model: how fast it is, its reports say."""
    line = f"#DALLY --progress={folder}/{PROGRESS}" if place.data else f"#DALLY --model={plan.job.model}"
    if plan.job.preemptible:
        line += f" --checkpoint-signal={CHECKPOINT_SIGNAL} --checkpoint-grace={GRACE_S}"
    if plan.job.kind is JobKind.FORKED:
        line += f" --copies={plan.job.max_copies}"
    elif plan.job.kind is JobKind.ELASTIC:
        low, high = plan.job.min_gpus or plan.job.gpus, plan.job.max_gpus or plan.job.gpus
        line += f" --min-gpus={low} --max-gpus={high}"
    yield line


def _environment(place: SubmitSettings) -> Iterator[str]:
    yield "export OMP_NUM_THREADS=1"
    if place.preloaded:
        yield f"export {PRELOADED}={shlex.quote(place.preloaded)}"
    if place.interface:
        yield f"export GLOO_SOCKET_IFNAME={place.interface} NCCL_SOCKET_IFNAME={place.interface}"
    # Names of nodes need not mean anything outside of Slurm, so ranks meet at an address that it knows.
    yield 'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    address = r"s/.* NodeAddr=\([^ ]*\).*/\1/p"
    yield f"MASTER_ADDR=$(scontrol --oneliner show node \"$first\" | sed -n '{address}')"
    yield "export MASTER_ADDR"


def _again() -> Iterator[str]:
    """Training that failed goes back to the queue; what is truly broken fails at last.

    Slurm puts jobs of dead nodes back by itself, but ranks that lost each other are a failed job to it. A
    script that runs on where nodes were cut off must leave alone what has been started anew elsewhere.
    """
    yield f"if [ $code -ne 0 ] && [ $code -ne {CHECKPOINTED} ]; then"
    yield f"  echo $code >> {FAILURES}"
    yield f"  newest=$(grep ^start {SCRIPT_LOG} | tail -n 1)"
    yield f"  [ ${{newest##* }} = $restart ] && [ $(wc -l < {FAILURES}) -le {TRIES_AGAIN} ] &&"
    yield "    scontrol requeue $SLURM_JOB_ID && sleep 60"
    yield "fi"


def _count_tasks(plan: JobPlan) -> Iterator[str]:
    """How many tasks a job of open size has, of `2(x3),1`: SLURM_NTASKS tells what it was submitted with."""
    if plan.job.kind is not JobKind.RIGID:
        yield "tasks=$(($(sed 's/(x/*/g; s/)//g; s/,/+/g' <<< \"$SLURM_TASKS_PER_NODE\")))"


def _launch(plan: JobPlan) -> Iterator[str]:
    """Options of srun: neither the first rank that ends with a checkpoint nor a lost copy ends others."""
    if plan.job.kind is not JobKind.RIGID:
        yield "--ntasks=$tasks"
    yield f"--kill-on-bad-exit=0 --wait={0 if plan.job.kind is JobKind.FORKED else 60}"


def _code_of_copies(plan: JobPlan) -> Iterator[str]:
    """How a forked job ended is in a file: srun tells the worst end of all copies, also of lost ones."""
    if plan.job.kind is JobKind.FORKED:
        yield f"[ -e {CHECKPOINT}.code ] && code=$(cat {CHECKPOINT}.code)"


def _rank(plan: JobPlan, place: SubmitSettings, *more: str) -> tuple[str, ...]:
    """What each rank runs; where nodes pretend GPUs of several speeds, it adds that of its own."""
    nodes_of: dict[float, list[str]] = {}
    for node, tflops in (place.emulate_tflops or {}).items():
        nodes_of.setdefault(tflops, []).append(node)
    training = (*_training(plan, place), *more)
    if len(nodes_of) <= 1:
        return (*training, *(word for tflops in nodes_of for word in ("--emulate", f"{tflops:g}")))
    cases = " ".join(f"{'|'.join(nodes)}) tflops={tflops:g};;" for tflops, nodes in nodes_of.items())
    return (
        "bash",
        "-c",
        f'case $SLURMD_NODENAME in {cases} esac; exec "$@" --emulate $tflops',
        "rank",
        *training,
    )


def _training(plan: JobPlan, place: SubmitSettings) -> Iterator[str]:
    yield from (place.python, "-P", "-m", "workloads.train", plan.job.model)
    yield from ("--steps", str(plan.steps), "--global-batch", str(plan.global_batch))
    yield from ("--backend", place.backend, "--checkpoint", CHECKPOINT, "--log-file", STEPS)
    if place.data:
        yield from ("--data", place.data, "--seed", str(place.seed), "--progress", PROGRESS)
        yield from ("--pace", f"{plan.compute_s:.4f}")  # a GPU is full with its profile's batch
        yield from _sizes(plan)
    if plan.job.kind is JobKind.FORKED:
        yield from ("--forked", "--slot", f"{place.slot_s:g}", "--ranks-per-copy", str(plan.job.gpus))


def _sizes(plan: JobPlan) -> Iterator[str]:
    """How its batch follows its size: at most as large as on the most GPUs with as much for each."""
    if plan.job.kind is JobKind.ELASTIC:
        most = plan.local_batch * plan.job.most_gpus
        yield from ("--elastic", RANKS, "--batch-rule", "policy", "--asked-ranks", str(plan.job.gpus))
        yield from ("--max-batch", str(most))
