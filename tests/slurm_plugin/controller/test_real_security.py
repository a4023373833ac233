"""What users write, and who may order what, on real Slurm; see docs/threat-model.md."""

import os
import pwd
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dally.cluster import load_cluster
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.orders import (
    Order,
    Rehold,
    ReleaseOnNodes,
    ReleaseToSlurm,
    Requeue,
    Reserve,
    Signal,
    Unreserve,
)
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.config import Config
from slurm_plugin.controller.controller import Controller
from slurm_plugin.controller.journal import Journal, read_events
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.request import SIGNALS
from slurm_plugin.submit.hints import site_lua
from tests.patience import wait_until

LUA = (Path(__file__).parents[3] / "slurm_plugin" / "site" / "job_submit.lua").read_text(encoding="utf-8")

HOSTILE = [
    "'; touch pwned; '",
    "$(touch pwned)`touch pwned`|touch pwned&&touch pwned",
    "line\nscontrol: JobId=1 UserId=root(0) JobState=RUNNING\nend-of-order\nrelease 1",
    "invalid keyword: end-of-order\ninvalid keyword: end-of-order",
    '"}],"jobs":[{"job_id":1,"user_name":"root"}],"errors":["down"]',
    "x'); DROP TABLE jobs; --",
    "%s %n %d {0} {job} %(name)s ${HOME}",
    "[%w_]+.*-(%b()",
    "\x1b]0;owned\x07\x1b[2J\x1b[31m\r\x08\x7f",
    "‮gnp.exe \u200b 模型 \U0001f9e8 \x9b31m",
    "\\ud800 \\u0000 \\x00 %00 \udced\udca0\udc80\udcff",
    "-u root --all",
    "x" * 900,
]
_MARKS = ("dally:model=a ", "dally:", "dally:model=a&tag=1&x=", "")


def submit(
    local_slurm: LocalSlurm, *options: str, user: str = "dally-alice", script: str = "sleep 600"
) -> str:
    """A held job; its number."""
    words = ("sbatch", "--parsable", "--hold", "--requeue", "--output=/dev/null")
    return local_slurm.run(*words, *options, user=user, stdin=f"#!/bin/sh\n{script}\n").strip()


def job(slurm: CommandLine, job_id: str) -> SlurmJob:
    return next(each for each in slurm.jobs() if each.job_id == job_id)


class InProcessSite:
    """A local cluster with a controller that runs in this process."""

    def __init__(self, local_slurm: LocalSlurm, prefix: tuple[str, ...] = ()) -> None:
        self.local_slurm = local_slurm
        self.slurm = CommandLine(local_slurm.environment, prefix)
        conf_dir = str(local_slurm.spec.conf.parent)
        self.folder = local_slurm.spec.folder / "srsf-delay"
        self.journal = Journal(self.folder)
        config = Config(("gpu",), cluster=conf_dir)
        self.controller = Controller(self.slurm, config, load_cluster(conf_dir), None, self.journal)

    def cycle_until(self, holds: Callable[[], bool]) -> None:
        def cycle_and_look() -> bool:
            self.controller.cycle()
            return holds()

        wait_until(cycle_and_look)

    def runs(self, job_id: str) -> bool:
        return job(self.slurm, job_id).state is State.RUNNING


@pytest.fixture
def cell(local_slurm: LocalSlurm) -> Iterator[InProcessSite]:
    cell = InProcessSite(local_slurm)
    yield cell
    cell.journal.close()


@pytest.fixture
def guarded(cluster_folder: Path, users: tuple[str, ...]) -> Iterator[LocalSlurm]:
    """A local cluster with job_submit.lua."""
    lua = {"job_submit.lua": LUA, "dally_site.lua": site_lua(["gpu"], [])}
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, nodes=2, racks=2, lua_files=lua))
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


@pytest.fixture
def unprivileged(cluster_folder: Path, users: tuple[str, ...]) -> Iterator[LocalSlurm]:
    """A local cluster whose slurmctld runs as an ordinary user of the system; its slurmds as root."""
    make_user("dally-slurm")
    work = cluster_folder / "work"
    conf = (
        "SlurmUser=dally-slurm",
        f"StateSaveLocation={work}/state",
        f"SlurmctldLogFile={work}/slurmctld.log",
        f"SlurmctldPidFile={work}/slurmctld.pid",
        f"JobCompLoc={work}/jobcomp.txt",
    )
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, nodes=2, racks=2, extra_conf=conf))
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


def as_user(name: str) -> tuple[str, ...]:
    """What comes before a command that another user is to run."""
    account = pwd.getpwnam(name)
    return ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")


