"""Trains the network of the policy `drl` in the simulator: `python -m analysis.studies.drl_training`.

As in DL2 (Peng et al., TPDS 2021) it first imitates another policy and then learns from what its own choices
lead to. Jobs are those of the artifact of ONES, on seeds of which no table is made. numpy does all of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from math import inf
from pathlib import Path
from statistics import fmean

import click
import numpy as np

from analysis.studies.common import StudyCommand
from analysis.studies.elastic_jobs import CLUSTER, GPUS, LOAD, artifact_profiles, draw_artifact_jobs
from dally.cluster.load import load_cluster
from dally.errors import DallyError
from dally.jobs.job import Job
from dally.policies.common.arrays import Floats, Ints
from dally.policies.common.gpu_pool import Pool
from dally.policies.common.sizing import SizeTarget
from dally.policies.drl.policy import FEATURES, WEIGHTS, Allotment, Drl, DrlKnobs, PolicyNetwork
from dally.policies.optimus import Optimus, OptimusKnobs
from dally.profiles.costs import CostModel
from dally.runs.records import JobRecord, NoEvents
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState, JobState
from simulator.engine import Engine

WIDTHS = (FEATURES, 32, 32, 1)
"""Numbers from layer to layer of the network."""

JOBS = 50
"""Jobs of each workload."""
IMITATED, LEARNT, CHECKED = 1000, 2000, 3000
"""First seeds of the workloads to imitate on, to learn from and to pick the best network by."""
REPORTED = (1, 2, 3)
"""Seeds of the tables, on which it only says how good a network is: nothing is chosen by that."""
IMITATIONS, CHECKS, EVERY = 8, 6, 5
"""Workloads to imitate on, and to pick by after so many rounds of learning."""
ROUNDS_A_STEP = 16
"""Moments that make a step of imitation."""
SHIPPED = Path("dally/policies/drl") / WEIGHTS

TEMPERATURE = 0.5
"""Scores are divided by it where choices are drawn."""
HORIZON_S = 300.0
"""After so much time what a choice leads to counts 1/e."""
WORKLOADS, RUNS = 2, 4
"""Workloads of each round of learning, and runs of each; a run is compared with the mean of the others."""
STEPS = 6
"""Steps of the optimiser in each round of learning."""


@dataclass(slots=True)
class ObservedRound:
    """What the network saw at one moment and what was chosen, step by step.

    Attributes:
        now: The moment, seconds.
        rows: (rows, FEATURES) of the allotment.
        choices: Rows between which each step chose.
        taken: Which of them each took.
    """

    now: float
    rows: Floats
    choices: list[Ints] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)


class RecordingPolicy(Drl):
    """The policy `drl` that keeps its choices, by the moments at which it made them.

    Attributes:
        rounds: In order of time.
    """

    def __init__(self, state: ClusterState, net: PolicyNetwork) -> None:
        super().__init__(DrlKnobs(), state, net)
        self.rounds: list[ObservedRound] = []
        self._now = 0.0

    def allocate(self, jobs: Sequence[JobState], pool: Pool, now: float) -> Mapping[str, SizeTarget]:
        """Keep the moment, for `record`."""
        self._now = now
        return super().allocate(jobs, pool, now)

    def record(self, allotment: Allotment, choices: Ints, taken: int) -> int:
        """Keep that one of the choices was taken; which row that is."""
        if not self.rounds or self.rounds[-1].rows is not allotment.rows:
            self.rounds.append(ObservedRound(self._now, allotment.rows))
        self.rounds[-1].choices.append(choices)
        self.rounds[-1].taken.append(taken)
        return int(choices[taken])


class ImitatingPolicy(RecordingPolicy):
    """Chooses so that all jobs get what Optimus gives them: next is the job with the least part of that."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state, PolicyNetwork.drawn(WIDTHS, np.random.default_rng(0)))
        self._teacher = Optimus(OptimusKnobs(), state)
        self._goals: list[int] = []

    def allocate(self, jobs: Sequence[JobState], pool: Pool, now: float) -> Mapping[str, SizeTarget]:
        """The sizes that Optimus gives, as far as steps of `drl` lead there."""
        wanted = self._teacher.allocate(jobs, pool, now)
        self._goals = [wanted[job.job_id].gpus for job in jobs]
        return super().allocate(jobs, pool, now)

    def choose(self, allotment: Allotment, choices: Ints, scores: Floats) -> int:
        """The job that is furthest from its goal; no job if all have reached theirs."""
        sizes, parts = allotment.sizes, [inf] * len(choices)
        for number, row in enumerate(choices[:-1].tolist()):
            place = allotment.owner(row)
            if allotment.size_after(row) <= self._goals[place]:
                parts[number] = sizes[place] / self._goals[place]
        best = int(np.argmin(parts))
        return self.record(allotment, choices, best if parts[best] < inf else len(choices) - 1)


