"""Elastic training for real, in processes: ranks come and go; samples and losses are as without."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from dally.jobs.job import CHECKPOINTED
from tests.workloads.ranks import finish, preloaded, run, started
from tests.workloads.test_train import codes, files, log_of, wait_while_it_runs
from workloads.elastic.batch_rules import Tuning
from workloads.elastic.folder import RendezvousFolder

TRAIN = "workloads.train"
BASE = ("--backend", "gloo", "--pace", "0.02", "--global-batch", "8")


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with preloaded(tmp_path_factory.mktemp("preloaded") / "here", "tests.workloads.elastic.member"):
        yield


@pytest.fixture(autouse=True)
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATES", str(tmp_path))


def steps(folder: Path) -> list[dict[str, float]]:
    return [line for line in log_of(folder) if "step" in line]


def reaches(folder: Path, ranks: int) -> Callable[[], bool]:
    """Whether the newest step was done by so many ranks."""
    return lambda: bool(steps(folder)) and steps(folder)[-1]["ranks"] == ranks


def states(folder: Path) -> dict[int, list[str]]:
    """Digests of all ranks' states after each change, by number of ranks."""
    seen: dict[int, list[str]] = {}
    for file in folder.glob("states.*"):
        for line in map(json.loads, file.read_text().splitlines()):
            seen.setdefault(line["ranks"], []).append(line["state"])
    return seen


def job(folder: Path, model: str, count: int, *options: str) -> Sequence[str]:
    meet = ("--elastic", str(folder / "ranks"))
    return model, *BASE, "--steps", str(count), *meet, *options, *files(folder)


@pytest.mark.parametrize("model", ["tiny", "digits"])
def test_a_job_grows_and_shrinks_with_the_samples_and_losses_of_one_that_does_not(
    tmp_path: Path, model: str
) -> None:
    folders = [tmp_path / name for name in ("fixed", "elastic")]
    for folder in folders:
        folder.mkdir()
    fixed, elastic = folders
    command = job(elastic, model, 3000)
    with started(1, TRAIN, *command) as first, started(2, TRAIN, *command, "--join") as crew:
        alive: list[subprocess.Popen[str]] = [*first, *crew]
        wait_while_it_runs(reaches(elastic, 3), alive)
        crew[0].send_signal(signal.SIGTERM)
        wait_while_it_runs(reaches(elastic, 2), [*first, crew[1]])
        crew[1].send_signal(signal.SIGUSR1)
        wait_while_it_runs(reaches(elastic, 1), list(first))
        first[0].send_signal(signal.SIGUSR1)
        ended = [*finish(first), *finish(crew)]
    assert codes(ended) == [CHECKPOINTED, 0, CHECKPOINTED], ended
    log = steps(elastic)
    assert [line["step"] for line in log] == list(range(1, len(log) + 1))
    assert [line["samples"] for line in log] == [8 * line["step"] for line in log]
    for ranks, digests in states(tmp_path).items():
        assert len(digests) == (2 if ranks == 1 else ranks), "each rank once; one rank at both ends"
        assert len(set(digests)) == (2 if ranks == 1 else 1)
    if model == "tiny":  # batch norms normalise over a rank's own share
        assert codes(run(1, TRAIN, model, *BASE, "--steps", str(len(log)), *files(fixed))) == [0]
        assert [line["loss"] for line in log] == pytest.approx(
            [line["loss"] for line in log_of(fixed)], rel=1e-4
        )


def test_linear_grows_the_batch_and_the_first_rank_may_leave(tmp_path: Path) -> None:
    command = job(tmp_path, "tiny", 100_000, "--batch-rule", "linear", "--max-batch", "16", "--lr-ramp", "5")
    with started(2, TRAIN, *command) as first, started(1, TRAIN, *command, "--join") as late:
        wait_while_it_runs(reaches(tmp_path, 3), [*first, *late])
        members = list(json.loads((tmp_path / "ranks" / "present").read_text())["members"])
        RendezvousFolder(tmp_path / "ranks").ask(out=members[:1])
        wait_while_it_runs(lambda: first[0].poll() is not None, [first[1], *late])
        wait_while_it_runs(reaches(tmp_path, 2), [first[1], *late])
        first[1].send_signal(signal.SIGUSR1)
        ended = [*finish(first), *finish(late)]
    assert codes(ended) == [0, CHECKPOINTED, 0], ended
    log = steps(tmp_path)
    assert [line["step"] for line in log] == list(range(1, len(log) + 1))
    taken = {(after["ranks"], after["samples"] - before["samples"]) for before, after in pairwise(log)}
    assert taken == {(2, 16), (3, 15)}


def test_goodput_goes_on_with_the_batch_that_is_worth_most_by_what_was_measured(tmp_path: Path) -> None:
    """Steps last as long with any batch, as two sizes have shown, and noise is large."""
    command = job(tmp_path, "digits", 100_000, "--batch-rule", "goodput", "--max-batch", "24")
    for ranks in (1, 2):
        with started(ranks, TRAIN, *command) as processes:
            wait_while_it_runs(reaches(tmp_path, ranks), processes)
            processes[0].send_signal(signal.SIGUSR1)
            assert codes(finish(processes)) == [CHECKPOINTED] * ranks
        (checkpoint,) = tmp_path.glob("*.pt")
        saved = torch.load(checkpoint)
        tuning = Tuning()
        for number in (1, 4):
            tuning.note(number, 8, 0.02)
        saved["state"] |= {"noise": [1.0, 400.0], "tuning": tuning.plain()}
        torch.save(saved, checkpoint)
    log = steps(tmp_path)
    assert [line["step"] for line in log] == list(range(1, len(log) + 1))
    taken = {(after["ranks"], after["samples"] - before["samples"]) for before, after in pairwise(log)}
    assert taken == {(1, 8), (2, 24)}
    assert len(set(states(tmp_path)[2])) == 1, "all ranks know of it"


def test_a_rank_that_dies_is_an_error_of_all(tmp_path: Path) -> None:
    command = job(tmp_path, "tiny", 100_000)
    with started(1, TRAIN, *command) as first, started(1, TRAIN, *command, "--join") as late:
        wait_while_it_runs(reaches(tmp_path, 2), [*first, *late])
        late[0].kill()
        [ended] = finish(first)
    assert ended.code == 1
    assert ended.error.count("\n") == 1, ended.error
    assert "failed: " in ended.error


def test_a_newcomer_that_dies_before_the_change_is_not_waited_for(tmp_path: Path) -> None:
    command = job(tmp_path, "tiny", 200, "--join-timeout", "2")
    with started(1, TRAIN, *command) as first:
        wait_while_it_runs((tmp_path / "ranks" / "meeting").exists, first)
        RendezvousFolder(tmp_path / "ranks").ask(into=["nobody"])
        [ended] = finish(first)
    assert ended.code == 0, ended
    assert {line["ranks"] for line in log_of(tmp_path)} == {1}
    assert len(steps(tmp_path)) == 200