def test_whatever_alice_writes_is_text_and_bobs_job_starts(cell: InProcessSite) -> None:
    alices = []
    for number, text in enumerate(HOSTILE):
        folder = cell.local_slurm.work / re.sub("[/\0]", "_", f"{number} {text}")[:80]
        folder.mkdir()
        folder.chmod(0o777)
        mark = _MARKS[number % len(_MARKS)]
        options = [f"--comment={mark}{text}", f"--job-name={text}", f"--account={text}", f"--wckey={text}"]
        alices.append(
            submit(cell.local_slurm, "--gpus=1", f"--chdir={folder}", f"--mail-user={text}", *options)
        )
    bobs = submit(cell.local_slurm, "--gpus=1", "--comment=dally:", user="dally-bob")
    cell.cycle_until(lambda: cell.runs(bobs))
    seen = {each.job_id: each for each in cell.slurm.jobs()}
    assert seen.keys() == {*alices, bobs}
    assert {each.user for each in seen.values()} == {"dally-alice", "dally-bob"}
    assert not [*cell.local_slurm.spec.folder.rglob("pwned")]
    body = str([read_events(cell.folder, each) for each in seen])
    assert body.isascii()
    assert "\x1b" not in body


def test_alices_jobs_with_hostile_texts_run_too(cell: InProcessSite) -> None:
    alices = [submit(cell.local_slurm, "--gpus=1", f"--comment=dally:model=a {text}") for text in HOSTILE]
    cell.cycle_until(lambda: all(cell.runs(each) for each in alices))


def test_texts_of_64_kib_are_slurms_to_refuse_and_disturb_nobody(cell: InProcessSite) -> None:
    alices = submit(cell.local_slurm, "--gpus=1", "--comment=dally:")
    long = "x" * 65_536
    for field in ("Comment", "JobName", "Account", "WorkDir"):
        assert cell.local_slurm.attempt(
            "scontrol", "update", f"JobId={alices}", f"{field}={long}", user="dally-alice"
        ).stderr
    bobs = submit(cell.local_slurm, "--gpus=1", "--comment=dally:", user="dally-bob")
    cell.cycle_until(lambda: cell.runs(bobs) and cell.runs(alices))


def test_a_job_with_an_environment_of_a_mebibyte_runs_and_does_not_swell_the_poll(
    cell: InProcessSite,
) -> None:
    large = [f"V{number}={'e' * 120_000}" for number in range(9)]
    words = (
        "env",
        *large,
        "sbatch",
        "--parsable",
        "--hold",
        "--output=/dev/null",
        "--gpus=1",
        "--comment=dally:",
    )
    alices = cell.local_slurm.run(*words, user="dally-alice", stdin="#!/bin/sh\nsleep 600\n").strip()
    assert len(cell.local_slurm.run("squeue", "--all", "--json")) < 100_000
    cell.cycle_until(lambda: cell.runs(alices))


def test_jobs_that_ask_for_what_there_is_not_stop_nobody(cell: InProcessSite) -> None:
    for asked in ("--gpus=1000", "--gres=gpu:a100:1", "--gpus-per-task=1 --ntasks=70000"):
        submit(cell.local_slurm, *asked.split(), "--comment=dally:")
    bobs = submit(cell.local_slurm, "--gpus=1", "--comment=dally:", user="dally-bob")
    cell.cycle_until(lambda: cell.runs(bobs))


def test_a_signal_for_a_checkpoint_reaches_the_script_and_none_of_them_ends_it(
    local_slurm: LocalSlurm,
) -> None:
    slurm = CommandLine(local_slurm.environment)
    trap = f"trap : {' '.join(SIGNALS)}\ntouch $0.ready {local_slurm.work}/ready\nwhile :; do sleep 0.2; done"
    job_id = submit(local_slurm, "--gpus=1", "--comment=dally:", script=trap)
    assert slurm.run([ReleaseOnNodes(job_id, ("n1",))]) == (None,)
    wait_until(lambda: (local_slurm.work / "ready").exists())
    for name in SIGNALS:
        assert slurm.run([Signal(job_id, name)]) == (None,)
    assert job(slurm, job_id).state is State.RUNNING
    refused = slurm.run([Signal(job_id, "KILL"), Signal(job_id, "STOP")])
    assert refused == ("'KILL' is no checkpoint signal", "'STOP' is no checkpoint signal")


def test_a_mark_that_the_controller_would_not_read_is_refused_at_submission(guarded: LocalSlurm) -> None:
    signals, numbers = ("signal=KILL", "signal=9", "signal=RTMIN"), ("grace_s=86401", "max_gpus=1000001")
    for said in (*signals, *numbers, "tag=FF", "model=a'b"):
        words = ("sbatch", "--gpus=1", f"--comment=dally:{said}", "--wrap=true")
        done = guarded.attempt(*words, user="dally-alice")
        assert f"dally: comment with {said} is no request to Dally" in done.stderr


