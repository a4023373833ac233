"""Random jobs on a real Slurm for hours, while controllers, slurmctld and nodes fail: what was lost?"""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.controller.journal import read_events
from tests.slurm_plugin.live_site import LiveSite
from tests.slurm_plugin.mixed_jobs import (
    OURS,
    QOS,
    mixed_cluster,
    outcome,
    random_cpu_job,
    random_options,
    set_up_nodes,
)
from tests.slurm_plugin.real import read_runs, run_twice_at_once

AT_ONCE = 25
"""So many jobs wait or run at a time."""

FAULT_EVERY_S = (15.0, 40.0)
FAULT_LASTS_S = (1.0, 20.0)
LAST_S = 1200.0
"""When no more jobs come, those that are left must have ended after this."""

LENGTHS, LENGTH_WEIGHTS = (("short", 2, 12), ("long", 30, 50)), (9, 1)
"""Names of jobs and how many seconds they take, within their limits of one to three minutes.

Policies learn run times by name, so that they stop long jobs for short ones.
"""

SCRIPT = """#!/bin/bash
trap 'save; exit 85' USR1
save() { echo $step > "$saved"; }
say() { echo "$EPOCHREALTIME $who $step $1 $SLURM_JOB_NODELIST" >> ran; }
who="$SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $$"
saved=step.$SLURM_JOB_ID
step=$(cat "$saved" 2>/dev/null || echo 0)
say start
while [ $step -lt $1 ]; do sleep 1 & wait $!; step=$((step + 1)); say step; done
say end
"""
"""A job that writes down what it does, and goes on from its checkpoint."""


@dataclass(frozen=True, slots=True)
class SoakFindings:
    """What came of a soak; all but the counts should be empty.

    Attributes:
        jobs: Jobs submitted.
        faults: Faults by kind.
        preempted: Jobs stopped for others.
        recounts: How often Slurm was made to count GPUs anew; its 22.05 miscounts after restarts.
        refused: Starts that Slurm refused, by its reason; a fault may be why.
        lost: Jobs that never came to their end.
        twice: Jobs of which two runs overlapped, or that came to their end twice.
        over_limits: Limits of QOS and licences that were exceeded at a look.
        in_vain: Jobs for which others were stopped, and that Slurm then did not start.
        leaked: What is held at the end.
        longest_wait_s: From submission to the first start.
        evidence: Of jobs that were lost, ran twice or had others stopped in vain: when they began and ended,
            what the controller did, also to the jobs that were stopped for them, and what failed meanwhile.
    """

    jobs: int
    faults: Counter[str]
    preempted: int
    recounts: int
    refused: Counter[str]
    lost: list[str]
    twice: list[str]
    over_limits: list[str]
    in_vain: list[str]
    leaked: str
    longest_wait_s: float
    evidence: list[str]

    @property
    def good(self) -> bool:
        """Nothing was lost, run twice or leaked, and all limits were kept."""
        return not (self.lost or self.twice or self.over_limits or self.leaked)


@contextmanager
def soak_site(folder: Path, policy: str) -> Iterator[LiveSite]:
    """The cluster of the random jobs, with a controller that can be killed."""
    with mixed_cluster(folder) as local_slurm:
        (local_slurm.work / "soak.sh").write_text(SCRIPT, encoding="ascii")
        site = LiveSite(local_slurm, OURS, policy=policy, max_requeues=1000)
        site.start_controller()
        try:
            yield site
        finally:
            site.end_controller(signal.SIGKILL)


Fault = tuple[str, Callable[[], object]]
"""What of it failed, empty for all, and what mends it."""


def killed_controller(site: LiveSite, random: Random) -> Fault:
    """The controller is killed; the next mends it."""
    site.end_controller(signal.SIGKILL)
    return "", site.start_controller


def restarted_slurmctld(site: LiveSite, random: Random) -> Fault:
    """Slurmctld is stopped."""
    site.local_slurm.stop_controller()

    def start() -> None:
        site.local_slurm.start_controller()
        set_up_nodes(site.local_slurm)

    return "", start


def drained_node(site: LiveSite, random: Random) -> Fault:
    """An administrator drains a node; jobs there run on."""
    node = f"n{random.randint(1, 6)}"
    update = ("scontrol", "update", f"NodeName={node}")
    site.local_slurm.run(*update, "State=DRAIN", "Reason=soak")
    return node, lambda: site.local_slurm.attempt(*update, "State=RESUME")


def killed_slurmd(site: LiveSite, random: Random) -> Fault:
    """A node's slurmd is killed; jobs there run on."""
    node = f"n{random.randint(1, 6)}"
    site.local_slurm.kill_slurmd(node)
    return node, lambda: site.local_slurm.start_node(node)


FAULTS = {
    "controller killed": killed_controller,
    "slurmctld restarted": restarted_slurmctld,
    "node drained": drained_node,
    "slurmd killed": killed_slurmd,
}


