"""The training command for real, in processes: it survives kills, stops at signals, changes its ranks."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import distributed

from dally.jobs.job import CHECKPOINTED
from tests.patience import wait_until
from tests.workloads.ranks import EndedRank, finish, preloaded, run, started
from workloads.group import leave
from workloads.preload_client import PRELOADED
from workloads.settings import BatchRule, TrainingJob
from workloads.stopping import STOP_SIGNALS, StopRequest
from workloads.train import main
from workloads.training import Trainer

BASE = ("mobilenetv3", "--global-batch", "6", "--size", "64", "--backend", "gloo")
EMULATED = ("mobilenetv3", "--global-batch", "7", "--emulate", "1000", "--backend", "gloo", "--steps", "8")
TRAIN = "workloads.train"


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with preloaded(tmp_path_factory.mktemp("preloaded") / "here"):
        yield


@pytest.fixture
def torch_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks load it themselves, as most do outside of tests."""
    monkeypatch.delenv(PRELOADED)


def log_of(folder: Path) -> list[dict[str, float]]:
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def files(folder: Path) -> tuple[str, ...]:
    return "--checkpoint", str(folder / "job.pt"), "--log-file", str(folder / "log.jsonl")


def wait_while_it_runs(holds: Callable[[], bool], processes: Sequence[subprocess.Popen[str]]) -> None:
    """Until something holds; a job that ends before is a failure."""

    def looked() -> bool:
        if holds():
            return True
        assert all(process.poll() is None for process in processes), finish(processes)
        return False

    wait_until(looked, "the job to come so far", pause_s=0.01)


def wait_for_step(step: int, folder: Path, processes: Sequence[subprocess.Popen[str]]) -> None:
    """Until the log has it."""
    wait_while_it_runs(lambda: any(line["step"] >= step for line in log_of(folder)), processes)


