"""Weeks of a mixed site in virtual time, over the fake Slurm: is a job lost, does one wait in vain?"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from dally.testing.worlds import racks
from slurm_plugin.client.accounting_limits import ResourceLimit
from slurm_plugin.client.slurm import Hold, State
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.fake_job import FakeJob, split_gpus
from tests.slurm_plugin.worlds import Action, FakeSite

HOUR_S = 3600.0
WEEK_S = 7 * 24 * HOUR_S
GPUS_PER_NODE = 8
TOPOLOGY = racks([[GPUS_PER_NODE] * 4, [GPUS_PER_NODE] * 4])
LOAD = 0.85
"""Share of the GPUs that is asked for."""

LOOK_S = HOUR_S
"""How often it is looked for jobs that could start and do not."""

BOUND_S = 12 * HOUR_S
"""A job may wait so long beside GPUs on which Slurm would start it: for near ones, or as others go first."""

REST_S = 10.0
"""Cycles are no closer than this, as a busy daemon's are not."""

USERS = ("alice", "bob", "carol", "dave")
FEATURES = {f"r{rack}m{machine}": ("ib",) for rack in range(2) for machine in range(3)}
PARTITIONS = {
    machine.name: ("gpu", "east" if machine.name.startswith("r0") else "west")
    for machine in TOPOLOGY.machines
}
LIMITS = (
    ResourceLimit("GrpTRES of QOS wide", 24, qos="wide"),
    ResourceLimit("GrpTRES of QOS short", 16, qos="short"),
)


@dataclass(slots=True)
class WeeksFindings:
    """What came of the weeks.

    Attributes:
        jobs: Jobs submitted.
        faults: Faults by kind.
        ends: How often jobs ended in each state.
        requeued: How often jobs were put back.
        lost: Jobs that did not end, and do not wait or run either.
        twice: Jobs that came to their end more than once.
        left: Jobs that had not ended a week after the last submission.
        idle_beside: Jobs that waited longer than the bound beside GPUs that they might use, and why.
        silent: Jobs that waited without a reason.
        longest_wait_h: From submission to the first start, hours.
        busy: Share of the GPUs that was in use.
    """

    jobs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    requeued: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    idle_beside: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    longest_wait_h: float = 0.0
    busy: float = 0.0

    @property
    def good(self) -> bool:
        """Nothing was lost or run twice, and nothing waited long beside GPUs that it might use."""
        return not (self.lost or self.twice or self.left or self.idle_beside or self.silent)


def random_spec(random: Random) -> dict[str, Any]:
    """What one user asks for; each such job can run when nobody else is there."""
    hours = min(72.0, random.lognormvariate(0.7, 1.2))
    nodes = random.choice([1, 1, 1, 1, 2, 2, 4])
    spec: dict[str, Any] = {
        "user": random.choice(USERS),
        "run_time_s": hours * HOUR_S,
        "time_limit_s": hours * HOUR_S * random.choice([1.1, 1.5, 3.0]) + 600,
        "resumes": random.random() < 0.6,
        "partition": random.choice(["gpu", "gpu", "gpu", "east", "west"]),
    }
    if random.random() < 0.25 and nodes == 1:
        spec |= {"gpus": random.choice([1, 2, 4, 8])}
    else:
        spec |= {
            "nodes": nodes,
            "gpus_per_node": random.choice([1, 2, 4, 8]) if nodes == 1 else GPUS_PER_NODE,
        }
    if spec["resumes"]:
        spec |= {"signal": "USR1", "grace_s": 120, "checkpoint_exit_s": random.choice([10.0, 60.0, 300.0])}
    if random.random() < 0.4:
        spec["cpus"] = random.choice([8, 16, 32])
    if random.random() < 0.4:
        spec["memory_mb"] = random.choice([50_000, 200_000, 500_000])
    if random.random() < 0.1 and spec.get("nodes", 1) * spec.get("gpus_per_node", 8) <= 16:
        spec["qos"] = random.choice(["short", "wide"])
    elif random.random() < 0.1:
        spec["licenses"] = "matlab"
    if nodes == 1 and spec["partition"] == "gpu" and random.random() < 0.2:
        spec["constraint"] = "ib"
    elif nodes == 1 and random.random() < 0.1:
        spec["excluded"] = ("r0m0", "r1m0")
    if "gpus_per_node" in spec and random.random() < 0.05:
        spec["exclusive"] = True
    if nodes == 1 and random.random() < 0.05:
        spec |= {"array": tuple(range(1, random.randint(3, 9))), "array_throttle": 2}
    return spec


