"""The batch script of one job: it trains, writes checkpoints when asked, and logs its starts and ends."""

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dally.jobs.job import CHECKPOINTED, JobKind
from dally.policies.slurm.node_choice import LEAF
from dally.policies.slurm.policy import SlurmKnobs
from testbed.running.job_plan import JobPlan
from workloads.preload_client import PRELOADED

STEPS, SCRIPT_LOG, OUTPUT, CHECKPOINT = "steps.jsonl", "diary", "output.txt", "checkpoint.pt"
SCRIPT, COMPANION = "job.sh", "companion.sh"
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


def job_script(plan: JobPlan, name: str, folder: str, settings: SubmitSettings) -> str:
    """The text of the script of a job of this name in Slurm, with this folder on the nodes."""
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(plan, name, folder, settings)),
        _dally_line(plan, folder, settings),
        f"trap : {CHECKPOINT_SIGNAL}",
        "restart=${SLURM_RESTART_COUNT:-0}",
        f'echo "start $EPOCHREALTIME $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE $restart" >> {SCRIPT_LOG}',
        *_environment(settings),
        *_training(plan, settings),
        "code=$?",
    ]
    if plan.job.kind is JobKind.FORKED:
        # How a forked job ended is in a file: srun tells the worst end of all copies, also of lost ones.
        lines.append(f"[ -e {CHECKPOINT}.code ] && code=$(cat {CHECKPOINT}.code)")
    lines += [
        f'echo "end $EPOCHREALTIME $code $restart" >> {SCRIPT_LOG}',
        # Training that failed goes back to the queue; what is truly broken fails at last. Slurm puts jobs of
        # dead nodes back by itself, but ranks that lost each other are a failed job to it. A script that runs
        # on where nodes were cut off must leave alone what has been started anew elsewhere.
        f"if [ $code -ne 0 ] && [ $code -ne {CHECKPOINTED} ]; then",
        f"  echo $code >> {FAILURES}",
        f"  newest=$(grep ^start {SCRIPT_LOG} | tail -n 1)",
        f"  [ ${{newest##* }} = $restart ] && [ $(wc -l < {FAILURES}) -le {TRIES_AGAIN} ] &&",
        "    scontrol requeue $SLURM_JOB_ID && sleep 60",
        "fi",
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def companion_script(plan: JobPlan, name: str, folder: str, settings: SubmitSettings) -> str:
    """The text of the script of a companion, whose ranks join those of the job; see `job_script`."""
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(plan, f"{name}-companion", folder, settings)),
        "#SBATCH --ntasks=1 --output=companion-%j.txt",
        f"#DALLY --checkpoint-signal={CHECKPOINT_SIGNAL} --checkpoint-grace={GRACE_S}",
        f"trap : {CHECKPOINT_SIGNAL}",
        *_environment(settings),
        *_training(plan, settings, "--join"),
        "exit $?",
    ]
    return "\n".join(lines) + "\n"


def switch_options(plan: JobPlan, best_level: int, knobs: SlurmKnobs) -> tuple[str, ...]:
    """What a job asks Slurm's own scheduler for: one leaf switch, for some time, if it fits under one."""
    if best_level > LEAF or not knobs.switch_wait_s or plan.job.gpus == 1:
        return ()
    seconds = math.ceil(min(knobs.switch_wait_s, 86_400.0))
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return (f"--switches=1@{clock}",)


def _options(plan: JobPlan, name: str, folder: str, settings: SubmitSettings) -> Iterator[str]:
    job = plan.job
    gpu_type = f"{job.gpu_type}:" if job.gpu_type else ""
    assert job.time_limit_s is not None, "it was planned"
    limit_min = round(job.time_limit_s / _MINUTE_S)
    yield f"--job-name={name} --partition={settings.partition} --time={limit_min} --cpus-per-task=1"
    if job.kind is JobKind.FORKED:  # Dally changes the number of nodes, and all that is said by node holds
        yield f"--nodes=1 --ntasks-per-node={job.gpus} --gpus-per-node={gpu_type}{job.gpus}"
    else:
        yield f"--ntasks={job.gpus} --gpus-per-task={gpu_type}1"
        if job.gang.per_machine:
            yield f"--nodes={job.gang.units} --ntasks-per-node={job.gang.per_machine}"
        if job.gang.segment or job.gang.consolidated:
            yield f"--segment={job.gang.segment or 1}"
        if job.gang.spread:
            yield "--spread-segments"
        if job.gang.consolidated:
            yield "--consolidate-segments"
        if job.gang.whole_blocks:
            yield "--exclusive=topo"
    yield f"--requeue --open-mode=append --chdir={folder} --output={OUTPUT}"


