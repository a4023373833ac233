"""The training command for real, in processes: it survives kills, stops at signals, changes its ranks."""

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import distributed

from dally.job import CHECKPOINTED
from tests.workloads.ranks import Ended, finish, run, start
from workloads.group import leave
from workloads.signals import STOP_SIGNALS
from workloads.train import main
from workloads.training import Trainer

BASE = ("mobilenetv3", "--global-batch", "6", "--size", "64", "--backend", "gloo")
EMULATED = ("mobilenetv3", "--global-batch", "7", "--emulate", "1000", "--backend", "gloo", "--steps", "8")
TRAIN = "workloads.train"
_PATIENCE_S = 120.0


def log_of(folder: Path) -> list[dict[str, float]]:
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def losses(log: Sequence[dict[str, float]]) -> dict[float, float]:
    """Step -> loss, as it was last."""
    return {line["step"]: line["loss"] for line in log}


def files(folder: Path) -> tuple[str, ...]:
    return "--checkpoint", str(folder / "job.pt"), "--log-file", str(folder / "log.jsonl")


def wait_for_step(step: int, folder: Path, processes: Sequence[subprocess.Popen[str]]) -> None:
    """Until the log has it; a job that ends before is a failure."""
    until_s = time.monotonic() + _PATIENCE_S
    while not any(line["step"] >= step for line in log_of(folder)):
        assert all(process.poll() is None for process in processes), finish(processes)
        assert time.monotonic() < until_s
        time.sleep(0.01)


def codes(ended: Sequence[Ended]) -> list[int]:
    return [rank.code for rank in ended]


def invoke(*arguments: str) -> tuple[int, str]:
    """Exit code and output of the command in this process, whose signals and torch stay as they were."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        result = CliRunner().invoke(main, arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if distributed.is_initialized():
            leave()
    return result.exit_code, result.output


def test_a_job_killed_at_a_random_step_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    steps = ("--steps", "12", "--checkpoint-every", "3")
    assert codes(run(2, TRAIN, *BASE, *steps, *files(whole))) == [0, 0]
    processes = start(2, TRAIN, *BASE, *steps, *files(killed))
    wait_for_step(random.Random().randint(1, 8), killed, processes)
    processes[1].kill()
    other, _ = finish(processes)
    assert other.code == 1
    assert re.match(r"train: rank 0 of 2 failed: [A-Z].* by peer", other.error), other.error
    assert other.error.count("\n") == 1
    assert codes(run(2, TRAIN, *BASE, *steps, *files(killed))) == [0, 0]
    assert losses(log_of(killed)) == pytest.approx(losses(log_of(whole)), rel=1e-5)
    assert list(losses(log_of(killed))) == list(range(1, 13))


def test_a_signal_to_one_rank_stops_all_at_one_step_and_others_go_on(tmp_path: Path) -> None:
    processes = start(2, TRAIN, *BASE, "--steps", "100000", *files(tmp_path))
    wait_for_step(3, tmp_path, processes)
    processes[1].send_signal(signal.SIGUSR1)
    ended = finish(processes)
    assert codes(ended) == [CHECKPOINTED, CHECKPOINTED], ended
    stopped = int(log_of(tmp_path)[-1]["step"])
    assert f"checkpoint after step {stopped} in" in ended[0].output
    code, output = invoke(*BASE, "--steps", str(stopped + 2), *files(tmp_path))
    assert code == 0
    assert f"goes on after step {stopped}; {stopped + 2} steps, 1 rank, gloo" in output
    log = log_of(tmp_path)
    assert [line["step"] for line in log] == list(range(1, stopped + 3))
    assert [line["ranks"] for line in log] == [2] * stopped + [1] * 2
    assert [line["samples"] for line in log] == [6 * line["step"] for line in log]


def test_every_number_of_ranks_takes_the_same_samples_in_the_same_order(tmp_path: Path) -> None:
    one, three = tmp_path / "one", tmp_path / "three"
    for folder in (one, three):
        folder.mkdir()
    assert invoke(*EMULATED, *files(one))[0] == 0
    assert codes(run(3, TRAIN, *EMULATED, *files(three))) == [0, 0, 0]
    assert losses(log_of(three)) == pytest.approx(losses(log_of(one)))
    assert len(set(losses(log_of(one)).values())) == 8


def test_a_job_that_is_done_stays_done(tmp_path: Path) -> None:
    assert invoke(*EMULATED, *files(tmp_path))[0] == 0
    before = (tmp_path / "job.pt").stat().st_ino
    done = invoke(*EMULATED, *files(tmp_path))
    assert done == (0, "mobilenetv3: goes on after step 8; 8 steps, 1 rank, gloo\n")
    assert (tmp_path / "job.pt").stat().st_ino == before


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    assert invoke("vgg19", *EMULATED[1:])[0] == 2
    assert invoke(*EMULATED, "--global-batch", "0") == (1, "train: global_batch is 0, must be positive\n")
    code, output = invoke(*BASE, "--steps", "1", "--data", str(tmp_path / "no.npz"))
    assert (code, output.count("\n")) == (1, 1)
    assert "no.npz is not an .npz file" in output
    code, output = invoke(*EMULATED, "--log-file", str(tmp_path))
    assert code == 2


def test_ranks_that_do_not_share_the_checkpoint_are_told(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        (tmp_path / rank).mkdir()
    assert invoke(*EMULATED, "--checkpoint", str(tmp_path / "0" / "job.pt"))[0] == 0
    ended = run(2, TRAIN, *EMULATED, "--checkpoint", str(tmp_path / "RANK" / "job.pt"))
    for process in ended:
        assert process.code == 1
        assert process.error.startswith("train: ranks go on from steps [8, 0]: all must share the file ")


def test_a_job_beyond_its_steps_is_done(tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(tmp_path / "job.pt"))
    assert invoke(*EMULATED, *checkpoint)[0] == 0
    assert invoke(*EMULATED, *checkpoint, "--steps", "5")[0] == 0


def test_a_loss_that_is_no_number_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(trainer: Trainer, step: int, samples: Sequence[int]) -> torch.Tensor:
        return torch.tensor(float("nan"))

    monkeypatch.setattr(Trainer, "train", diverge)
    code, output = invoke(*EMULATED, *files(tmp_path))
    assert (code, output.splitlines()[-1]) == (1, "train: the loss of step 1 is nan")
    assert not (tmp_path / "job.pt").exists()


def test_a_full_disk_ends_the_job_with_one_line(tmp_path: Path, short_files: None) -> None:
    code, output = invoke(*EMULATED, *files(tmp_path))
    assert code == 1
    assert output.endswith("job.pt cannot be written: File too large\n")
    assert output.splitlines()[-1].startswith("train: checkpoint ")


def test_a_log_that_cannot_be_written_is_one_line() -> None:
    code, output = invoke(*EMULATED, "--log-file", "/dev/full")
    assert (code, output.splitlines()[-1]) == (1, "train: cannot write: No space left on device")


def test_other_settings_than_the_checkpoint_has_are_refused(tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(tmp_path / "job.pt"))
    assert invoke(*EMULATED, *checkpoint)[0] == 0
    code, output = invoke(*EMULATED, *checkpoint, "--seed", "1")
    assert code == 1
    assert output.endswith(
        "job.pt is of a job with seed 0, and this one has 1; take the same, or another file\n"
    )