def gpu_seconds(spec: dict[str, Any]) -> float:
    """What a job takes of the cluster."""
    gpus = spec.get("gpus") or spec["nodes"] * (
        GPUS_PER_NODE if "exclusive" in spec else spec["gpus_per_node"]
    )
    return float(gpus * len(spec.get("array", (1,))) * spec["run_time_s"])


def submit(site: FakeSite, spec: dict[str, Any]) -> None:
    """A user submits a job."""
    site.submit(**spec)


def set_node(site: FakeSite, node: str, state: str) -> None:
    """A node is drained, fails or comes back."""
    site.slurm.set_node(node, state)


def submissions(weeks: float, random: Random) -> Iterator[Action]:
    """Jobs at random times, as many as make the load; more by day than by night."""
    asked, until = 0.0, weeks * WEEK_S * LOAD * TOPOLOGY.gpus
    while asked < until:
        spec = random_spec(random)
        asked += gpu_seconds(spec)
        day = random.randrange(int(weeks * 7)) * 24 * HOUR_S
        at_s = day + (random.gauss(14.0, 4.0) % 24) * HOUR_S
        yield at_s, partial(submit, spec=spec)


def faults(weeks: float, random: Random, counts: Counter[str]) -> Iterator[Action]:
    """Some a day: controllers that are killed, nodes that fail or are drained, users and administrators."""
    kinds = ["controller killed", "node drained", "node failed", "job held", "job cancelled", "job requeued"]
    for _ in range(int(weeks * 7 * 3)):
        at_s, kind = random.uniform(0, weeks * WEEK_S), random.choice(kinds)
        counts[kind] += 1
        if kind == "controller killed":
            yield at_s, FakeSite.restart
        elif kind.startswith("node"):
            node, state = random.choice(TOPOLOGY.machines).name, "drain" if kind == "node drained" else "down"
            yield at_s, partial(set_node, node=node, state=state)
            yield at_s + random.uniform(0.2, 10) * HOUR_S, partial(set_node, node=node, state="")
        else:
            yield at_s, partial(disturb, kind=kind, pick=random.random())


def disturb(site: FakeSite, kind: str, pick: float) -> None:
    """Somebody holds and releases, cancels or requeues one of the jobs."""
    state = State.RUNNING if kind == "job requeued" else State.PENDING
    jobs = [job.job_id for job in site.slurm.jobs() if job.state is state]
    if not jobs:
        return
    job = jobs[int(pick * len(jobs))]
    if kind == "job cancelled":
        site.slurm.cancel(job)
    elif kind == "job requeued":
        site.slurm.requeue(job)
    else:
        site.slurm.hold(job, Hold.ADMIN)
        site.controller.cycle()
        site.slurm.hold(job, Hold.USER)


