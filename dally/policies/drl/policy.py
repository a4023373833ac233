"""DRL: GPUs one by one to the job that a small network trained in the simulator names, as DL2 does it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from math import log, log1p

import numpy as np

from dally.policies.common.arrays import Floats, Ints
from dally.policies.common.gpu_pool import Pool
from dally.policies.common.in_sizes import InSizes, remaining_s
from dally.policies.common.knobs import knob
from dally.policies.common.sizing import SizeTarget
from dally.profiles.goodput import Batching
from dally.state import ClusterState, JobState
from dally.words import plural

FEATURES = 9
"""Numbers that the network sees of a job, or of the GPUs that are left (see `Allotment`)."""

FASTER = 1e-4
"""By what part a size must be faster than a smaller one to count as a step up."""

WEIGHTS = "drl.json"
"""Beside this module, made by `python -m analysis.studies.drl_training`."""


@dataclass(frozen=True, slots=True)
class DrlKnobs:
    """Settings of `drl`."""

    interval_s: float = knob(10.0, "how often all jobs are sized anew, s", above=0)


@dataclass(frozen=True, slots=True)
class PolicyNetwork:
    """Layers that each end in tanh, but for the last: one number for each row, the same net for all rows.

    Attributes:
        layers: Weights (inputs, outputs) and biases (outputs,) of each, in order.
    """

    layers: Sequence[tuple[Floats, Floats]]

    @classmethod
    def drawn(cls, sizes: Sequence[int], rng: np.random.Generator) -> "PolicyNetwork":
        """One that has learnt nothing, with so many numbers from layer to layer."""
        return cls(
            [
                (rng.normal(size=(before, after)) / np.sqrt(before), np.zeros(after))
                for before, after in pairwise(sizes)
            ]
        )

    @classmethod
    def loaded(cls, text: str) -> "PolicyNetwork":
        """One from JSON: pairs of weights and biases."""
        return cls([(np.array(weights), np.array(biases)) for weights, biases in json.loads(text)])

    def dumped(self) -> str:
        """The JSON that `loaded` takes, rounded to single precision or so."""
        return json.dumps(
            [[_rounded(weights), _rounded(biases)] for weights, biases in self.layers], separators=(",", ":")
        )

    def scores(self, rows: Floats) -> Floats:
        """(rows,) what it thinks of each row (rows, FEATURES): the log of a probability, less a constant."""
        for weights, biases in self.layers[:-1]:
            rows = np.tanh(rows @ weights + biases)
        weights, biases = self.layers[-1]
        return np.asarray((rows @ weights + biases)[:, 0])


def _rounded(array: Floats) -> object:
    return np.vectorize(lambda each: float(f"{each:.5g}"), otypes=[float])(array).tolist()


@cache
def trained() -> PolicyNetwork:
    """The network of the package."""
    return PolicyNetwork.loaded((resources.files("dally.policies.drl") / WEIGHTS).read_text(encoding="utf-8"))


class Allotment:
    """The sizes of one round in the making: each job has its least size, then one of them gets a step more.

    A step goes to the next size at which the job is faster than on all smaller ones. A choice is a row of
    `rows`: a job's step, or the end of the round. The network sees of it: whether it is the end; the part of
    all GPUs that the job has, or that are left; log of the jobs over all GPUs. Of a job, too:
    log2 of its GPUs; log2 of its speed there over that on its least size; log2 of its speed after the step
    over that before; log of the part of its time that each GPU of the step saves; log of its seconds left
    without the step; log of 1 + its age in seconds.

    Args:
        jobs: The jobs that share the GPUs; their least sizes fit.
        speeds: Of each, on 0, 1, ... GPUs.
        pool: The GPUs.
        now: The moment, seconds.

    Attributes:
        rows: (rows, FEATURES) all steps of one job after the other, then the ends by the GPUs that are left.
    """

    def __init__(self, jobs: Sequence[JobState], speeds: Sequence[Floats], pool: Pool, now: float) -> None:
        # Sizes at which each job is faster than on all smaller ones, ascending.
        self._ladders: list[Ints] = []
        for row in speeds:
            best = np.maximum.accumulate(row[: pool.total + 1])
            faster = row[1 : pool.total + 1] > best[:-1] * (1 + FASTER)
            self._ladders.append(np.flatnonzero(faster) + 1)
        steps = [
            _steps(job, row[ladder], ladder, now)
            for job, row, ladder in zip(jobs, speeds, self._ladders, strict=True)
        ]
        ends = np.zeros((pool.total + 1, FEATURES))
        ends[:, 0], ends[:, 1] = 1.0, np.arange(pool.total + 1)
        self.rows = np.concatenate((*steps, ends))
        self.rows[:, 1] /= pool.total
        self.rows[:, 2] = log(len(jobs) / pool.total)
        self._first = np.cumsum([0, *map(len, steps)])
        self._at = self._first[:-1].copy()
        self._more = [[*np.diff(ladder).tolist(), pool.total + 1] for ladder in self._ladders]
        self._need = np.array([more[0] for more in self._more])
        types = [None, *pool.of_type]
        self._types = np.array([types.index(job.job.gpu_type) for job in jobs])
        self._left = np.array([pool.total, *pool.of_type.values()])
        for place, ladder in enumerate(self._ladders):
            self._take(place, int(ladder[0]))

    @property
    def sizes(self) -> list[int]:
        """GPUs of each job."""
        steps = (self._at - self._first[:-1]).tolist()
        return [int(ladder[step]) for ladder, step in zip(self._ladders, steps, strict=True)]

    def choices(self) -> Ints:
        """Rows of the steps for which there are GPUs, in the order of the jobs; the last is the end."""
        room = np.minimum(self._left[0], self._left[self._types])
        return np.append(self._at[self._need <= room], self._first[-1] + self._left[0])

    def owner(self, row: int) -> int:
        """The place of the job that a row is a step of; the number of jobs if it is the end."""
        return int(np.searchsorted(self._first, row, side="right")) - 1

    def size_after(self, row: int) -> int:
        """How many GPUs a job has after its next step, which this row is."""
        place = self.owner(row)
        return int(self._ladders[place][self._at[place] - self._first[place] + 1])

    def take(self, row: int) -> bool:
        """Give a job its step; False if the row is the end."""
        if row >= self._first[-1]:
            return False
        place = self.owner(row)
        self._take(place, int(self._need[place]))
        self._at[place] += 1
        self._need[place] = self._more[place][self._at[place] - self._first[place]]
        return True

    def _take(self, place: int, gpus: int) -> None:
        self._left[0] -= gpus
        if self._types[place]:
            self._left[self._types[place]] -= gpus


def _steps(job: JobState, speeds: Floats, sizes: Ints, now: float) -> Floats:
    """(sizes - 1, FEATURES) what the network sees of a job's steps, all but what it sees of the others."""
    rows = np.zeros((len(sizes) - 1, FEATURES))
    rows[:, 1] = sizes[:-1]
    rows[:, 3] = np.log2(sizes[:-1])
    rows[:, 4] = np.log2(speeds[:-1] / speeds[0])
    rows[:, 5] = np.log2(speeds[1:] / speeds[:-1])
    rows[:, 6] = np.log((1 - speeds[:-1] / speeds[1:]) / np.diff(sizes))
    rows[:, 7] = np.log(remaining_s(job, now) / speeds[:-1])
    rows[:, 8] = log1p(max(0.0, now - job.job.submit_s))
    return rows


