"""The driver submits each job once, whatever happens in between, and leaves nothing of its own behind."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from dally.runs.records import read_run
from slurm_plugin.config import load_config
from testbed.running import driver as driving
from testbed.running.batch import RunBatch, check_policies, run_policy
from testbed.running.controller import ControllerFiles, configuration
from testbed.running.driver import Driver
from testbed.running.folder import (
    OBSERVED,
    SUBMITTED,
    RunInputs,
    RunState,
    begin_run,
    read_state,
    write_state,
)
from testbed.running.json_lines import append_line, read_lines
from testbed.running.observer import job_comment
from testbed.running.script import SCRIPT_LOG
from tests.testbed.running.fakes import FakeTestbedCluster, running_job, shown_job
from tests.testbed.running.worlds import TFLOPS, inputs, job

RUN = "demo-1"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "POLL_EVERY_S", 0.0)
    monkeypatch.setattr(driving, "_RETRY_S", 0.0)
    monkeypatch.setattr(driving, "_TICK_S", 0.01)
    monkeypatch.setattr(driving, "_LEAD_S", 0.0)


@pytest.fixture
def cluster(tmp_path: Path) -> FakeTestbedCluster:
    return FakeTestbedCluster(tmp_path, on_poll=end_all)


def end_all(cluster: FakeTestbedCluster) -> None:
    """Every job that was submitted has run and is done."""
    for number, shown in cluster.queue.items():
        cluster.queue[number] = running_job(number, shown["comment"], 1000, "r1h1", 2)
        cluster.queue[number]["job_state"] = "COMPLETED"


def run_all(cluster: FakeTestbedCluster) -> None:
    for number, shown in cluster.queue.items():
        if shown["job_state"] == "PENDING":
            cluster.queue[number] = running_job(number, shown["comment"], 1000, "r1h1", 2)


def begun(
    cluster: FakeTestbedCluster, policy: str = "slurm", **more: Any
) -> tuple[Path, RunState, RunInputs]:
    folder, asked = cluster.folder / "out", inputs(job("a"), job("b"))
    state = RunState(RUN, policy, str(cluster.work / RUN), TFLOPS, "gloo", {}, **more)
    begin_run(folder, state, asked)
    return folder, state, asked


def drive(
    cluster: FakeTestbedCluster, policy: str = "slurm", stop: Callable[[], bool] = lambda: False, **more: Any
) -> RunState:
    return Driver(cluster, *begun(cluster, policy, **more), timeout_s=60.0).run(stop)


def marks(cluster: FakeTestbedCluster) -> list[str]:
    return [word for argv in cluster.submitted for word in argv if word.startswith("--comment=")]


def test_every_job_is_submitted_once_and_the_run_is_complete(cluster: FakeTestbedCluster) -> None:
    state = drive(cluster)
    assert marks(cluster) == [f"--comment={job_comment(RUN, number)}" for number in (0, 1)]
    assert (state.note, read_state(cluster.folder / "out")) == ("", state)


def test_slurms_own_scheduler_gets_plain_jobs_with_a_switch_timer(cluster: FakeTestbedCluster) -> None:
    drive(cluster, "slurm:switch_wait_s=20")
    assert cluster.submitted[0][:2] == ("sbatch", "--switches=1@0:00:20")
    assert cluster.daemons == []


def test_other_policies_go_through_dally_sbatch_to_a_controller_that_ends_with_the_run(
    cluster: FakeTestbedCluster,
) -> None:
    drive(cluster, "fifo")
    assert f"DALLY_CONFIG={cluster.work / RUN / 'dally.toml'}" in cluster.submitted[0]
    assert [daemon.stopped for daemon in cluster.daemons] == [True]


def test_jobs_wait_for_their_time(cluster: FakeTestbedCluster) -> None:
    folder, state, _ = begun(cluster)
    Driver(cluster, folder, state, inputs(job("a"), job("b", submit_s=0.5)), 60.0).run(lambda: False)
    first, second = (line["t"] for line in read_lines(folder / SUBMITTED))
    origin_s = (read_state(folder) or state).origin_s
    assert origin_s is not None
    assert first >= origin_s
    assert second >= origin_s + 0.5


def test_a_submission_that_fails_is_tried_again(cluster: FakeTestbedCluster) -> None:
    cluster.refusals = ["the controller is not well", "Socket timed out"]
    assert drive(cluster).note == ""
    assert len(cluster.submitted) == 2


def test_a_submission_that_came_through_though_it_seemed_to_fail_is_not_repeated(
    cluster: FakeTestbedCluster,
) -> None:
    cluster.refusals = ["timed out"]
    cluster.queue[50] = shown_job(50, job_comment(RUN, 0))
    drive(cluster)
    assert marks(cluster) == [f"--comment={job_comment(RUN, 1)}"]


def test_a_resumed_run_submits_only_what_was_not(cluster: FakeTestbedCluster) -> None:
    folder, state, asked = begun(cluster, origin_s=time.time())
    append_line(folder / SUBMITTED, t=1.0, job="a", slurm="50")
    cluster.queue[50] = shown_job(50, job_comment(RUN, 0))
    Driver(cluster, folder, state, asked, 60.0).run(lambda: False)
    assert marks(cluster) == [f"--comment={job_comment(RUN, 1)}"]


def test_a_job_that_was_submitted_right_before_the_kill_is_known_by_its_mark(
    cluster: FakeTestbedCluster,
) -> None:
    cluster.queue[50] = shown_job(50, job_comment(RUN, 0))
    drive(cluster, origin_s=time.time())
    assert marks(cluster) == [f"--comment={job_comment(RUN, 1)}"]


def test_a_job_that_slurm_has_forgotten_is_known_by_its_script_log(
    cluster: FakeTestbedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.running.observer.GONE_S", 0.0)
    script_log = cluster.work / RUN / "jobs" / "a" / SCRIPT_LOG
    script_log.parent.mkdir(parents=True)
    script_log.write_text("start 1.0 r1h1 2\nend 2.0 0\n")
    drive(cluster, origin_s=time.time())
    assert marks(cluster) == [f"--comment={job_comment(RUN, 1)}"]


def test_an_interrupt_cancels_the_runs_jobs_and_no_others(cluster: FakeTestbedCluster) -> None:
    cluster.on_poll = run_all
    cluster.queue[99] = shown_job(99, "somebody else's")
    state = drive(cluster, stop=lambda: len(cluster.submitted) == 2)
    assert state.note == "interrupted"
    assert cluster.cancelled == ["1", "2"]


def test_a_run_that_takes_too_long_is_ended(cluster: FakeTestbedCluster) -> None:
    cluster.on_poll = run_all
    folder, state, asked = begun(cluster)
    ended = Driver(cluster, folder, state, asked, timeout_s=0.5).run(lambda: False)
    assert ended.note == "not all jobs had ended after 0.5 s"
    assert cluster.cancelled == ["1", "2"]


def test_a_job_that_wrote_its_checkpoint_has_not_ended(cluster: FakeTestbedCluster) -> None:
    def check_point_once(cluster: FakeTestbedCluster) -> None:
        end_all(cluster)
        if len(read_lines(cluster.folder / "out" / OBSERVED)) < 4 and 1 in cluster.queue:
            cluster.queue[1] |= {"job_state": "FAILED", "exit_code": 85 << 8}

    cluster.on_poll = check_point_once
    drive(cluster)
    seen = [line["name"] for line in read_lines(cluster.folder / "out" / OBSERVED) if line["job"] == "a"]
    assert seen == ["PENDING", "FAILED", "COMPLETED"]


def batch(cluster: FakeTestbedCluster, *plans: Any) -> RunBatch:
    return RunBatch(cluster.folder / "out", inputs(*plans), RunState("", "", "", TFLOPS, "gloo", {"seed": 0}))


def test_a_policy_that_is_done_is_not_run_again(cluster: FakeTestbedCluster) -> None:
    (policy,) = check_policies(["slurm"])
    for _ in range(2):
        run = run_policy(cluster, batch(cluster, job("a")), policy, lambda: False, lambda *_: None)
    assert run.complete
    assert len(cluster.submitted) == 1
    settings = {"SchedulerParameters": "bf_interval=1,x=2", "SchedulerType": "sched/backfill"}
    assert read_run(cluster.folder / "out" / "slurm")["scheduler"] == settings


def test_a_folder_with_another_workload_is_refused(cluster: FakeTestbedCluster) -> None:
    (policy,) = check_policies(["slurm"])
    run_policy(cluster, batch(cluster, job("a")), policy, lambda: False, lambda *_: None)
    with pytest.raises(InputError, match="a run of another workload or policy; name another --out"):
        run_policy(cluster, batch(cluster, job("z")), policy, lambda: False, lambda *_: None)


def test_a_run_whose_cluster_is_gone_is_not_gone_on_with(cluster: FakeTestbedCluster) -> None:
    (policy,) = check_policies(["slurm"])
    folder = begun(cluster, origin_s=1.0)[0]
    folder.rename(cluster.folder / "slurm")
    write_state(cluster.folder / "slurm", RunState(RUN, "slurm", "/gone/demo-1", TFLOPS, "gloo", {}, 1.0))
    again = RunBatch(cluster.folder, inputs(job("a"), job("b")), RunState("", "", "", TFLOPS, "gloo", {}))
    with pytest.raises(InputError, match="was cut off with its cluster; name another --out"):
        run_policy(cluster, again, policy, lambda: False, lambda *_: None)


def test_the_controllers_configuration_is_one_that_it_reads(tmp_path: Path) -> None:
    from_text = configuration(ControllerFiles(tmp_path), "dally:lease_s=10", "gpu", 4711, "1001")
    (tmp_path / "dally.toml").write_text(from_text)
    config = load_config(tmp_path / "dally.toml")
    assert (config.policy, config.listen, config.fallback) == (
        "dally:lease_s=10",
        "127.0.0.1:4711",
        "refuse",
    )
