"""How much of the best possible total utility Hadar reaches: the optimum by MILP on small instances.

Time goes in slots of equal length. A job arrives at the beginning of a slot, and in each slot it runs with
its whole gang or not at all. A gang may mix GPU types and runs at the slowest one's pace. Stopping and moving
are free. A job's utility is its work over the time from its arrival to the end of the slot in which that is
done. The optimum knows all arrivals beforehand; Hadar, here the policy itself, does not.

    python -m analysis.studies.hadar_bound --instances 100 --seed 1
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

import click
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from analysis.studies.common import on_one_switch
from dally.cluster.topology import Allocation, Link, Machine, Topology
from dally.jobs.job import Job
from dally.plan import Migrate, Preempt, Start
from dally.policies.hadar.policy import Hadar
from dally.policies.registry import parse_policy
from dally.profiles.costs import Cost, CostModel
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState

SLOT_S = 360.0


@dataclass(frozen=True, slots=True)
class SlotJob:
    """A job in slots.

    Attributes:
        arrival: The first slot in which it may run.
        gpus: Its gang.
        work: Slots that it takes on its fastest type.
        speeds: Speed on each GPU type, 1 for the fastest.
    """

    arrival: int
    gpus: int
    work: float
    speeds: Mapping[str, float]

    def utility(self, slot: int) -> float:
        """The utility of an end with this slot."""
        return self.work / (slot + 1 - self.arrival)


@dataclass(frozen=True, slots=True)
class BoundInstance:
    """Servers as (GPUs, type), and jobs by arrival."""

    servers: tuple[tuple[int, str], ...]
    jobs: tuple[SlotJob, ...]

    @property
    def slots(self) -> int:
        """Slots in which all jobs end, one after another at their slowest."""
        last = max(job.arrival for job in self.jobs)
        return last + sum(int(np.ceil(job.work / min(job.speeds.values()))) for job in self.jobs)


@dataclass(frozen=True, slots=True)
class BoundResult:
    """Total utility under Hadar, the greatest alpha of its rounds, and the best total utility."""

    hadar: float
    alpha: float
    optimum: float

    @property
    def ratio(self) -> float:
        """Hadar's part of the optimum."""
        return self.hadar / self.optimum

    @property
    def holds(self) -> bool:
        """Whether the bound of the paper holds: at least 1 / (2 alpha) of the optimum."""
        return self.ratio >= 1 / (2 * self.alpha)


def draw(seed: int, jobs: int = 5) -> BoundInstance:
    """A random instance: three servers, each with one or two GPUs of its own type; jobs in four slots."""
    rng = Random(f"{seed}:hadar-bound")
    servers = tuple((rng.randint(1, 2), gpu_type) for gpu_type in ("fast", "mid", "slow"))
    most = sum(gpus for gpus, _ in servers)
    drawn = [
        SlotJob(
            arrival=rng.randint(0, 3),
            gpus=min(most, rng.choice((1, 1, 2, 3))),
            work=float(rng.randint(1, 3)),
            speeds={"fast": 1.0, "mid": rng.uniform(0.6, 1.0), "slow": rng.uniform(0.4, 0.6)},
        )
        for _ in range(jobs)
    ]
    return BoundInstance(servers, tuple(sorted(drawn, key=lambda job: job.arrival)))


# The optimum


class _MixedProgram:
    """A mixed-integer program in the making: variables with a gain each, and constraints `sum <= limit`."""

    def __init__(self) -> None:
        self._gains: list[float] = []
        self._most: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._limits: list[float] = []

    def variable(self, most: float, gain: float = 0.0) -> int:
        """A new whole number from 0 to `most`."""
        self._gains.append(gain)
        self._most.append(most)
        return len(self._gains) - 1

    def at_most(self, limit: float, terms: Sequence[tuple[int, float]]) -> None:
        """The sum of variables times factors must not exceed a limit."""
        self._entries += [(len(self._limits), variable, factor) for variable, factor in terms]
        self._limits.append(limit)

    def solve(self) -> float:
        """The greatest total gain."""
        rows, columns, factors = zip(*self._entries, strict=True)
        shape = len(self._limits), len(self._gains)
        matrix = coo_array((factors, (rows, columns)), shape=shape).tocsc()
        solution = milp(
            -np.array(self._gains),
            integrality=np.ones(len(self._gains)),
            bounds=Bounds(0, np.array(self._most)),
            constraints=LinearConstraint(matrix, ub=np.array(self._limits)),
            options={"mip_rel_gap": 1e-7},
        )
        assert solution.success, solution.message
        return -float(solution.fun)


def optimum(instance: BoundInstance) -> float:
    """The greatest total utility of any schedule, by MILP."""
    program, slots = _MixedProgram(), instance.slots
    used: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for job in instance.jobs:
        progress: list[tuple[int, float]] = []
        ended: list[tuple[int, float]] = []
        for slot in range(job.arrival, slots):
            progress += _slot(program, instance, job, used, slot)
            ended.append((program.variable(1, job.utility(slot)), 1.0))
            # It may count as ended with this slot or before only if its work is done.
            done = [(variable, -speed) for variable, speed in progress]
            program.at_most(0.0, [*done, *((variable, job.work) for variable, _ in ended)])
        program.at_most(1.0, ended)
    for (_, server), terms in used.items():
        program.at_most(instance.servers[server][0], terms)
    return program.solve()


