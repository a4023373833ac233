"""The daemon over the fake Slurm."""

import io
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.commands import main
from slurm_plugin.client.orders import Order
from slurm_plugin.client.slurm import SlurmUnavailableError
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.controller.journal import FencedError, Journal, JournalError, heartbeat_s
from slurm_plugin.service.daemon import LONGEST_BACKOFF_S, REST, SETTLE_S, DaemonLog
from slurm_plugin.service.signals import Signals
from tests.slurm_plugin.daemons import NODES, DaemonSite, Pauses
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeNode, SubmitSpec


def test_jobs_are_placed_and_each_event_is_one_line_of_json(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    job = site.submit(gpus_per_node=8)
    site.run()
    assert site.states() == {job: "RUNNING"}
    assert [event["event"] for event in site.events()] == [
        "controller_starts",
        "cluster",
        "submit",
        "start",
        "controller_ends",
    ]


def test_what_was_learnt_in_the_last_minute_is_written_as_it_ends(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    jobs = [site.submit(gpus_per_node=8)]
    site.run(lambda: jobs.append(site.submit(gpus_per_node=8)), lambda: None)
    journal = Journal(site.state)
    assert journal.load().believed["believed"].keys() == {*jobs}
    journal.close()


class Untouchable(FakeSlurm):
    """A Slurm that must not be ordered anything."""

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        raise AssertionError(f"ordered {orders}")


def test_a_shadow_orders_nothing_and_keeps_its_journal_apart(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, Untouchable(NODES, start_delay_s=1e6))
    site.mode = ControllerMode(shadow=True)
    site.submit(gpus_per_node=8, run_time_s=100.0)
    site.slurm.submit(SubmitSpec(gpus_per_node=4, held=False))
    site.slurm.submit(SubmitSpec(gpus_per_node=16, held=False))
    site.run(*[lambda: None] * 5)
    assert [event["job"] for event in site.events("would_start")] == ["1", "2"]
    assert (site.state / "shadow" / "journal.sqlite").exists()
    assert heartbeat_s(site.state) is None


def test_draining_starts_nothing(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    site.mode = ControllerMode(drain=True)
    job = site.submit(gpus_per_node=8)
    site.run(lambda: None)
    assert site.states() == {job: "PENDING"}


def test_without_slurm_it_backs_off_and_goes_on(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, poll_s=2.0)
    job = site.submit(gpus_per_node=8)
    site.slurm.unavailable = True
    site.run(*[lambda: None] * 6, lambda: setattr(site.slurm, "unavailable", False))
    assert site.signals.paused_s[:7] == [2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_BACKOFF_S, LONGEST_BACKOFF_S]
    assert [event["again_in_s"] for event in site.events("slurm_unavailable")][:2] == [2.0, 4.0]
    assert len(site.events("slurm_unavailable")) == 7
    assert site.events("recovered")[0]["failures"] == 7
    site.slurm.unavailable = False
    assert site.states() == {job: "RUNNING"}


def test_without_slurm_it_still_gives_signs_of_life(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    site.slurm.unavailable = True
    site.run()
    beat_s = heartbeat_s(site.state)
    assert beat_s is not None
    assert abs(time.time() - beat_s) < 60


def test_an_error_of_the_journal_is_told_and_the_next_cycle_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = DaemonSite(tmp_path)
    job = site.submit(gpus_per_node=8)

    def full(*_: object, **__: object) -> None:
        raise JournalError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(Journal, "commit", full)
        site.run(lambda: site.states()[job] == "PENDING" or pytest.fail("started"), broken.undo)
    assert [event["reason"] for event in site.events("journal_error")] == ["disk full"] * 2
    assert site.states() == {job: "RUNNING"}


def test_a_controller_that_was_taken_over_ends(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)

    def take_over() -> None:
        with sqlite3.connect(site.state / "journal.sqlite") as file:
            file.execute("UPDATE facts SET value = '99' WHERE name = 'epoch'")

    with pytest.raises(FencedError, match="another controller has taken over"):
        site.run(take_over)


def test_a_second_controller_says_who_is_at_work(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    said: list[str] = []

    def another() -> None:
        result = CliRunner().invoke(main, ["controller", "--config", str(site.config)])
        said.append(f"{result.exit_code} {result.stderr}")

    site.run(another)
    assert said[0].startswith("1 dally: another controller is at work (process ")
    assert said[0].count("\n") == 1


def test_it_rests_at_least_three_times_as_long_as_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = DaemonSite(tmp_path, poll_s=1.0)
    seconds = count()
    monkeypatch.setattr("slurm_plugin.controller.controller.time.perf_counter", lambda: float(next(seconds)))
    site.run()
    assert site.signals.paused_s == [REST * 1.0]


def test_it_wakes_up_when_the_policy_wants_to_be_asked(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, poll_s=30.0, policy="dally:timers=manual,machine=1,rack=9,lease_s=5")
    for _ in range(4):
        site.submit(gpus_per_node=7)
    site.run()
    site.submit(gpus_per_node=0, gpus=4)
    site.run()
    assert site.signals.paused_s == [5.0]


def test_a_changed_configuration_is_taken_up(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    job = site.submit(gpus_per_node=8)

    def change() -> None:
        site.configure(policy="tiresias")
        site.signals.reload = True

    site.run(change, lambda: None)
    assert site.events("reloaded")[0]["policy"] == "tiresias"
    assert site.states() == {job: "RUNNING"}
    assert len(site.events("start")) == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"policy": "none"}, "unknown policy 'none'"),
        ({"poll_s": 0}, "poll_s is 0"),
        ({"cluster": "/none"}, "is neither a file"),
        ({"partitions": ["none"]}, "has no node of Dally's partitions"),
        ({"state_dir": "/other"}, "state_dir has changed: that needs a restart"),
    ],
)
def test_a_wrong_configuration_is_told_and_the_old_one_kept(
    tmp_path: Path, wrong: dict[str, object], reason: str
) -> None:
    site = DaemonSite(tmp_path)

    def change() -> None:
        site.configure(**wrong)
        site.signals.reload = True
        site.submit(gpus_per_node=8)

    site.run(change, lambda: None)
    (kept,) = site.events("configuration_rejected")
    assert reason in kept["reason"]
    assert site.states() == {"1": "RUNNING"}


def test_changed_files_of_the_cluster_are_read_again_and_jobs_run_on(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    site.submit(gpus_per_node=8)
    site.run(lambda: site.describe("n[1-4]", "SwitchName=all Nodes=n[1-4]\n"), lambda: None)
    assert len(site.events("cluster")) == 2
    assert site.daemon is not None
    assert site.daemon.status.as_data()["jobs"]["running"] == 1


def test_wrong_files_of_the_cluster_are_told_once_and_the_old_cluster_kept(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)

    def spoil() -> None:
        site.describe("n[1-4]", "nonsense\n")
        site.submit(gpus_per_node=8)

    site.run(spoil, lambda: None, lambda: None)
    (kept,) = site.events("cluster_rejected")
    assert "neither SwitchName nor BlockName" in kept["reason"]
    assert site.states() == {"1": "RUNNING"}


def test_nodes_of_other_partitions_get_nothing(tmp_path: Path) -> None:
    mixed = [FakeNode("n1", 8, ("other",)), *NODES[1:]]
    site = DaemonSite(tmp_path, FakeSlurm(mixed))
    for _ in range(4):
        site.submit(gpus_per_node=8)
    site.run(lambda: None)
    assert [*site.states().values()].count("RUNNING") == 3
    assert all("n1" not in job.gpus for job in site.slurm.jobs())
    assert site.events("cluster")[0]["nodes"] == 3


def test_a_node_that_slurm_has_moved_to_our_partition_is_used_after_a_while(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, poll_s=SETTLE_S)
    site.slurm.change_node(FakeNode("n1", 8, ("other",)))
    for _ in range(4):
        site.submit(gpus_per_node=8)
    site.run(lambda: site.slurm.change_node(NODES[0]), lambda: None, lambda: None)
    assert [event["nodes"] for event in site.events("cluster")] == [3, 4]
    assert [*site.states().values()].count("RUNNING") == 4


def test_nodes_that_are_gone_for_a_moment_change_nothing(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, poll_s=SETTLE_S / 2)
    site.run(
        lambda: site.slurm.change_node(FakeNode("n1", 0, ("gpu",))),
        lambda: site.slurm.change_node(NODES[0]),
        lambda: None,
        lambda: None,
    )
    assert len(site.events("cluster")) == 1


def test_slurms_count_of_gpus_holds_and_the_difference_is_told(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, FakeSlurm([FakeNode("n1", 4), FakeNode("n9", 8), *NODES[1:]]))
    site.run()
    (event,) = site.events("cluster")
    assert (event["nodes"], event["gpus"], event["unknown"], event["differ"]) == (4, 28, ["n9"], ["n1"])


class EndsInCycle(Pauses):
    """The end is asked for while the first cycle looks at Slurm."""

    def wait(self, seconds: float) -> None:
        self.end = self._looks == 1
        self._looks += 1


def test_the_end_is_taken_in_the_middle_of_a_cycle_where_nothing_is_half_done(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    job = site.submit(gpus_per_node=8)
    site.pauses = EndsInCycle
    site.run()
    assert site.states() == {job: "PENDING"}
    assert site.events()[-1]["event"] == "controller_ends"


def test_once_is_one_cycle_and_fails_without_slurm(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path)
    site.start().run(once=True)
    assert site.signals.paused_s == []
    site.slurm.unavailable = True
    with pytest.raises(SlurmUnavailableError):
        site.start().run(once=True)


@pytest.mark.parametrize(
    ("number", "end", "reload"),
    [(signal.SIGTERM, True, False), (signal.SIGINT, True, False), (signal.SIGHUP, False, True)],
)
def test_a_signal_ends_a_wait_and_says_what_to_do(number: int, end: bool, reload: bool) -> None:
    with Signals() as signals:
        # To this thread: others of the tests' process, which began earlier, do not keep signals back.
        signal.pthread_kill(threading.get_ident(), number)
        signals.wait(60.0)
        assert (signals.end, signals.reload) == (end, reload)


def test_signals_are_taken_as_before_afterwards() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with Signals() as signals:
        assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signals.wait(0.0)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert not signals.end


def test_events_that_nobody_reads_any_more_do_no_harm() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        log = DaemonLog(out)
        log(1.0, "first")
        log(2.0, "second")
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def test_an_event_is_one_line_whatever_it_says() -> None:
    out = io.StringIO()
    DaemonLog(out)(1.0004, "start_failed", reason="two\nlines \x1b[2J")
    assert out.getvalue() == '{"t": 1.0, "event": "start_failed", "reason": "two\\nlines \\u001b[2J"}\n'


def test_it_schedules_without_pages_until_the_port_can_be_had(tmp_path: Path) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        site = DaemonSite(tmp_path, listen=f"127.0.0.1:{squatter.getsockname()[1]}")
        job = site.submit(gpus_per_node=8)
        served: list[bool] = []

        def look() -> None:
            assert site.daemon is not None
            served.append(site.daemon.server is not None)

        site.run(look, lambda: None, squatter.close, lambda: None, look)
    assert site.states() == {job: "RUNNING"}
    assert len(site.events("pages_unavailable")) == 1
    assert served == [False, True]