class ExploringPolicy(RecordingPolicy):
    """Draws its choices with the probabilities that the network gives them."""

    def __init__(self, state: ClusterState, net: PolicyNetwork, rng: np.random.Generator) -> None:
        super().__init__(state, net)
        self._rng = rng

    def choose(self, allotment: Allotment, choices: Ints, scores: Floats) -> int:
        """A draw from their softmax, as the greatest of scores with Gumbel noise."""
        noise = self._rng.gumbel(size=len(choices))
        return self.record(allotment, choices, int(np.argmax(scores[choices] / TEMPERATURE + noise)))


@dataclass(frozen=True, slots=True)
class ChoiceBatch:
    """Choices of many rounds, flat.

    Attributes:
        rows: (rows, FEATURES) what the network saw of all that could be chosen, each once.
        at: (chances,) rows, the chances of one choice after those of the other.
        starts: (choices,) where the chances of each begin.
        taken: (choices,) which of all chances was taken.
        weights: (choices,) of each in the loss.
    """

    rows: Floats
    at: Ints
    starts: Ints
    taken: Ints
    weights: Floats

    @classmethod
    def of(cls, rounds: Sequence[ObservedRound], weights: Floats) -> "ChoiceBatch":
        """The choices of some rounds, each with its weight (rounds,)."""
        offsets = np.cumsum([0, *(len(each.rows) for each in rounds)])
        every = [row + offset for each, offset in zip(rounds, offsets, strict=False) for row in each.choices]
        used, at = np.unique(np.concatenate(every), return_inverse=True)
        chances = [len(row) for each in rounds for row in each.choices]
        starts = np.cumsum([0, *chances[:-1]])
        return cls(
            np.concatenate([each.rows for each in rounds])[used],
            at,
            starts,
            starts + np.array([taken for each in rounds for taken in each.taken]),
            np.repeat(weights, [len(each.taken) for each in rounds]),
        )


def gradient(
    net: PolicyNetwork, batch: ChoiceBatch, temperature: float
) -> tuple[float, list[tuple[Floats, Floats]]]:
    """Mean over choices of weight * -log of the probability of what was taken, and its gradient by layer."""
    seen = [batch.rows]
    for weights, biases in net.layers[:-1]:
        seen.append(np.tanh(seen[-1] @ weights + biases))
    weights, biases = net.layers[-1]
    scores = (seen[-1] @ weights + biases)[batch.at, 0] / temperature
    chances = np.diff(np.append(batch.starts, len(scores)))
    parts = np.exp(scores - np.repeat(np.maximum.reduceat(scores, batch.starts), chances))
    parts /= np.repeat(np.add.reduceat(parts, batch.starts), chances)
    loss = float((-np.log(np.maximum(parts[batch.taken], 1e-12)) * batch.weights).mean())
    parts[batch.taken] -= 1
    parts *= np.repeat(batch.weights, chances) / (len(chances) * temperature)
    back: Floats = np.bincount(batch.at, parts, len(batch.rows)).astype(np.float64)[:, None]
    found = []
    for inputs, (weights, _) in zip(reversed(seen), reversed(net.layers), strict=True):
        found.append((inputs.T @ back, back.sum(axis=0)))
        back = (back @ weights.T) * (1 - inputs**2)
    return loss, found[::-1]


