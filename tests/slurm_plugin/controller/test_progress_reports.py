"""What jobs report reaches the policy, is remembered over restarts and kills, and no file harms anybody."""

import getpass
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.jobs.progress import MOST_BYTES, ProgressReport
from dally.scheduling.recording.replay import replay
from dally.testing.worlds import racks
from slurm_plugin.controller import progress_reports
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.progress_reports import (
    EVERY_S,
    MISSED_S,
    ProgressFile,
    ProgressFiles,
    read_report,
)
from slurm_plugin.request import Request, encode
from slurm_plugin.service.report import report
from slurm_plugin.service.why_command import headline
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite, Killed

ME = getpass.getuser()
LIMIT_S = 86_400.0
TOTAL = 5_000_000.0


class Reporting:
    """A site on one machine of eight GPUs, and jobs that take 0.01 s for a sample of a GPU."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.folder = folder
        self.record = folder / "facts.jsonl"
        self.site = FakeSite(folder, racks([[8]]), policy, record=str(self.record), knowledge="limits")
        self.samples: dict[str, float] = {}

    def submit(self, gpus: int = 8, least: int = 1) -> str:
        asked = Request("", "USR1", 20, least, 8, progress=f"{self.folder}/%j.json")
        spec = SubmitSpec(
            comment=encode(asked),
            gpus_per_task=1,
            tasks=gpus,
            checkpoint_exit_s=1.0,
            time_limit_s=LIMIT_S,
            user=ME,
            run_time_s=inf,
        )
        return self.site.slurm.submit(spec)

    def write(self, job: str, **more: float) -> None:
        said = {"time": self.site.now_s, "samples": self.samples.get(job, 0.0), "total": TOTAL, **more}
        (self.folder / f"{job}.json").write_text(json.dumps(said))

    def train(self, until_s: float, step_s: float = 10.0, **more: float) -> None:
        """Time passes; running jobs train, as fast as they have GPUs, and report."""
        while self.site.now_s < until_s:
            before = dict(self.running())
            self.site.run_to(min(until_s, self.site.now_s + step_s))
            for job, gpus in self.running().items():
                if before.get(job) == gpus:
                    self.samples[job] = self.samples.get(job, 0.0) + 100.0 * gpus * step_s
                self.write(job, **{"batch": 100.0, "epoch": 20_000.0, **more})

    def running(self) -> dict[str, int]:
        """The GPUs of each job that runs."""
        jobs = [job for job in self.site.slurm.jobs() if job.state_name == "RUNNING"]
        return {job.job_id: sum(job.gpus.values()) for job in jobs}

    def decided_again(self) -> None:
        self.site.controller._recording.flush()  # type: ignore[union-attr]
        found = replay(self.record)
        assert (found.differing, found.differences) == (0, [])
        assert found.decisions > 0


@pytest.fixture
def world(tmp_path: Path) -> Reporting:
    return Reporting(tmp_path, "fifo")


def test_the_policy_sees_what_a_job_reports(world: Reporting) -> None:
    job = world.submit()
    world.train(120)
    life = world.site.controller.scheduler.state.jobs[job]
    assert life.expected_s == pytest.approx(TOTAL / 800, rel=0.01)
    assert life.done(world.site.now_s) == pytest.approx(world.samples[job] / TOTAL, abs=0.06)
    assert world.site.events("progress_reported", "progress_missing") == [("progress_reported", job)]


def test_dally_why_shows_it(world: Reporting) -> None:
    job = world.submit()
    world.train(120, loss=0.4567, noise=900)
    (shown,) = report(world.site.controller, "fifo", ("gpu",)).jobs
    said = "\n".join(headline(json.loads(json.dumps(shown)), world.site.now_s))
    for words in (
        "of 5,000,000 samples (",
        " epochs, batches of 100, loss 0.4567, gradient noise 900",
        "800 on 8",
    ):
        assert words in said
    assert job in said


def test_a_controller_that_is_killed_at_any_step_knows_the_same_afterwards(world: Reporting) -> None:
    job = world.submit()
    for number in range(40):
        world.train(10.0 * (number + 1))
        if world.site.now_s < 60:
            continue
        left = number % 8

        def kill(step: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        before = world.site.controller.scheduler.state.jobs[job]
        world.site.restart(kill)
        with suppress(Killed):
            world.site.controller.cycle()
        world.site.restart()
        after = world.site.controller.scheduler.state.jobs[job]
        assert after.progress is not None
        assert before.progress is not None
        if after.progress == before.progress:
            now = world.site.now_s
            assert (after.work_s(now), after.end_s()) == (before.work_s(now), before.end_s())
    world.decided_again()


def test_each_job_is_heard_twice_a_minute_at_most_once_its_throughput_is_known(world: Reporting) -> None:
    world.submit()
    world.train(600, step_s=5.0)
    world.site.controller._recording.flush()  # type: ignore[union-attr]
    lines = [json.loads(line) for line in world.record.read_text().splitlines()]
    heard = [line["t"] for line in lines if line.get("fact") == "report_progress"]
    assert 10 < len(heard) <= 2 + 600 / EVERY_S


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["ones:interval_s=10", "pollux:round_s=20", "optimus:interval_s=20"])
def test_elastic_jobs_that_report_get_other_sizes_and_all_of_it_is_decided_again(
    tmp_path: Path, policy: str
) -> None:
    world = Reporting(tmp_path, policy)
    first = world.submit()
    world.train(900, noise=1000, most_batch=800)
    second = world.submit()
    world.train(1800, noise=1000, most_batch=800)
    assert sum(world.running().values()) == 8
    assert world.site.events("resize")
    for job in (first, second):
        assert world.site.managed(job).history.progress is not None
    world.decided_again()


DIGITS = b'{"samples": 1%s}' % (b"0" * 400)
TINY = b'{"samples": 5e-324, "total": 1, "batch": 1e300}'  # numbers that could not be divided by each other
GARBAGE = [b"", b"\x00\xff\xfe", b'{"samples": 5', b"[" * 5000, b'{"samples": -3}', b"x" * (MOST_BYTES + 1)]
GARBAGE += [DIGITS, TINY]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_the_file_changes_nothing_and_is_told_once(world: Reporting, garbage: bytes) -> None:
    job = world.submit()
    world.train(120)
    before = world.site.managed(job).history.progress
    (world.folder / f"{job}.json").write_bytes(garbage)
    while world.site.now_s < 120 + MISSED_S + 60:
        world.site.run_to(world.site.now_s + 10)
    assert world.site.managed(job).history.progress == before
    assert world.site.events("progress_missing") == [("progress_missing", job)]
    (said,) = [each for each in read_events(world.folder) if each["event"] == "progress_missing"]
    assert str(garbage[:5]) not in said["reason"]
    world.write(job, samples=400_000.0)
    world.site.run_to(world.site.now_s + 2)
    world.site.run_to(world.site.now_s + 2)
    after = world.site.managed(job).history.progress
    assert after is not None
    assert after.last.samples == 400_000


def test_a_file_of_an_earlier_job_by_that_name_is_not_heard(world: Reporting) -> None:
    world.site.now_s = 10_000.0
    (world.folder / "1.json").write_text('{"samples": 77, "time": 100}')
    job = world.submit()
    for _ in range(10):
        world.site.run_to(world.site.now_s + 10)
    assert world.site.managed(job).history.progress is None


def refuses(path: Path, user: str = ME) -> str:
    with pytest.raises(InputError) as caught:
        read_report(ProgressFile(str(path), user))
    return str(caught.value)


def test_only_a_plain_file_of_the_jobs_user_is_read(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_text('{"samples": 5, "time": 7}')
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(good)
    os.mkfifo(pipe)
    assert read_report(ProgressFile(str(link), ME)) == ProgressReport(7.0, 5.0)
    assert refuses(good, "no such user") == "this machine does not know its user no such user"
    # One text for all, as a controller that is root may look where the user may not.
    others = [refuses(path) for path in (pipe, tmp_path, Path("/dev/zero"), tmp_path / "none", good / "none")]
    assert {*others, refuses(good, "nobody")} == {
        "it is no plain file of the job's user, or the controller may not read it"
    }


def test_a_job_whose_file_is_now_this_and_now_that_is_told_of_once_in_a_run(world: Reporting) -> None:
    job = world.submit()
    world.site.run_to(MISSED_S + 60)
    for number in range(30):
        (world.folder / f"{job}.json").unlink(missing_ok=True)
        if number % 3:
            (world.folder / f"{job}.json").write_text('{"samples": -5}' if number % 3 == 1 else "garbage")
        world.site.run_to(world.site.now_s + 2)
    assert world.site.events("progress_missing") == [("progress_missing", job)]


def test_a_file_of_step_times_counts_for_its_own_job_alone(tmp_path: Path) -> None:
    """The recorder's folder is one in which others may have laid links, under numbers of jobs to come."""
    own, laid = tmp_path / "steps-47.json", tmp_path / "steps-48.json"
    own.write_text('{"job": "47", "step_s": 5, "time": 7}')
    laid.symlink_to(own)
    assert read_report(ProgressFile(str(own), ME, "47")).step_s == 5
    for path, told in ((laid, "it is no plain file of the job's user"), (own, "it is of another job")):
        with pytest.raises(InputError, match=told):
            read_report(ProgressFile(str(path), ME, "48"))