def _slot(
    program: _MixedProgram,
    instance: BoundInstance,
    job: SlotJob,
    used: dict[tuple[int, int], list[tuple[int, float]]],
    slot: int,
) -> list[tuple[int, float]]:
    """Variables of a job in a slot; gives those that say at which speed as the slowest it runs, and it."""
    runs = {speed: program.variable(1) for speed in sorted({*job.speeds.values()})}
    program.at_most(1.0, [(variable, 1.0) for variable in runs.values()])
    held = []
    for server, (gpus, gpu_type) in enumerate(instance.servers):
        variable = program.variable(gpus)
        held.append((variable, -1.0))
        used.setdefault((slot, server), []).append((variable, 1.0))
        fits = [(run, -float(gpus)) for speed, run in runs.items() if speed <= job.speeds[gpu_type]]
        program.at_most(0.0, [(variable, 1.0), *fits])
    program.at_most(0.0, [*held, *((variable, float(job.gpus)) for variable in runs.values())])
    return [(variable, speed) for speed, variable in runs.items()]


# Hadar in slots


class _GivenSpeeds(CostModel):
    """Costs of jobs whose speeds are given; starting and moving cost nothing."""

    def __init__(self, topology: Topology, speeds: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__(topology)
        self._speeds = speeds

    def worker_speeds(self, job: Job) -> Mapping[str, float]:
        """The given speeds."""
        return self._speeds[job.job_id]

    def cost(self, job: Job, allocation: Allocation, done: float = 0.0) -> Cost:
        """The pace of the slowest GPU."""
        machines = self.topology.machines
        slowest = min(self._speeds[job.job_id][machines[machine].gpu_type] for machine, _ in allocation)
        return Cost(1 / slowest, 0.0, extrapolated=False)

    def restart_s(self, job: Job) -> float:
        """A restart costs nothing."""
        return 0.0

    def launch_s(self, job: Job) -> float:
        """A start costs nothing."""
        return 0.0


def run_hadar(instance: BoundInstance, policy: str = "hadar") -> tuple[float, float]:
    """The total utility under Hadar, and the greatest alpha of its rounds."""
    jobs = {f"j{number}": job for number, job in enumerate(instance.jobs)}
    link = Link(1e12)
    machines = [Machine(f"m{n}", gpus, gpu_type, link) for n, (gpus, gpu_type) in enumerate(instance.servers)]
    topology = on_one_switch("bound", machines, link)
    costs = _GivenSpeeds(topology, {name: job.speeds for name, job in jobs.items()})
    state = ClusterState(topology, costs)
    hadar = parse_policy(policy).build(state)
    assert isinstance(hadar, Hadar)
    scheduler, total, alpha, slot = Scheduler(state, hadar), 0.0, 1.0, 0
    coming = [*jobs.items()]
    while coming or state.jobs:
        now = slot * SLOT_S
        while coming and coming[0][1].arrival == slot:
            name, job = coming.pop(0)
            scheduler.submit(Job(name, now, job.gpus, job.work * SLOT_S), now)
        if state.jobs:
            alpha = max(alpha, hadar.round(state, now).prices().alpha)
        decisions = scheduler.decide(now).decisions
        for decision in decisions:
            if isinstance(decision, Preempt | Migrate):
                scheduler.preempt(decision.job_id, now)
        for decision in decisions:
            if isinstance(decision, Start | Migrate):
                cost = costs.cost(state.jobs[decision.job_id].job, decision.allocation)
                scheduler.start(decision.job_id, decision.allocation, now, 1 / cost.slowdown)
        scheduler.plan_applied(now)
        slot += 1
        for name in [each for each in state.running if state.jobs[each].end_s() <= slot * SLOT_S + 1e-6]:
            scheduler.finish(name, slot * SLOT_S)
            total += jobs[name].utility(slot - 1)
    return total, alpha


# The table


def summary(results: Sequence[BoundResult]) -> dict[str, float]:
    """The figures of some instances, by name."""
    ratios = np.array([result.ratio for result in results])
    return {
        "instances": len(results),
        "bound holds": sum(result.holds for result in results),
        "guaranteed, mean": fmean(1 / (2 * result.alpha) for result in results),
        "ratio, mean": float(ratios.mean()),
        "ratio, 10th percentile": float(np.quantile(ratios, 0.1)),
        "ratio, least": float(ratios.min()),
        "optimal": int((ratios > 1 - 1e-6).sum()),
    }


@click.command()
@click.option("--instances", default=100, show_default=True, help="How many random instances.")
@click.option("--jobs", default=5, show_default=True, help="Jobs of each.")
@click.option("--seed", default=1, show_default=True, help="Seed of the first; the others follow.")
@click.option("--policy", default="hadar", show_default=True, help="Hadar, with knobs.")
def main(instances: int, jobs: int, seed: int, policy: str) -> None:
    """Print how Hadar compares with the optimum."""
    drawn = [draw(seed + number, jobs) for number in range(instances)]
    results = [BoundResult(*run_hadar(each, policy), optimum(each)) for each in drawn]
    for name, value in summary(results).items():
        click.echo(f"{name:24} {value:.4g}")


if __name__ == "__main__":
    main()