def hears(number: signal.Signals, process: subprocess.Popen[str]) -> bool:
    """Whether a process handles a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    handled = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    assert handled
    return bool(int(handled[1], 16) >> (number - 1) & 1)


def codes(ended: Sequence[EndedRank]) -> list[int]:
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


def test_a_killed_job_does_the_steps_after_its_checkpoint_again_with_the_losses_they_had(
    tmp_path: Path,
) -> None:
    job = ("--checkpoint-every", "3", *files(tmp_path))
    with started(2, TRAIN, *BASE, "--steps", "100000", *job) as processes:
        wait_for_step(4, tmp_path, processes)
        checkpoint = (tmp_path / "job.pt").read_bytes()
        wait_for_step(int(log_of(tmp_path)[-1]["step"]) + 3, tmp_path, processes)
        processes[1].kill()
        other, _ = finish(processes)
    assert other.code == 1
    assert re.match(r"dally-train: rank 0 of 2 failed: [A-Z].* by peer", other.error), other.error
    assert other.error.count("\n") == 1
    (tmp_path / "job.pt").write_bytes(checkpoint)  # as if no other had been written before the kill
    steps = int(log_of(tmp_path)[-1]["step"]) + 1
    assert codes(run(2, TRAIN, *BASE, "--steps", str(steps), *job)) == [0, 0]
    seen: dict[float, list[float]] = {}
    for line in log_of(tmp_path):
        seen.setdefault(line["step"], []).append(line["loss"])
    assert list(seen) == list(range(1, steps + 1))
    again = [losses for losses in seen.values() if len(losses) == 2]
    assert len(again) >= 3
    for before, after in again:
        assert after == pytest.approx(before, rel=1e-5)


def test_a_start_ends_without_saving_when_another_has_come(tmp_path: Path) -> None:
    """The older one runs on nodes that Slurm has given up; its next checkpoint is far."""
    endless = (*BASE, "--steps", "100000", "--checkpoint-every", "100000", "--pace", "0.1", *files(tmp_path))
    with started(2, TRAIN, *endless) as older:
        wait_for_step(2, tmp_path, older)
        code, output = invoke(*BASE, "--steps", "3", "--checkpoint-every", "2", *files(tmp_path))
        first, second = finish(older)
    assert (code, first.code, second.code) == (0, 1, 1), (output, first, second)
    assert first.error == f"dally-train: another start of this job has taken {tmp_path / 'job.pt'} over\n"
    assert second.error == "dally-train: rank 1 ends: rank 0 cannot write checkpoints\n"
    assert torch.load(tmp_path / "job.pt", weights_only=True)["step"] == 3
    ranks = [line["ranks"] for line in log_of(tmp_path)]
    assert ranks == sorted(ranks, reverse=True), "both trained at once"


def test_a_signal_to_one_rank_stops_all_at_one_step_and_others_go_on(
    tmp_path: Path, torch_not_loaded: None
) -> None:
    with started(2, TRAIN, *BASE, "--steps", "100000", *files(tmp_path)) as processes:
        wait_for_step(3, tmp_path, processes)
        processes[1].send_signal(signal.SIGUSR2)
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
    ends = [float(line["time"]) for line in log]
    assert ends == sorted(ends)
    assert time.time() - 600 < ends[0] < ends[-1] <= time.time()


def test_a_signal_while_torch_loads_is_heard(tmp_path: Path, torch_not_loaded: None) -> None:
    with started(1, TRAIN, *EMULATED, "--steps", "100000", *files(tmp_path)) as processes:
        wait_while_it_runs(lambda: hears(signal.SIGTERM, processes[0]), processes)
        processes[0].send_signal(signal.SIGTERM)
        [ended] = finish(processes)
    assert ended.code == CHECKPOINTED, ended
    assert (tmp_path / "job.pt").exists()


def test_a_job_that_goes_on_with_more_ranks_takes_the_samples_in_the_same_order(tmp_path: Path) -> None:
    one, more = tmp_path / "one", tmp_path / "more"
    for folder in (one, more):
        folder.mkdir()
    assert invoke(*EMULATED, *files(one))[0] == 0
    assert invoke(*EMULATED, *files(more), "--steps", "4")[0] == 0
    assert codes(run(2, TRAIN, *EMULATED, *files(more))) == [0, 0]
    losses = [line["loss"] for line in log_of(one)]
    assert [line["loss"] for line in log_of(more)] == pytest.approx(losses)
    assert len(set(losses)) == 8


def test_ranks_of_unequal_speed_share_batches_by_it_and_take_the_same_samples(tmp_path: Path) -> None:
    one, more = tmp_path / "one", tmp_path / "more"
    for folder in (one, more):
        folder.mkdir()
    assert invoke(*EMULATED, *files(one))[0] == 0
    unequal = ("--emulate", "1000,500", "--shares", "2,1", "--pace", "0.01,0.02")
    assert codes(run(2, TRAIN, *EMULATED, *unequal, *files(more))) == [0, 0]
    assert [line["loss"] for line in log_of(more)] == pytest.approx([line["loss"] for line in log_of(one)])


def test_a_job_reports_its_progress_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALLY_PROGRESS", str(tmp_path / "report-%j.json"))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    run(1, TRAIN, *BASE, "--steps", "3")
    said = json.loads((tmp_path / "report-17.json").read_text())
    assert said["samples"] in (6, 12, 18)
    assert (said["total"], said["batch"], said["epoch"]) == (18, 6, 65_536)
    assert said["loss"] > 0


def test_a_job_that_is_done_stays_done(tmp_path: Path) -> None:
    assert invoke(*EMULATED, *files(tmp_path))[0] == 0
    before = (tmp_path / "job.pt").stat().st_ino
    done = invoke(*EMULATED, *files(tmp_path))
    assert done == (0, "mobilenetv3: goes on after step 8; 8 steps, 1 rank, gloo\n")
    assert (tmp_path / "job.pt").stat().st_ino == before


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    assert invoke("vgg19", *EMULATED[1:])[0] == 2
    assert invoke(*EMULATED, "--global-batch", "0") == (
        1,
        "dally-train: global_batch is 0, must be positive\n",
    )
    code, output = invoke(*BASE, "--steps", "1", "--data", str(tmp_path / "no.npz"))
    assert (code, output.count("\n")) == (1, 1)
    assert "no.npz is not an .npz file" in output
    code, output = invoke(*EMULATED, "--log-file", str(tmp_path))
    assert code == 2
    code, output = invoke(*EMULATED, "--shares", "1,one")
    assert code == 2
    assert "'1,one' must be numbers with commas between, such as 2,1,1" in output
    code, output = invoke(*EMULATED, "--shares", "1,1")
    assert (code, output) == (1, "dally-train: shares are 2 and ranks 1, must be as many\n")


@pytest.mark.parametrize(
    ("planned", "rule"),
    [
        ("linear", (BatchRule.LINEAR, 256, 4)),
        ("fixed", (BatchRule.KEEP, None, 1)),
        ("goodput", (BatchRule.GOODPUT, 256, 4)),
        ("", (BatchRule.KEEP, None, 1)),
    ],
)
def test_the_batch_rule_is_that_by_which_the_policy_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: str, rule: tuple[BatchRule, int | None, int]
) -> None:
    jobs: list[TrainingJob] = []

    def keep(job: TrainingJob, stop: StopRequest) -> bool:
        jobs.append(job)
        return True

    monkeypatch.setattr("workloads.loop.run_job", keep)
    monkeypatch.setenv("DALLY_BATCHING", planned)
    options = ("digits", "--steps", "9", "--global-batch", "128", "--backend", "gloo")
    elastic = ("--elastic", str(tmp_path / "ranks"), "--batch-rule", "policy", "--asked-ranks", "4")
    assert invoke(*options, *elastic, "--max-batch", "256")[0] == 0
    found = jobs[0].elastic
    assert found
    assert (found.rule, found.max_batch, found.asked_ranks) == rule
    code, output = invoke(*options, *elastic)
    assert code == 2
    assert "--batch-rule policy needs --max-batch" in output


def test_ranks_that_do_not_share_the_checkpoint_are_told(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        (tmp_path / rank).mkdir()
    assert invoke(*EMULATED, "--checkpoint", str(tmp_path / "0" / "job.pt"))[0] == 0
    ended = run(2, TRAIN, *EMULATED, "--checkpoint", str(tmp_path / "RANK" / "job.pt"))
    for process in ended:
        assert process.code == 1
        assert process.error.startswith(
            "dally-train: ranks go on from steps [8, 0]: all must share the file "
        )


def test_a_job_beyond_its_steps_is_done(tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(tmp_path / "job.pt"))
    assert invoke(*EMULATED, *checkpoint)[0] == 0
    assert invoke(*EMULATED, *checkpoint, "--steps", "5")[0] == 0


def test_a_loss_that_is_no_number_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(trainer: Trainer, step: int, samples: Sequence[int]) -> torch.Tensor:
        return torch.tensor(float("nan"))

    monkeypatch.setattr(Trainer, "train", diverge)
    code, output = invoke(*EMULATED, *files(tmp_path))
    assert (code, output.splitlines()[-1]) == (1, "dally-train: the loss of step 1 is nan")
    assert not (tmp_path / "job.pt").exists()


def test_a_full_disk_ends_the_job_with_one_line(tmp_path: Path, short_files: None) -> None:
    code, output = invoke(*BASE, "--steps", "1", *files(tmp_path))
    assert code == 1
    assert output.endswith("job.pt cannot be written: File too large\n")
    assert output.splitlines()[-1].startswith("dally-train: checkpoint ")


def test_a_library_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "workloads.models.transformers_nets", raising=False)
    code, output = invoke("resnet18", *BASE[1:], "--steps", "1")
    assert code == 1
    assert (
        output == "dally-train: transformers is not installed; in Dally's folder: pip install '.[training]'\n"
    )


def test_a_library_that_is_broken_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: TrainingJob, stop: StopRequest) -> bool:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr("workloads.loop.run_job", fail)
    assert invoke(*EMULATED) == (1, "dally-train: libcudart.so.12: cannot open shared object file\n")


def test_a_log_that_cannot_be_written_is_one_line() -> None:
    code, output = invoke(*EMULATED, "--log-file", "/dev/full")
    assert (code, output.splitlines()[-1]) == (1, "dally-train: cannot write: No space left on device")


def test_other_settings_than_the_checkpoint_has_are_refused(tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(tmp_path / "job.pt"))
    assert invoke(*EMULATED, *checkpoint)[0] == 0
    code, output = invoke(*EMULATED, *checkpoint, "--seed", "1")
    assert code == 1
    assert output.endswith(
        "job.pt is of a job with seed 0, and this one has 1; take the same, or another file\n"
    )
