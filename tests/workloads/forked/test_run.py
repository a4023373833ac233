"""Forked training for real, in processes: it loses copies without losing work, and stops and goes on."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dally.jobs.job import CHECKPOINTED
from tests.workloads.ranks import finish, preloaded, run, started
from tests.workloads.test_train import codes, files, invoke, log_of, wait_while_it_runs
from workloads.forked.exchange import code_file

TRAIN = "workloads.train"
JOB = ("digits", "--global-batch", "8", "--backend", "gloo")
FORKED = (*JOB, "--forked")
STEPS = 400


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with preloaded(tmp_path_factory.mktemp("preloaded") / "here"):
        yield


def steps_of(folder: Path) -> list[dict[str, int]]:
    """Steps of each copy in each slot."""
    return [line["copies"] for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines())]


def checkpoint(folder: Path) -> dict[str, object]:
    loaded = torch.load(folder / "job.pt", weights_only=True)
    assert isinstance(loaded, dict)
    return loaded


def test_one_copy_alone_trains_to_the_bit_as_a_job_that_is_not_forked(tmp_path: Path) -> None:
    states = []
    for name, options in (("plain", JOB), ("forked", (*FORKED, "--slot", "0.1"))):
        (tmp_path / name).mkdir()
        code, output = invoke(*options, "--steps", "12", "--pace", "0.02", *files(tmp_path / name))
        assert code == 0, output
        loaded = torch.load(tmp_path / name / "job.pt", weights_only=True)
        assert (loaded["step"], loaded["samples"]) == (12, 96)
        states.append(loaded["state"])
    plain, forked = states
    assert len(log_of(tmp_path / "forked")) > 1, "it was averaged on the way"
    assert forked["slot"]["trained"] == ((0, 12),)
    for name, tensor in plain["model"].items():
        assert torch.equal(forked["model"][name], tensor), name
    for number, moments in plain["optimizer"]["state"].items():
        assert torch.equal(
            forked["optimizer"]["state"][number]["momentum_buffer"], moments["momentum_buffer"]
        )


def test_a_copy_that_is_killed_is_left_out_and_all_steps_are_done(tmp_path: Path) -> None:
    job = (*FORKED, "--steps", str(STEPS), "--slot", "0.8", *files(tmp_path))
    with started(3, TRAIN, *job, "--pace", "0.01,0.01,0.02") as processes:
        wait_while_it_runs(lambda: len(log_of(tmp_path)) >= 1, processes)
        processes[0].kill()  # the one that meets others' connections, opens slots and publishes them
        ended = finish(processes)
    assert codes(ended) == [-signal.SIGKILL, 0, 0], ended
    assert code_file(tmp_path / "job.pt").read_text() == "0\n"
    state = checkpoint(tmp_path)["state"]
    assert isinstance(state, dict)
    assert state["slot"]["trained"] == ((0, STEPS),)
    told = ended[1].output + ended[2].output
    assert "without copy 0, of which no result came" in told
    slots = steps_of(tmp_path)
    assert "0" in slots[0]
    assert "0" not in slots[-1]
    assert sum(sum(slot.values()) for slot in slots) == STEPS
    assert log_of(tmp_path)[-1]["step"] == STEPS
    assert sorted(path.name for path in tmp_path.iterdir())[-3:] == ["job.pt", "job.pt.code", "log.jsonl"]


def test_a_signal_to_one_copy_stops_all_and_other_numbers_of_copies_go_on(tmp_path: Path) -> None:
    job = (*FORKED, "--steps", str(STEPS), "--slot", "0.5", *files(tmp_path))
    with started(2, TRAIN, *job, "--pace", "0.02") as processes:
        wait_while_it_runs(lambda: len(log_of(tmp_path)) >= 1, processes)
        processes[1].send_signal(signal.SIGUSR1)
        ended = finish(processes)
    assert codes(ended) == [CHECKPOINTED, CHECKPOINTED], ended
    assert code_file(tmp_path / "job.pt").read_text() == f"{CHECKPOINTED}\n"
    done = checkpoint(tmp_path)["step"]
    assert done == log_of(tmp_path)[-1]["step"]
    assert isinstance(done, int)
    assert 0 < done < STEPS
    code, output = invoke(*job)
    assert code == 0, output
    assert f"goes on after step {done}; {STEPS} steps, 1 copy of 1 rank, gloo" in output
    state = checkpoint(tmp_path)["state"]
    assert isinstance(state, dict)
    assert state["slot"]["trained"] == ((0, STEPS),)
    assert sum(sum(slot.values()) for slot in steps_of(tmp_path)) == STEPS


def test_a_copy_may_have_several_ranks_and_emulated_ones_are_forked_too(tmp_path: Path) -> None:
    emulated = ("--emulate", "1,1,0.5,0.5", "--ranks-per-copy", "2", "--slot", "1")
    ended = run(4, TRAIN, *FORKED, "--steps", "200", *emulated, *files(tmp_path))
    assert codes(ended) == [0, 0, 0, 0], ended
    assert "begins; 200 steps, 2 copies of 2 ranks, gloo" in ended[0].output
    assert not any(rank.output for rank in (ended[1], ended[3]))
    assert log_of(tmp_path)[0]["ranks"] == 4
    assert sum(sum(slot.values()) for slot in steps_of(tmp_path)) == 200


def test_the_last_slot_stays_until_all_ranks_of_the_copy_have_read_it(tmp_path: Path) -> None:
    job = (*FORKED, "--steps", "3", "--ranks-per-copy", "2", *files(tmp_path))
    ended = run(2, "tests.workloads.forked.late_reader", *job)
    assert codes(ended) == [0, 0], ended
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.pt", "job.pt.code", "log.jsonl"]


def test_a_job_that_is_done_stays_done(tmp_path: Path) -> None:
    job = (*FORKED, "--steps", "3", *files(tmp_path))
    assert invoke(*job)[0] == 0
    before = (tmp_path / "job.pt").read_bytes()
    assert invoke(*job) == (0, "digits: goes on after step 3; 3 steps, 1 copy of 1 rank, gloo\n")
    assert (tmp_path / "job.pt").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.pt", "job.pt.code", "log.jsonl"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slot", "0"), "slot_s is 0, must be positive and at most 1200"),
        (("--shares", "1"), "copies share no batch: leave shares out"),
        (("--checkpoint-every", "5"), "copies write the checkpoint once in a slot"),
        (("--ranks-per-copy", "2"), "ranks are 1, must be copies of 2 each"),
        (("--pace", "1,1"), "pace_s are 2 and ranks 1, must be one for all or one for each"),
    ],
)
def test_options_that_do_not_fit_are_one_line(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    code, output = invoke(*FORKED, "--steps", "3", *files(tmp_path), *options)
    assert (code, output.count("\n")) == (1, 1)
    assert message in output


def test_copies_need_a_checkpoint_to_meet_at() -> None:
    assert invoke(*FORKED, "--steps", "3") == (
        1,
        "dally-train: copies meet in files beside the checkpoint: name one\n",
    )


def test_a_plain_jobs_checkpoint_is_not_taken_for_a_forked_ones(tmp_path: Path) -> None:
    assert invoke(*JOB, "--steps", "2", *files(tmp_path))[0] == 0
    code, output = invoke(*FORKED, "--steps", "3", *files(tmp_path))
    assert code == 1
    assert "is of a job with copies False, and this one has True" in output