class FaultPlan:
    """One fault after the other, each ended before the next begins.

    Attributes:
        counts: Faults by kind.
        told: What failed and was mended, by the time.
        recounts: How often Slurm was made to count GPUs anew.
    """

    def __init__(self, site: LiveSite, random: Random, faulty: bool) -> None:
        self._site, self._random = site, random
        self._next_s = time.monotonic() + random.uniform(*FAULT_EVERY_S) if faulty else float("inf")
        self._end: Callable[[], object] | None = None
        self._what = ""
        self.counts = Counter[str]()
        self.told: list[tuple[float, str]] = []
        self.recounts = 0

    @property
    def under_way(self) -> bool:
        """Whether something is broken now."""
        return self._end is not None

    def turn(self) -> None:
        """Begin or end a fault if it is time."""
        if time.monotonic() < self._next_s:
            return
        if self._end is not None:
            self.mend()
            return
        kind = [*FAULTS][self.counts.total() % len(FAULTS)]
        self.counts[kind] += 1
        node, self._end = FAULTS[kind](self._site, self._random)
        self._what = f"{kind} {node}".rstrip()
        self.told.append((time.time(), self._what))
        self._next_s = time.monotonic() + self._random.uniform(*FAULT_LASTS_S)

    def mend(self) -> None:
        """End the fault that is under way."""
        if self._end is not None:
            self._end()
            self._end = None
            self.told.append((time.time(), f"mended: {self._what}"))
        self._next_s = time.monotonic() + self._random.uniform(*FAULT_EVERY_S)

    def recount(self) -> None:
        """Do what `dally status` says helps where Slurm counts GPUs as in use by no job."""
        if self._site.page("/status").get("miscounted"):
            self._site.local_slurm.run("scontrol", "reconfigure")
            set_up_nodes(self._site.local_slurm)
            self._site.cycles(1)
            self.recounts += 1


def soak(site: LiveSite, hours: float, most_jobs: int, faulty: bool, seed: int) -> SoakFindings:
    """Submit random jobs for so long, or so many, then let all end.

    Args:
        site: A site of `soak_site`.
        hours: How long.
        most_jobs: How many at most.
        faulty: Whether things fail meanwhile.
        seed: Of jobs and faults.
    """
    random = Random(seed)
    plan, jobs, over = FaultPlan(site, Random(seed + 1), faulty), list[str](), dict[str, None]()
    end_s = time.monotonic() + hours * 3600
    left = set[str]()
    while len(jobs) < most_jobs and time.monotonic() < end_s:
        plan.turn()
        if not plan.under_way:
            plan.recount()
            shown = site.jobs()
            over |= dict.fromkeys(exceeded([*shown.values()]))
            left = {job for job in left if job in shown and shown[job].state is not State.ENDED}
            for _ in range(min(4, AT_ONCE - len(left))):
                name, least_s, most_s = random.choices(LENGTHS, LENGTH_WEIGHTS)[0]
                command = ("soak.sh", str(random.randint(least_s, most_s)))
                jobs.append(site.submit(*random_options(random), f"--job-name={name}", *command))
                left.add(jobs[-1])
                if random.random() < 0.15:
                    site.local_slurm.run(*random_cpu_job(random))
        time.sleep(0.3)
    plan.mend()

    def settled() -> bool:
        plan.recount()
        return not site.leaked()

    leaked = ""
    try:
        site.wait_for(settled, "all jobs to end", LAST_S)
    except AssertionError:
        leaked = f"{site.leaked()}\n{site.local_slurm.run('scontrol', 'show', 'node')}"
    return found(site, jobs, plan, [*over], leaked)


def exceeded(jobs: list[SlurmJob]) -> Iterator[str]:
    """Limits of the mixed site that running jobs exceed."""
    running = [job for job in jobs if job.state is State.RUNNING]
    gpus, count, licenses = Counter[str](), Counter[str](), Counter[str]()
    for job in running:
        gpus[job.qos] += sum(job.gpus.values())
        count[job.qos] += 1
        name, _, number = job.licenses.partition(":")
        licenses[name] += int(number or 1)
    limits = {"short": (4, 3), "wide": (6, 10**6)}
    assert limits.keys() == QOS.keys(), "the limits of the mixed site have changed"
    for name, (most_gpus, most_jobs) in limits.items():
        if gpus[name] > most_gpus or count[name] > most_jobs:
            yield f"QOS {name}: {gpus[name]} GPUs, {count[name]} jobs"
    for name, most in {"matlab": 2, "ansys": 1}.items():
        if licenses[name] > most:
            yield f"licence {name}: {licenses[name]}"


def found(site: LiveSite, jobs: list[str], plan: FaultPlan, over: list[str], leaked: str) -> SoakFindings:
    """Compare what ran with what was submitted."""
    ran = site.local_slurm.work / "ran"
    words = [line.split(" ") for line in ran.read_text(encoding="ascii").splitlines()] if ran.exists() else []
    ends = Counter(said[1] for said in words if said[5] == "end")
    events = [event for job in jobs for event in read_events(site.state_dir, job)]
    told = outcome(jobs, sorted(events, key=lambda event: event["t"]))
    twice = {run.job_id for run, _ in run_twice_at_once(read_runs(ran))}
    submitted = {each["job"]: each["t"] for each in reversed(events) if each["event"] == "submit"}
    started = {each["job"]: each["t"] for each in reversed(events) if each["event"] == "start"}
    twice |= {job for job, count in ends.items() if count > 1}
    lost = [job for job in jobs if not ends[job]]
    traced = {*lost, *twice, *told.in_vain}
    said = [
        (float(line[0]), " ".join(line)) for line in words if line[1] in traced and not line[5].isdecimal()
    ]
    done = [
        (event["t"], json.dumps(event))
        for event in events
        if event["job"] in traced or not traced.isdisjoint(event.get("by", ()))
    ]
    failed = [each for each in plan.told if done and min(done) <= each <= max(done)]
    return SoakFindings(
        len(jobs),
        plan.counts,
        told.preempted,
        plan.recounts,
        told.refused,
        lost,
        sorted(twice),
        over,
        told.in_vain,
        leaked,
        max((started[job] - submitted[job] for job in started.keys() & submitted.keys()), default=0.0),
        [line for _, line in sorted(said + done + failed)],
    )