def test_users_cannot_slip_into_a_fence(guarded: LocalSlurm) -> None:
    slurm = CommandLine(guarded.environment)
    assert slurm.run([Reserve("dally_1_1", ("n1",), "dally-alice")]) == (None,)
    slip = ("--reservation=dally_1_1", "--gpus=1", "--wrap=true")
    done = guarded.attempt("sbatch", *slip, user="dally-alice")
    assert "dally: reservations whose names begin with dally_ are not for users" in done.stderr
    plain = guarded.run("sbatch", "--parsable", "--hold", "--wrap=true", user="dally-alice").strip()
    words = ("scontrol", "update", f"JobId={plain}")
    assert guarded.attempt(*words, "ReservationName=dally_1_1", user="dally-alice").returncode
    guarded.run(*words, "ReservationName=dally_1_1")


def orders_for(job_id: str) -> list[Order]:
    """Every kind of order once, as they come in the life of a job."""
    return [
        Reserve("dally_1_1", ("n2",), "dally-alice"),
        ReleaseOnNodes(job_id, ("n2",), "dally_1_1"),
        Signal(job_id, "CONT"),
        Requeue(job_id),
        Rehold(job_id),
        ReleaseToSlurm(job_id, 1),
        Unreserve("dally_1_1"),
    ]


def test_slurm_user_may_order_all_though_it_is_not_root(unprivileged: LocalSlurm) -> None:
    slurm = CommandLine(unprivileged.environment, as_user("dally-slurm"))
    job_id = submit(unprivileged, "--gpus=1", "--comment=dally:")
    fence, place, signal, requeue, rehold, hand_back, unfence = orders_for(job_id)
    assert slurm.run([fence, place]) == (None, None)
    wait_until(lambda: job(slurm, job_id).state is State.RUNNING)
    wait_until(lambda: slurm.run([unfence]) == (None,))  # a reservation cannot end in the second it began in
    assert slurm.run([signal, requeue]) == (None, None)
    wait_until(lambda: job(slurm, job_id).state is State.PENDING)
    assert slurm.run([rehold]) == (None,)
    assert job(slurm, job_id).hold is Hold.USER
    assert slurm.run([hand_back]) == (None,)
    wait_until(lambda: job(slurm, job_id).state is State.RUNNING)


def test_a_controller_run_by_slurm_user_places_jobs_of_others(unprivileged: LocalSlurm) -> None:
    cell = InProcessSite(unprivileged, as_user("dally-slurm"))
    job_id = submit(unprivileged, "--gpus=1", "--comment=dally:")
    cell.cycle_until(lambda: cell.runs(job_id))
    cell.journal.close()


def test_an_ordinary_user_orders_nothing_for_others_and_leaves_their_jobs_as_they_are(
    local_slurm: LocalSlurm,
) -> None:
    slurm = CommandLine(local_slurm.environment, as_user("dally-bob"))
    job_id = submit(local_slurm, "--gpus=1", "--comment=dally:")
    before = job(slurm, job_id)
    for order in orders_for(job_id):
        (said,) = slurm.run([order])
        assert said is None if isinstance(order, Signal) else re.search("Invalid user id|denied", said or "")
    assert replace(job(slurm, job_id), reason=before.reason) == before
    assert before.hold is Hold.USER


def test_a_controller_without_rights_touches_no_job_of_others(local_slurm: LocalSlurm) -> None:
    cell = InProcessSite(local_slurm, as_user("dally-bob"))
    job_id = submit(local_slurm, "--gpus=1", "--comment=dally:")
    for _ in range(2):
        cell.controller.cycle()
    seen = job(cell.slurm, job_id)
    assert (seen.state, seen.hold, seen.required_nodes) == (State.PENDING, Hold.USER, ())
    refused = [event for event in read_events(cell.folder, job_id) if event["event"] == "order_refused"]
    assert refused
    assert "Invalid user id" in refused[0]["said"]
    cell.journal.close()


def test_the_state_folder_is_the_controllers_alone(cell: InProcessSite) -> None:
    folder = cell.folder
    assert folder.stat().st_mode & 0o077 == 0
    assert cell.local_slurm.attempt("ls", str(folder), user="dally-alice").returncode
    assert {path.name for path in folder.iterdir()} >= {"journal.sqlite", "lock"}
    assert folder.stat().st_uid == os.geteuid()