class Watcher:
    """Keeps what became of jobs, and looks for those that could start and do not."""

    def __init__(self, found: WeeksFindings) -> None:
        self.found = found
        self.ended: dict[str, list[str]] = {}
        self.submitted: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self._idle_since_s: dict[str, float] = {}
        self._used: list[float] = []

    def note_end(self, job: FakeJob, name: str, exit_code: int) -> None:
        """A job has ended, for good or to be put back."""
        if name != "FAILED" or exit_code == 0:
            self.ended.setdefault(job.job_id, []).append(name)

    def look(self, site: FakeSite) -> None:
        """Look at all jobs now."""
        slurm, now = site.slurm, site.now_s
        managed = site.controller.reconciler.managed_jobs
        self._used.append(sum(slurm._used.values()) / TOPOLOGY.gpus)
        idle = dict[str, float]()
        for job in slurm._jobs.values():
            if job.state is not State.PENDING or job.job_id not in managed:
                continue
            known = managed[job.job_id]
            if not known.reason and known.phase.name in (JobPhase.PENDING, JobPhase.INELIGIBLE):
                self.found.silent.append(job.job_id)
            if could_start(site, job):
                idle[job.job_id] = self._idle_since_s.get(job.job_id, now)
                if BOUND_S < now - idle[job.job_id] <= BOUND_S + LOOK_S:
                    hours = (now - idle[job.job_id]) / HOUR_S
                    self.found.idle_beside.append(
                        f"{job.job_id}, {hours:.0f} h: {known.phase.name}, {known.reason}"
                    )
        self._idle_since_s = idle

    def finish(self, site: FakeSite) -> None:
        """Count."""
        found, slurm = self.found, site.slurm
        there = {job.job_id for job in slurm._jobs.values() if job.state is not State.ENDED}
        found.ends = Counter(names[-1] for names in self.ended.values())
        found.jobs = len(self.submitted)
        found.left = sorted(there)
        found.lost = sorted(self.submitted.keys() - self.ended.keys() - there)
        found.twice = sorted(job for job, names in self.ended.items() if names.count("COMPLETED") > 1)
        waits = (self.started[job] - self.submitted[job] for job in self.started)
        found.longest_wait_h = max(waits, default=0.0) / HOUR_S
        found.busy = sum(self._used) / max(1, len(self._used))


def could_start(site: FakeSite, job: FakeJob) -> bool:
    """Whether Slurm would start a waiting job now if nobody held it."""
    slurm = site.slurm
    if slurm._limit(job) or slurm._is_throttled(job) or site.now_s < job.begin_s:
        return False
    usable = [name for name in slurm._nodes if slurm._may_use(job, name)]
    return split_gpus(job, {name: slurm._free(job, name) for name in usable}) is not None


def simulate(folder: Path, weeks: float, policy: str, seed: int) -> WeeksFindings:
    """Let the weeks pass, and one more for what is left.

    Args:
        folder: Of the journal.
        weeks: How many.
        policy: Policy and knobs.
        seed: Of jobs and faults.
    """
    found = WeeksFindings()
    watcher, random = Watcher(found), Random(seed)
    site = FakeSite(
        folder,
        TOPOLOGY,
        policy,
        partitions=PARTITIONS,
        cpus=128,
        memory_mb=1_000_000,
        features=FEATURES,
        ours=("gpu", "east", "west"),
        max_requeues=20,
        restart_gap_s=3.0,
    )
    site.slurm.total_licenses = {"matlab": 2}
    site.slurm.most_gpus = {limit.qos: int(limit.most) for limit in LIMITS}
    site.slurm.told_limits = LIMITS
    site.slurm.completing_s = 20.0
    end, start, take_in = site.slurm._end, site.slurm._start, site.slurm.submit

    def noted_end(job: FakeJob, name: str, exit_code: int) -> None:
        watcher.note_end(job, name, exit_code)
        end(job, name, exit_code)

    def noted_start(job: FakeJob, gpus: Any) -> None:
        watcher.started.setdefault(job.job_id, site.now_s)
        start(job, gpus)

    def noted_submit(spec: Any) -> str:
        number = take_in(spec)
        names = [f"{number}_{task}" for task in spec.array] or [number]
        watcher.submitted |= dict.fromkeys(names, site.now_s)
        return number

    looks = ((number * LOOK_S, watcher.look) for number in range(1, int((weeks + 1) * WEEK_S / LOOK_S)))
    actions = [*submissions(weeks, random), *faults(weeks, random, found.faults), *looks]
    slurm = site.slurm
    with (
        patch.object(slurm, "_end", noted_end),
        patch.object(slurm, "_start", noted_start),
        patch.object(slurm, "submit", noted_submit),
    ):
        site.live((weeks + 1) * WEEK_S, actions, poll_s=inf, rest_s=REST_S)
    watcher.finish(site)
    found.requeued = sum(1 for _ in site.events("preempt"))
    return found