class Drl(InSizes):
    """Sizes the jobs at each interval by a network that was trained in the simulator.

    Each job gets its least size, then the network says which gets a step more, or that it is enough, until no
    GPUs are left. Running jobs are not stopped; waiting jobs are admitted by arrival while their least sizes
    fit. The batch stays.
    """

    name = "drl"
    summary = "GPUs one by one to the job that a network trained in the simulator names."
    source = (
        "Peng et al., DL2: a deep learning-driven scheduler for deep learning clusters, TPDS 2021; as a "
        "stand-in for the DRL that Bian et al., ONES, SC 2021, compare with"
    )
    knobs_type = DrlKnobs
    batching = Batching.FIXED
    plans_by = "samples left, and speeds on each number of GPUs"
    eager = False
    in_turn = True

    def __init__(self, knobs: DrlKnobs, state: ClusterState, net: PolicyNetwork | None = None) -> None:
        super().__init__(knobs, state)
        self.net = net or trained()

    def allocate(self, jobs: Sequence[JobState], pool: Pool, now: float) -> Mapping[str, SizeTarget]:
        """Sizes by one choice of the network after the other."""
        allotment = Allotment(jobs, [self.speeds.row(job, now) for job in jobs], pool, now)
        scores = self.net.scores(allotment.rows)
        while (choices := allotment.choices()).size > 1:
            if not allotment.take(self.choose(allotment, choices, scores)):
                break
        among = f"{plural(len(jobs), 'job')} on {plural(pool.total, 'GPU')}"
        why = f"the network's choice, among {among}"
        return {job.job_id: SizeTarget(size, why) for job, size in zip(jobs, allotment.sizes, strict=True)}

    def choose(self, allotment: Allotment, choices: Ints, scores: Floats) -> int:
        """The choice that the network prefers, a row of the allotment; the first on ties.

        Args:
            allotment: As it is.
            choices: Rows.
            scores: Of all rows.
        """
        return int(choices[np.argmax(scores[choices])])