def test_no_file_keeps_others_from_being_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(data: bytes, written_s: float, job_id: str) -> ProgressReport:
        return ProgressReport(written_s, 1.0 / len(data))

    for job, data in (("1", b""), ("2", b"1")):
        (tmp_path / job).write_bytes(data)
    monkeypatch.setattr(progress_reports, "parse_report", fail)
    files = ProgressFiles(lambda read: read())
    wanted = {job: ProgressFile(str(tmp_path / job), ME) for job in ("1", "2")}
    files.look(wanted)
    found = files.look(wanted)
    assert isinstance(found["1"], InputError)
    assert isinstance(found["2"], ProgressReport)


def test_a_file_system_that_hangs_holds_up_nobody_else_and_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = threading.Event()

    def hang(file: ProgressFile) -> ProgressReport:
        if file.user == ME:
            free.wait(30)
        return ProgressReport(0.0, 1.0)

    monkeypatch.setattr(progress_reports, "read_report", hang)
    monkeypatch.setattr(progress_reports, "SLOW_S", 0.0)
    threads: list[threading.Thread] = []

    def start(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()

    files, said = ProgressFiles(start), ProgressReport(0.0, 1.0)
    wanted = {"1": ProgressFile("/hangs", ME)}
    assert (files.look(wanted), files.look(wanted)) == ({}, {})
    while not files.stuck:
        pass
    assert (files.stuck, len(threads)) == ("/hangs", 1)
    both = {**wanted, "2": ProgressFile("/is/there", "another")}
    assert files.look(both) == {}
    threads[1].join()
    assert files.look(wanted) == {"2": said}
    free.set()
    threads[0].join()
    assert files.look(wanted) == {"1": said}