def _dally_line(plan: JobPlan, folder: str, settings: SubmitSettings) -> str:
    """Dally's options; a job that trains for real names no model: its reports give its speed."""
    job = plan.job
    line = f"#DALLY --progress={folder}/{PROGRESS}" if settings.data else f"#DALLY --model={job.model}"
    if job.preemptible:
        line += f" --checkpoint-signal={CHECKPOINT_SIGNAL} --checkpoint-grace={GRACE_S}"
    if job.kind is JobKind.FORKED:
        line += f" --copies={job.max_copies}"
    elif job.kind is JobKind.ELASTIC:
        line += f" --min-gpus={job.min_gpus or job.gpus} --max-gpus={job.max_gpus or job.gpus}"
    return line


def _environment(settings: SubmitSettings) -> Iterator[str]:
    yield "export OMP_NUM_THREADS=1"
    if settings.preloaded:
        yield f"export {PRELOADED}={shlex.quote(settings.preloaded)}"
    if settings.interface:
        yield f"export GLOO_SOCKET_IFNAME={settings.interface} NCCL_SOCKET_IFNAME={settings.interface}"
    # Names of nodes need not mean anything outside of Slurm, so ranks meet at an address that it knows.
    yield 'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    address = r"s/.* NodeAddr=\([^ ]*\).*/\1/p"
    yield f"MASTER_ADDR=$(scontrol --oneliner show node \"$first\" | sed -n '{address}')"
    yield "export MASTER_ADDR"


def _training(plan: JobPlan, settings: SubmitSettings, *more: str) -> Iterator[str]:
    """The lines that start the training on all ranks, and wait for it."""
    job, options = plan.job, ""
    if job.kind is not JobKind.RIGID:
        # The tasks of a job of open size, of `2(x3),1`: SLURM_NTASKS tells what it was submitted with.
        yield "tasks=$(($(sed 's/(x/*/g; s/)//g; s/,/+/g' <<< \"$SLURM_TASKS_PER_NODE\")))"
        options = "--ntasks=$tasks "
    # Neither the first rank that ends with a checkpoint nor a lost copy may end the others.
    options += f"--kill-on-bad-exit=0 --wait={0 if job.kind is JobKind.FORKED else 60}"
    program = [settings.python, "-P", "-m", "workloads.train", job.model]
    program += ["--steps", str(plan.steps), "--global-batch", str(plan.global_batch)]
    program += ["--precision", plan.precision, "--backend", settings.backend]
    program += ["--checkpoint", CHECKPOINT, "--log-file", STEPS]
    if settings.data:
        program += ["--data", settings.data, "--seed", str(settings.seed), "--progress", PROGRESS]
        program += ["--pace", f"{plan.compute_s:.4f}"]  # a GPU is full with its profile's batch
        if job.kind is JobKind.ELASTIC:
            # The batch follows the size: at most as large as on the most GPUs with as much for each.
            program += ["--elastic", RANKS, "--batch-rule", "policy", "--asked-ranks", str(job.gpus)]
            program += ["--max-batch", str(plan.local_batch * job.most_gpus)]
    if job.kind is JobKind.FORKED:
        program += ["--forked", "--slot", f"{settings.slot_s:g}", "--ranks-per-copy", str(job.gpus)]
    program += more
    nodes_of: dict[float, list[str]] = {}
    for node, tflops in (settings.emulate_tflops or {}).items():
        nodes_of.setdefault(tflops, []).append(node)
    if len(nodes_of) > 1:  # each rank adds the speed of its own node's pretended GPUs
        cases = " ".join(f"{'|'.join(nodes)}) tflops={tflops:g};;" for tflops, nodes in nodes_of.items())
        choose = f'case $SLURMD_NODENAME in {cases} esac; exec "$@" --emulate $tflops'
        program = ["bash", "-c", choose, "rank", *program]
    else:
        program += [word for tflops in nodes_of for word in ("--emulate", f"{tflops:g}")]
    yield f"srun {options} {shlex.join(program)}"
