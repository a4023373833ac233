"""What a search for allocations starts from: the jobs and free GPUs of a cluster as arrays, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from dally.cluster.topology import Allocation
from dally.policies.common.arrays import Floats
from dally.policies.pollux.allocation_search import Allocations, States
from dally.policies.pollux.allocation_speeds import CLOSE, PlacedSpeeds
from dally.policies.pollux.knobs import PolluxKnobs
from dally.state import ClusterState, JobState

_LEAST_FACTOR = 0.01
"""What is left at least of the speed-up of a job that restarts, so that starting it is better than not."""


@dataclass(frozen=True, slots=True)
class ServiceHad:
    """What a job has had.

    Attributes:
        most: GPUs at most.
        starts: How often it started, or went on on other GPUs.
    """

    most: int = 0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class AllocationProblem:
    """A search's arrays and what their indexes stand for.

    Attributes:
        jobs: Of the rows.
        machines: Of the columns.
        allocations: The arrays.
        fair: GPUs of each job that its speed-up is relative to.
    """

    jobs: Sequence[JobState]
    machines: Sequence[int]
    allocations: Allocations
    fair: Sequence[int]

    def allocation(self, row: States) -> Allocation:
        """The GPUs of a row of a state."""
        places = zip(self.machines, row.tolist(), strict=True)
        return tuple((machine, gpus) for machine, gpus in places if gpus)

    def plain(self, states: States) -> dict[str, Any]:
        """States as plain data for JSON: names of the jobs, and [row, machine, GPUs] of each part of each."""
        parts = [
            [[int(row), self.machines[place], int(state[row, place])] for row, place in np.argwhere(state)]
            for state in states
        ]
        return {"jobs": [job.job_id for job in self.jobs], "states": parts}

    def states(self, plain: Mapping[str, Any]) -> States:
        """The states of another problem, as `plain` gave them, as far as jobs and machines are still here.

        And as far as a job accepts these machines still.
        """
        rows = {job.job_id: row for row, job in enumerate(self.jobs)}
        places = {machine: place for place, machine in enumerate(self.machines)}
        found = np.zeros((len(plain["states"]), *self.allocations.held.shape), dtype=np.int16)
        for state, parts in zip(found, plain["states"], strict=True):
            for row, machine, gpus in parts:
                at = rows.get(plain["jobs"][row])
                if at is not None and machine in places:
                    state[at, places[machine]] = gpus
        return np.where(self.allocations.usable, found, 0)


class ProblemBuilder:
    """Makes the arrays; remembers speeds.

    Args:
        state: The cluster.
        knobs: How speed-ups are weighed and sizes bounded.
    """

    def __init__(self, state: ClusterState, knobs: PolluxKnobs) -> None:
        self._knobs = knobs
        self._costs = state.costs
        self._speeds = PlacedSpeeds(state.costs)

    def build(
        self, state: ClusterState, jobs: Sequence[JobState], had: Mapping[str, ServiceHad], now: float
    ) -> AllocationProblem:
        """The problem of sharing what is free, and what the jobs hold, among them.

        Args:
            state: With the GPUs of the jobs given back, on trial.
            jobs: The jobs that take part, at least one, by priority.
            had: What they have had, by name.
            now: The moment, seconds.
        """
        machines = [place for place, _ in enumerate(state.topology.machines) if state.free.on(place)]
        capacity = np.array([state.free.on(machine) for machine in machines], dtype=np.int64)
        types = [state.topology.machines[machine].gpu_type for machine in machines]
        service = [had.get(job.job_id, ServiceHad()) for job in jobs]
        bounds = [self._bounds(*each) for each in zip(jobs, service, strict=True)]
        share = ceil(int(capacity.sum()) / len(jobs))
        fair = [  # an equal share, as far as the job can use it
            max(least, min(share, self._costs.most_gpus(job.job)))
            for job, (least, _) in zip(jobs, bounds, strict=True)
        ]
        paths = np.array([state.topology.ancestors[machine] for machine in machines])
        paths = paths.reshape(len(machines), len(state.topology.levels))
        gangs = [job.job.gang for job in jobs]
        area = np.zeros((len(jobs), len(machines)), dtype=np.int64)
        for row, gang in enumerate(gangs):
            if gang.consolidated:
                area[row] = np.unique(paths[:, state.free.highest(gang)], return_inverse=True)[1]
        columns = {machine: place for place, machine in enumerate(machines)}
        held = np.zeros((len(jobs), len(machines)), dtype=np.int16)
        for row, job in enumerate(jobs):
            for machine, gpus in job.allocation:
                held[row, columns[machine]] = gpus
        # Jobs over several machines that keep their GPUs whatever is found.
        staying = [job for job in map(state.jobs.__getitem__, state.running) if not job.preemptible]
        taken = {machine for job in staying if len(job.allocation) > 1 for machine, _ in job.allocation}
        # Of a job whose row changes: (age - restarts * cost) / (age + cost); 1 for one that never ran.
        cost_s, factors = self._knobs.restart_s, [1.0] * len(jobs)
        for row, (job, past) in enumerate(zip(jobs, service, strict=True)):
            if past.starts and cost_s:
                age_s = max(0.0, now - job.job.submit_s)
                left = (age_s - (past.starts - 1) * cost_s) / (age_s + cost_s)
                factors[row] = max(_LEAST_FACTOR, left)
        # Of a job that shares its blocks with nobody: not where somebody is who keeps his GPUs.
        kept = np.array([bool(state.free.busy(state.free.block(machine))) for machine in machines])
        usable = np.array([[state.free.accepts(gang, each) for each in machines] for gang in gangs])
        whole_blocks = np.array([gang.whole_blocks for gang in gangs])
        allocations = Allocations(
            held=held,
            capacity=capacity,
            usable=usable & ~(whole_blocks[:, None] & kept),
            whole_blocks=whole_blocks,
            least=np.array([least for least, _ in bounds]),
            most=np.array([most for _, most in bounds]),
            share=np.array([job.job.gang.per_machine or 0 for job in jobs]),
            segment=np.array([gang.segment or 1 for gang in gangs]),
            spread=np.array([gang.spread for gang in gangs]),
            in_segments=np.array([gang.segment is not None or gang.consolidated for gang in gangs]),
            block=np.unique(paths[:, 1], return_inverse=True)[1],
            area=area,
            speedups=(speedups := self._speedups(jobs, bounds, fair, now)),
            fewest=self._speeds.fewest(speedups.shape[3] - 1),
            kinds=[np.flatnonzero(np.array(types) == name) for name in state.topology.gpu_types],
            factor=np.array(factors),
            taken=np.isin(machines, [*taken]),
            avoid=self._knobs.avoid,
            power=self._knobs.power,
        )
        return AllocationProblem(jobs, machines, allocations, fair)

    def _bounds(self, job: JobState, had: ServiceHad) -> tuple[int, int]:
        """Fewest and most GPUs of a job, multiples of its share on each machine."""
        each, least = job.job.gang.per_machine or 1, job.job.least_gpus
        most = self._costs.most_gpus(job.job)
        if self._knobs.growth:
            most = min(most, max(1, int(self._knobs.growth * had.most)))
        return least, max(least, most // each * each)

    def _speedups(
        self, jobs: Sequence[JobState], bounds: Sequence[tuple[int, int]], fair: Sequence[int], now: float
    ) -> Floats:
        """(jobs, types, 2, GPUs) speeds over those on the fair share."""
        tops = [max(most, own) for (_, most), own in zip(bounds, fair, strict=True)]
        tables = [
            self._speeds.table(job, now, 1 << (top - 1).bit_length())
            for job, top in zip(jobs, tops, strict=True)
        ]
        speedups = np.zeros((len(jobs), *tables[0].shape[:2], max(tops) + 1))
        for row, (table, own) in enumerate(zip(tables, fair, strict=True)):
            size = min(table.shape[2], speedups.shape[3])
            speedups[row, :, :, :size] = table[:, :, :size] / table[:, CLOSE, : own + 1].max()
        return speedups