class Adam:
    """Kingma and Ba, ICLR 2015, with its usual constants, on inputs that are brought to mean 0, deviation 1.

    Args:
        net: That learns, for inputs as they are.
        rate: Size of a step.
        rows: (rows, FEATURES) inputs like those to come.

    Attributes:
        net: What it has become.
    """

    def __init__(self, net: PolicyNetwork, rate: float, rows: Floats) -> None:
        self._mean, self._deviation = rows.mean(axis=0), rows.std(axis=0) + 1e-6
        weights, biases = net.layers[0]
        first = weights * self._deviation[:, None], biases + self._mean @ weights
        self._parts = [part for layer in (first, *net.layers[1:]) for part in layer]
        self._means = [np.zeros_like(part) for part in self._parts]
        self._squares = [np.zeros_like(part) for part in self._parts]
        self._rate, self._steps = rate, 0

    @property
    def net(self) -> PolicyNetwork:
        """For inputs as they are."""
        (weights, biases), *rest = self._layers()
        weights = weights / self._deviation[:, None]
        return PolicyNetwork([(weights, biases - self._mean @ weights), *rest])

    def step(self, batch: ChoiceBatch, temperature: float = 1.0) -> float:
        """A step down the gradient; the loss before."""
        scaled = replace(batch, rows=(batch.rows - self._mean) / self._deviation)
        loss, found = gradient(PolicyNetwork(self._layers()), scaled, temperature)
        self._steps += 1
        for number, part in enumerate(chain.from_iterable(found)):
            self._means[number] += 0.1 * (part - self._means[number])
            self._squares[number] += 0.001 * (part**2 - self._squares[number])
            mean = self._means[number] / (1 - 0.9**self._steps)
            square = self._squares[number] / (1 - 0.999**self._steps)
            self._parts[number] = self._parts[number] - self._rate * mean / (np.sqrt(square) + 1e-8)
        return loss

    def _layers(self) -> list[tuple[Floats, Floats]]:
        return list(zip(self._parts[::2], self._parts[1::2], strict=True))


@cache
def _costs() -> CostModel:
    """One for all runs, as it remembers what it predicted."""
    return CostModel(load_cluster(CLUSTER), artifact_profiles(), batching=Drl.batching)


def workload(seed: int, jobs: int = JOBS) -> tuple[Job, ...]:
    """Jobs as in the artifact of ONES."""
    return draw_artifact_jobs(jobs, GPUS, LOAD, seed, artifact_profiles())


def new_state() -> ClusterState:
    """The cluster of the artifact, in which nothing has happened."""
    return ClusterState(_costs().topology, _costs())


def simulate(policy: Drl, state: ClusterState, jobs: Sequence[Job]) -> list[JobRecord]:
    """Run a policy over a new state.

    Raises:
        DallyError: Not all jobs ended.
    """
    ended = Engine(Scheduler(state, policy), jobs, NoEvents()).run()
    if not ended.complete:
        raise DallyError(f"{policy.name}: {ended.note}")
    return ended.records


def mean_jct_s(net: PolicyNetwork, workloads: Iterable[Sequence[Job]]) -> float:
    """Mean completion time of the jobs of some workloads under a network, seconds."""
    states = ((new_state(), jobs) for jobs in workloads)
    found = [simulate(Drl(DrlKnobs(), state, net), state, jobs) for state, jobs in states]
    return fmean(record.jct_s for records in found for record in records)


