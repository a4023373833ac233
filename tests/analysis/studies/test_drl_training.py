"""The training of `drl`: its gradient, its teacher, what choices are worth, and that a little of it helps."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from click.testing import CliRunner

from analysis.studies import drl_training
from analysis.studies.drl_training import (
    HORIZON_S,
    WIDTHS,
    Adam,
    ChoiceBatch,
    ExploringPolicy,
    ImitatingPolicy,
    ObservedRound,
    burden_s,
    gradient,
    imitate,
    learn,
    main,
    new_state,
    simulate,
    workload,
)
from dally.jobs.job import Job
from dally.policies.drl.policy import FEATURES, PolicyNetwork
from dally.policies.optimus import Optimus

RNG = np.random.default_rng


def drawn(seed: int = 0) -> PolicyNetwork:
    return PolicyNetwork.drawn(WIDTHS, RNG(seed))


def some_rounds() -> list[ObservedRound]:
    """Two moments with two choices and one."""
    rows = RNG(3).normal(size=(9, FEATURES))
    first = ObservedRound(0.0, rows[:5], [np.array([0, 2, 4]), np.array([1, 4])], [1, 0])
    return [first, ObservedRound(10.0, rows[5:], [np.array([0, 1, 2, 3])], [3])]


def test_the_gradient_is_that_of_the_loss() -> None:
    batch = ChoiceBatch.of(some_rounds(), np.array([0.7, -1.3]))
    net = drawn()
    _, found = gradient(net, batch, 0.5)
    for layer, at in ((0, (2, 5)), (1, (7, 3)), (2, (4, 0))):
        losses = []
        for change in (1e-5, -1e-5):
            layers = [(weights.copy(), biases) for weights, biases in net.layers]
            layers[layer][0][at] += change
            losses.append(gradient(PolicyNetwork(layers), batch, 0.5)[0])
        assert found[layer][0][at] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-3, abs=1e-8)


def test_the_loss_is_that_of_the_choices() -> None:
    """By hand: of two and of one moment, each choice by the weight of its moment."""
    rounds, net = some_rounds(), drawn()
    expected = []
    for each, weight in zip(rounds, (0.7, -1.3), strict=True):
        for choices, taken in zip(each.choices, each.taken, strict=True):
            chances = np.exp(net.scores(each.rows[choices]))
            expected.append(-weight * np.log(chances[taken] / chances.sum()))
    assert gradient(net, ChoiceBatch.of(rounds, np.array([0.7, -1.3])), 1.0)[0] == pytest.approx(
        np.mean(expected)
    )


def test_steps_lessen_the_loss_and_the_net_is_for_inputs_as_they_are() -> None:
    batch, net = ChoiceBatch.of(some_rounds(), np.ones(2)), drawn()
    adam = Adam(net, 1e-2, batch.rows)
    assert adam.net.scores(batch.rows) == pytest.approx(net.scores(batch.rows))
    losses = [adam.step(batch) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    assert gradient(adam.net, batch, 1.0)[0] < losses[-1]


def test_who_imitates_gives_what_optimus_gives() -> None:
    class Compared(ImitatingPolicy):
        """Notes what both say."""

        def allocate(self, jobs, pool, now):  # type: ignore[no-untyped-def]
            found = super().allocate(jobs, pool, now)
            taught = Optimus.allocate(self._teacher, jobs, pool, now)
            pairs.extend((found[name].gpus, taught[name].gpus) for name in taught)
            return found

    pairs: list[tuple[int, int]] = []
    policy = Compared(state := new_state())
    simulate(policy, state, workload(41, 10))
    assert len(pairs) > 50
    assert max(taught for _, taught in pairs) > 8
    assert np.mean([ours == taught for ours, taught in pairs]) > 0.9
    assert all(ours <= taught for ours, taught in pairs)


def test_what_follows_counts_by_when() -> None:
    """One job that waits and runs from 100 s to 400 s: the area under it, less the later it is."""
    policy = ExploringPolicy(state := new_state(), drawn(), RNG(0))
    [record] = simulate(policy, state, workload(42, 1))
    assert record.end_s is not None
    times = np.array([record.submit_s, record.end_s, record.end_s + 5])
    span_s = record.end_s - record.submit_s
    assert burden_s([record], times) == pytest.approx([HORIZON_S * (1 - np.exp(-span_s / HORIZON_S)), 0, 0])


def test_runs_differ_by_their_draws_and_repeat_by_seed() -> None:
    ends = []
    for seed in (0, 0, 1):
        policy = ExploringPolicy(state := new_state(), drawn(), RNG(seed))
        ends.append([record.end_s for record in simulate(policy, state, workload(43, 6))])
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


def test_after_a_little_imitation_it_chooses_as_optimus_on_other_jobs_too() -> None:
    net = imitate(drawn(), [workload(44, 20)], 2)
    policy = ImitatingPolicy(state := new_state())
    simulate(policy, state, workload(45, 20))
    batch = ChoiceBatch.of(policy.rounds, np.ones(len(policy.rounds)))
    assert gradient(net, batch, 1.0)[0] < 0.8 * gradient(drawn(), batch, 1.0)[0]


def test_learning_makes_good_choices_likelier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same few jobs again and again, by a network that at first hands out hardly anything."""
    jobs = workload(47, 4)
    monkeypatch.setattr(drl_training, "workload", lambda seed: jobs)
    first = drawn(1)
    *_, last = learn(first, 5)
    assert drawn_jct_s(last, jobs) < 0.9 * drawn_jct_s(first, jobs)


def drawn_jct_s(net: PolicyNetwork, jobs: Sequence[Job]) -> float:
    """Mean completion time in a run whose choices are drawn, seconds."""
    policy = ExploringPolicy(state := new_state(), net, RNG(5))
    return fmean(record.jct_s for record in simulate(policy, state, jobs))


def test_the_command_writes_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drl_training, "train", lambda passes, rounds: drawn(passes + rounds))
    result = CliRunner().invoke(
        main, ["--passes", "1", "--rounds", "0", "--write", str(tmp_path / "net.json")]
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "net.json").read_text() == drawn(1).dumped()
    result = CliRunner().invoke(main, ["--write", str(tmp_path / "none" / "net.json")])
    assert result.exit_code == 1
    assert "Error: cannot write" in result.output
