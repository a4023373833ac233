"""The host waits for those who are asked for, but not for ever, and never for one who does not answer."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch._C._distributed_c10d import TCPStore

from dally.errors import InputError
from workloads.elastic import rendezvous as module
from workloads.elastic.folder import RendezvousFolder, RendezvousPoint
from workloads.elastic.rendezvous import MembershipChange, Newcomer, RendezvousHost, Terms, open_store
from workloads.group import JoinError
from workloads.stopping import StopRequest

TERMS: Terms = {"seed": 0, "model": "digits"}


class ElasticRanks:
    """A job of members a and b, whose first rank is this process."""

    def __init__(self, path: Path, patience_s: float = 100.0, most: float = 8) -> None:
        self.folder = RendezvousFolder(path)
        self.folder.prepare()
        self.folder.ask(into=["a", "b"])
        self.store: TCPStore
        self.store, self.meeting = open_store()
        self.host = RendezvousHost(self.folder, self.store, ["a", "b"], most, patience_s, TERMS)
        self.folder.open(self.meeting, {"a": "here", "b": "here"}, 0)

    def ready(self, *names: str) -> None:
        for name in names:
            self.store.set(f"ready/{name}", "")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_S", 0.0)
    monkeypatch.setattr(module, "_ANSWER_S", 0.05)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")


def test_nothing_changes_till_all_that_are_asked_for_are_ready(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks")
    assert not job.host.wants_change()
    job.folder.ask(into=["c", "d"])
    job.ready("c")
    assert not job.host.wants_change()
    job.ready("d")
    assert job.host.wants_change()


def test_one_that_never_comes_is_given_up_and_the_others_come(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks", patience_s=0.0)
    job.folder.ask(into=["c"])
    assert not job.host.wants_change()
    assert list(job.folder.wanted()[1]) == ["a", "b"]
    job.folder.ask(into=["c", "d"])
    job.ready("d")
    assert job.host.wants_change()


def test_one_that_was_ready_and_does_not_answer_is_left_out(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks")
    job.folder.ask(into=["c", "d"])
    job.ready("c", "d")
    job.store.set("here/d", "")
    assert job.host.plan([]) == MembershipChange(["a", "b"], ["d"])
    assert list(job.folder.wanted()[1]) == ["a", "b", "d"]


def test_without_any_answer_nothing_changes(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks")
    job.folder.ask(into=["c"])
    job.ready("c")
    assert job.host.plan([]) is None
    assert not job.host.wants_change()


def test_members_leave_at_once_whoever_is_awaited(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks")
    job.folder.ask(into=["c"], out=["a"])
    assert job.host.wants_change()
    assert job.host.plan([]) == MembershipChange(["b"], [])
    assert list(job.folder.wanted()[1]) == ["b", "c"]


def test_a_member_that_must_go_goes_unasked(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks")
    assert job.host.plan(["b"]) == MembershipChange(["a"], [])
    assert list(job.folder.wanted()[1]) == ["a"]


def test_there_are_never_more_ranks_than_samples(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks", most=2)
    job.folder.ask(into=["c"])
    job.ready("c")
    assert not job.host.wants_change()


def guest(job: ElasticRanks, crew: Sequence[str] = ("c",), stop: StopRequest | None = None) -> Newcomer:
    return Newcomer(job.folder, crew[0], crew, TERMS, stop or StopRequest())


def test_a_guest_is_taken_in(tmp_path: Path) -> None:
    job, came = ElasticRanks(tmp_path / "ranks"), list[tuple[RendezvousPoint, Sequence[str]] | None]()
    thread = threading.Thread(target=lambda: came.append(guest(job).join(10.0)))
    thread.start()
    while not job.host.wants_change():
        pass
    plan, after = job.host.plan([]), RendezvousPoint("gpu1", 4000, "next")
    assert plan == MembershipChange(["a", "b"], ["c"])
    job.host.admit(plan, after)
    thread.join()
    assert came == [(after, ["a", "b", "c"])]


def test_a_guest_with_other_settings_is_told(tmp_path: Path) -> None:
    job = ElasticRanks(tmp_path / "ranks")
    other = Newcomer(job.folder, "c", ["c"], {**TERMS, "seed": 1}, StopRequest())
    with pytest.raises(InputError, match="the job has seed 0, and this rank 1; start it with the same"):
        other.join(5.0)
    assert list(job.folder.wanted()[1]) == ["a", "b"]


def test_a_guest_withdraws_when_the_job_is_over_when_it_is_stopped_and_in_time(tmp_path: Path) -> None:
    job, stop = ElasticRanks(tmp_path / "ranks"), StopRequest()
    with pytest.raises(JoinError, match="no elastic job has taken this rank in in time"):
        guest(job).join(0.1)
    assert list(job.folder.wanted()[1]) == ["a", "b"]
    stop.asked = True
    assert guest(job, stop=stop).join(5.0) is None
    job.folder.close()
    assert guest(job).join(5.0) is None