def imitate(net: PolicyNetwork, workloads: Iterable[Sequence[Job]], passes: int) -> PolicyNetwork:
    """The network after it has learnt to choose as Optimus would on these workloads."""
    rng, rounds = np.random.default_rng(0), list[ObservedRound]()
    for jobs in workloads:
        policy = ImitatingPolicy(state := new_state())
        simulate(policy, state, jobs)
        rounds += policy.rounds
    adam = Adam(net, 3e-3, np.concatenate([each.rows for each in rounds]))
    for _ in range(passes):
        parts = np.array_split(rng.permutation(len(rounds)), -(-len(rounds) // ROUNDS_A_STEP))
        losses = [
            adam.step(ChoiceBatch.of([rounds[row] for row in part], np.ones(len(part)))) for part in parts
        ]
        click.echo(f"imitation: loss {fmean(losses):.3f}", err=True)
    return adam.net


def burden_s(records: Iterable[JobRecord], times: Floats) -> Floats:
    """(times,) job-seconds from each time on, queueing included, that count 1/e after `HORIZON_S`."""
    spans = np.array([(record.submit_s, record.end_s) for record in records if record.end_s is not None])
    begins, ends = np.maximum(spans[:, :, None] - times, 0.0).swapaxes(0, 1)
    return np.asarray(HORIZON_S * (np.exp(-begins / HORIZON_S) - np.exp(-ends / HORIZON_S)).sum(axis=0))


def learn(net: PolicyNetwork, rounds: int) -> Iterator[PolicyNetwork]:
    """REINFORCE: the network after each round of learning.

    A choice is worth how many job-seconds fewer follow than in the other runs of the same workload, from the
    same time on: what the jobs of a workload cost whatever is chosen is no noise then (Mao et al., Variance
    reduction for reinforcement learning in input-driven environments, ICLR 2019).
    """
    rng, adam = np.random.default_rng(1), None
    for number in range(rounds):
        seeds = range(LEARNT + number * WORKLOADS, LEARNT + (number + 1) * WORKLOADS)
        found = [part for seed in seeds for part in _explored(net, workload(seed), rng)]
        seen, worths = [each for each, _ in found], np.array([worth for _, worth in found])
        adam = adam or Adam(net, 2e-3, np.concatenate([each.rows for each in seen]))
        for part in np.array_split(rng.permutation(len(seen)), STEPS):
            adam.step(ChoiceBatch.of([seen[row] for row in part], worths[part] / worths.std()), TEMPERATURE)
        yield (net := adam.net)


def _explored(
    net: PolicyNetwork, jobs: Sequence[Job], rng: np.random.Generator
) -> Iterator[tuple[ObservedRound, float]]:
    """The rounds of some runs, each with what its choices are worth, seconds."""
    runs = []
    for _ in range(RUNS):
        policy = ExploringPolicy(state := new_state(), net, rng)
        runs.append((policy, simulate(policy, state, jobs)))
    for own, _ in runs:
        times = np.array([each.now for each in own.rounds])
        burdens = {policy: burden_s(records, times) for policy, records in runs}
        others = np.mean([burden for policy, burden in burdens.items() if policy is not own], axis=0)
        yield from zip(own.rounds, (others - burdens[own]).tolist(), strict=True)


def train(passes: int, rounds: int) -> PolicyNetwork:
    """The network that is best on the workloads to check by, of those after each few rounds of learning.

    Args:
        passes: Of imitation over its choices.
        rounds: Of learning.
    """
    checks = [workload(CHECKED + number) for number in range(CHECKS)]
    drawn = PolicyNetwork.drawn(WIDTHS, np.random.default_rng(0))
    _report("drawn at random", drawn)
    best = imitate(drawn, (workload(IMITATED + number) for number in range(IMITATIONS)), passes)
    _report("after imitation", best)
    least_s = mean_jct_s(best, checks)
    for number, net in enumerate(learn(best, rounds), 1):
        if number % EVERY == 0:
            jct_s = mean_jct_s(net, checks)
            click.echo(f"learning: after {number} rounds a mean JCT of {jct_s:.0f} s", err=True)
            best, least_s = (net, jct_s) if jct_s < least_s else (best, least_s)
    _report("after learning", best)
    return best


def _report(what: str, net: PolicyNetwork) -> None:
    jct_s = mean_jct_s(net, map(workload, REPORTED))
    click.echo(f"{what}: a mean JCT of {jct_s:.0f} s on seeds {', '.join(map(str, REPORTED))}")


@click.command(cls=StudyCommand)
@click.option("--passes", type=click.IntRange(1), default=4, show_default=True, help="Of imitation.")
@click.option("--rounds", type=click.IntRange(0), default=60, show_default=True, help="Of learning.")
@click.option("--write", type=click.Path(path_type=Path), default=SHIPPED, show_default=True, help="Weights.")
def main(passes: int, rounds: int, write: Path) -> None:
    """Train the network of `drl` on jobs as in the artifact of ONES; a few minutes."""
    text = train(passes, rounds).dumped()
    try:
        write.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DallyError(f"cannot write {write}: {error}") from error


if __name__ == "__main__":
    main()
