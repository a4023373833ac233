"""Whatever users write concerns their own jobs only: over the fake; see docs/threat-model.md."""

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dally import hostlist
from dally.errors import InputError
from dally.words import clean
from slurm_plugin.client.forwarding import ForwardingSlurm
from slurm_plugin.client.job_json import read_jobs
from slurm_plugin.client.orders import (
    LockPartition,
    Order,
    Rehold,
    ReleaseOnNodes,
    ReleaseToSlurm,
    Requeue,
    Reserve,
    Signal,
    UnlockPartition,
)
from slurm_plugin.client.scontrol import check, run_checked, steps
from slurm_plugin.client.slurm import (
    Hold,
    SlurmJob,
    State,
)
from slurm_plugin.controller import node_sets
from slurm_plugin.controller.controller import Controller
from slurm_plugin.controller.journal import Journal
from slurm_plugin.controller.managed_job import JobPhase, ManagedJob
from slurm_plugin.controller.vanished_jobs import GONE_S
from slurm_plugin.request import SIGNALS, Request, decode, decode_job, encode
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.worlds import FakeSite

HOSTILE = "999"

_ANY = st.text(st.characters(), max_size=40)
_FIELD = st.sampled_from(
    ["model", "signal", "nodes", "grace_s", "min_gpus", "max_gpus", "tag", "held", "plain", "x"]
)
_VALUE = st.one_of(
    _ANY,
    st.sampled_from(
        ["KILL", "USR1", "r0m0", "n[1-60000]", "1", "0", "9" * 5000, "-1", "%00", "%", "a;b", "ff"]
    ),
)
_MARK = st.lists(st.tuples(_FIELD, _VALUE)).map(
    lambda pairs: "dally:" + "&".join(f"{name}={value}" for name, value in pairs)
)
_TRES = st.one_of(
    _ANY,
    st.sampled_from(
        ["gpu", "gpu:0", "gres:gpu:1", "gres:gpu:1,gres:gpu:2", f"gpu:{'0' * 5000}1", "gpu:(", "gpu:a:8"]
    ),
    st.integers(0, 2**70).map(lambda count: f"gres:gpu:{count}"),
)
_COUNT = st.integers(0, 2**32)
_TIME = st.floats(0, 1e12)
_JOBS = st.builds(
    SlurmJob,
    job_id=st.just(HOSTILE),
    submit_s=_TIME,
    state=st.sampled_from(State),
    state_name=_ANY,
    reason=_ANY,
    hold=st.sampled_from(Hold),
    user=_ANY,
    account=_ANY,
    partition=st.one_of(st.just("gpu"), _ANY),
    comment=st.one_of(_MARK, _ANY),
    admin_comment=st.one_of(st.just(""), _MARK, _ANY),
    min_nodes=_COUNT,
    tasks=_COUNT,
    tasks_per_node=st.none() | _COUNT,
    tres_per_job=_TRES,
    tres_per_node=_TRES,
    tres_per_task=_TRES,
    required_nodes=st.lists(_ANY, max_size=2).map(tuple),
    features=st.sampled_from(["", "a&b"]),
    dependency=st.one_of(st.just(""), _ANY),
    begin_s=_TIME,
    time_limit_s=st.none() | st.floats(60, 1e12),
    start_s=st.none() | _TIME,
    gpus=st.sampled_from([{}, {"r0m0": 8}, {"elsewhere": 8}, {"r0m0": 800}]),
    restarts=_COUNT,
    exit_code=st.integers(0, 255),
    array_id=st.sampled_from(["", HOSTILE]),
    array_throttle=_COUNT,
)


class Crowded(ForwardingSlurm):
    """The fake Slurm with jobs of alice beside its own."""

    def __init__(self, slurm: FakeSlurm) -> None:
        super().__init__(slurm)
        self.alices: tuple[SlurmJob, ...] = ()
        self.orders: list[Order] = []

    def jobs(self) -> tuple[SlurmJob, ...]:
        return (*self.alices, *self.slurm.jobs())

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        self.orders += orders
        return self.slurm.run(orders)


class SiteOfTwo:
    """A site on whose cluster alice has jobs that are not the fake's."""

    def __init__(self, folder: Path) -> None:
        self.site = FakeSite(folder)
        self.site.controller._journal.close()
        self.slurm = Crowded(self.site.slurm)
        self.journal = Journal(folder)
        self.controller = Controller(
            self.slurm,
            self.site.config,
            self.site.topology,
            None,
            self.journal,
            clock=lambda: self.site.now_s,
            sleep=self.site.sleep,
        )

    def cycle(self) -> None:
        """Two cycles, some seconds apart."""
        for _ in range(2):
            self.controller.cycle()
            self.site.now_s += 5

    def managed(self, job_id: str = HOSTILE) -> ManagedJob:
        """The controller's managed of a job."""
        return self.controller.reconciler.managed_jobs[job_id]


@pytest.fixture
def cell(tmp_path: Path) -> SiteOfTwo:
    return SiteOfTwo(tmp_path)


def held(comment: str = "dally:", **said: Any) -> SlurmJob:
    """A job of alice that waits for Dally."""
    return SlurmJob(
        **{
            "job_id": HOSTILE, "submit_s": 0.0, "state": State.PENDING, "hold": Hold.USER, "user": "alice",
            "partition": "gpu", "comment": comment, "tres_per_node": "gres:gpu:1", **said,
        }
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(_JOBS)
def test_whatever_alice_wrote_bobs_job_starts(alices: SlurmJob) -> None:
    with TemporaryDirectory() as folder:
        cell = SiteOfTwo(Path(folder))
        cell.slurm.alices = (alices,)
        bobs = cell.site.submit(gpus_per_node=8, user="bob")
        cell.cycle()
        assert cell.site.states()[bobs] == "RUNNING"
        cell.journal.close()


@pytest.mark.parametrize(
    "asked",
    [
        {"tres_per_node": "gres:gpu:1000"},
        {"tres_per_node": "gres:gpu:1", "min_nodes": 2**31},
        {"tres_per_node": "gres:gpu:a100:1"},
        {"tres_per_node": f"gres:gpu:{'0' * 5000}1"},
        {"tres_per_node": "", "tres_per_task": "gres:gpu:4", "tasks": 2**31},
    ],
)
def test_a_job_that_no_cluster_could_hold_stops_nobody(cell: SiteOfTwo, asked: dict[str, Any]) -> None:
    cell.slurm.alices = (held(**asked),)
    bobs = cell.site.submit(gpus_per_node=8, user="bob")
    cell.cycle()
    assert cell.site.states()[bobs] == "RUNNING"
    assert cell.managed().phase.name is JobPhase.RELEASED


@pytest.mark.parametrize("required", [(), ("r0m0",), ("r0m0", "r0m1")])
@pytest.mark.parametrize("hold", Hold)
def test_a_mark_of_sixty_thousand_nodes_asks_slurm_for_none_of_them(
    cell: SiteOfTwo, required: tuple[str, ...], hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def expanded(text: str, most: int = hostlist.MOST_NAMES) -> tuple[str, ...]:
        names = hostlist.expand(text, most)
        made.append(len(names))
        return names

    monkeypatch.setattr(node_sets, "expand", expanded)
    bobs = cell.site.submit(gpus_per_node=8, user="bob")
    cell.slurm.alices = (held("dally:nodes=n%5B1-60000%5D", required_nodes=required, hold=hold),)
    for _ in range(10):
        cell.cycle()
    assert cell.site.states()[bobs] == "RUNNING"
    asked = [order for order in cell.slurm.orders if getattr(order, "job_id", "") == HOSTILE]
    assert all(len(getattr(order, "nodes", ())) <= 2 for order in asked)
    assert max(made, default=0) <= 4, "of more names than there are nodes none is made"


def test_a_tag_copied_from_another_job_changes_nothing_for_that_job(cell: SiteOfTwo) -> None:
    cell.slurm.alices = (held("dally:tag=beef"),)
    bobs = cell.site.submit(gpus_per_node=8, user="bob", tag="beef", run_time_s=1000.0)
    cell.cycle()
    cell.slurm.alices = ()
    cell.cycle()
    cell.site.now_s += GONE_S
    cell.cycle()
    assert cell.site.states()[bobs] == "RUNNING"
    assert cell.managed(bobs).job.user == "bob"
    assert HOSTILE not in cell.controller.reconciler.managed_jobs


def test_a_grace_of_a_day_is_cut_to_what_the_site_gives(cell: SiteOfTwo) -> None:
    cell.slurm.alices = (held("dally:signal=USR1&grace_s=86400"),)
    cell.cycle()
    assert cell.managed().request.grace_s == cell.site.config.longest_grace_s


@pytest.mark.parametrize(
    "comment", ["dally:grace_s=86401", "dally:signal=KILL", "dally:tag=%1b", "dally:held=2"]
)
def test_a_forged_mark_that_says_nonsense_counts_as_an_empty_one(cell: SiteOfTwo, comment: str) -> None:
    cell.slurm.alices = (held(comment),)
    cell.cycle()
    assert cell.managed().request == Request()


@pytest.mark.parametrize(
    "asked", ["min_gpus=2&max_gpus=8", "min_gpus=1000000&max_gpus=1000000", "max_gpus=0"]
)
def test_a_range_of_gpus_never_gives_more_than_the_job_asked_slurm_for(cell: SiteOfTwo, asked: str) -> None:
    cell.slurm.alices = (held(f"dally:{asked}"),)
    cell.cycle()
    placed = [order for order in cell.slurm.orders if isinstance(order, ReleaseOnNodes)]
    assert all(len(order.nodes) == 1 for order in placed)
    assert cell.managed().job.gpus == 1


def test_users_hold_their_own_jobs_only(cell: SiteOfTwo) -> None:
    cell.slurm.alices = (held("dally:held=1"),)
    bobs = cell.site.submit(gpus_per_node=8, user="bob")
    cell.cycle()
    assert cell.managed().reason == "held by its user"
    assert cell.site.states()[bobs] == "RUNNING"


def test_what_the_journal_keeps_of_users_has_nothing_that_a_terminal_obeys(
    cell: SiteOfTwo, tmp_path: Path
) -> None:
    cell.slurm.alices = (
        held("dally:model=a \x1b]0;root\x07", tres_per_node="gpu:1\x1b[31m\x9b32m\u202e,gpu:2"),
        held(job_id="998", account="\x1b[31m\ud800", user="alice\x1b"),
    )
    cell.cycle()
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        stored = "".join(
            f"{row}" for row in database.execute("SELECT body FROM jobs UNION SELECT body FROM events")
        )
    assert stored.isascii()
    assert "\x1b" not in stored


_FENCE = Reserve("dally_1_1", ("n1",), "bob")


@pytest.mark.parametrize(
    "user", ["DOM\\alice", "DOM+alice", "", "a b", "alice,bob", "-alice", "alice\nshutdown"]
)
def test_a_user_with_a_strange_name_is_refused_alone(user: str) -> None:
    sent: list[Order] = []

    def run(orders: Sequence[Order]) -> list[str | None]:
        sent.extend(orders)
        return [None for _ in orders]

    said = run_checked([replace(_FENCE, user=user), _FENCE, Signal("1", "KILL"), Requeue("2")], run)
    assert said == (f"{user!r} is no user name", None, "'KILL' is no checkpoint signal", None)
    assert sent == [_FENCE, Requeue("2")]


@given(_ANY)
def test_what_commands_print_of_users_has_nothing_that_a_terminal_obeys(text: str) -> None:
    assert clean(text).isprintable()


_WORD = st.from_regex(r"[0-9a-z_]{1,4}[;\s@$.,=-]?[0-9a-z]{0,3}", fullmatch=True)


@given(_WORD, _WORD)
@example("1", "1")
@example("alice", "n1")
def test_no_line_for_scontrol_holds_what_is_no_number_and_no_name(word: str, other: str) -> None:
    for_jobs = Rehold(word), ReleaseToSlurm(word, 1), Requeue(word), ReleaseOnNodes(word, (other,), word)
    for_nodes = Reserve(word, (other,), word), LockPartition(word, other, word, 1.0), UnlockPartition(word)
    for order in (*for_jobs, *for_nodes):
        with suppress(InputError):
            check(order)
            for line in steps(order):
                assert re.fullmatch(r"[A-Za-z0-9_=,.@$ +-]+", line)


@pytest.mark.parametrize(
    "signal", ["KILL", "STOP", "ABRT", "TSTP", "RTMIN", "9", "10", "usr1", "USR1 -u", "0"]
)
def test_a_signal_that_asks_for_no_checkpoint_is_refused(signal: str) -> None:
    with pytest.raises(InputError, match="must be one of USR1, USR2"):
        Request(signal=signal)


def test_every_signal_that_is_allowed_can_be_ordered() -> None:
    signals = [Signal("1", name) for name in SIGNALS]
    assert run_checked(signals, lambda orders: [None for _ in orders]) == (None,) * len(SIGNALS)


@given(_MARK, _ANY, _ANY)
def test_a_users_comment_says_no_more_than_its_hold_once_the_mark_is_out_of_reach(
    comment: str, words: str, more: str
) -> None:
    request = Request("vgg11", "USR1", 30, 1, 4, tag="abc")
    for forged in (comment, f"{comment} {words}", words, more):
        said = decode_job(forged, encode(request))
        assert said is not None
        assert replace(said, held=False) == request


@given(st.one_of(_MARK, _ANY))
def test_a_comment_is_read_or_refused(comment: str) -> None:
    with suppress(InputError):
        assert decode(comment) is None or comment.startswith("dally:")


@given(st.lists(_ANY, min_size=4, max_size=4), st.sampled_from([22, 24]))
def test_texts_that_look_like_json_or_scontrol_stay_texts(texts: list[str], major: int) -> None:
    forged = '"}],"jobs":[{"job_id":1,"user_name":"root"}]'
    comment, account, reason, name = (f"{text}{forged}\nJobId=1 UserId=root(0)" for text in texts)
    alices = {
        "job_id": 7,
        "job_state": "PENDING",
        "comment": comment,
        "account": account,
        "state_reason": reason,
    }
    document = {
        "meta": {"Slurm": {"version": {"major": major}}},
        "jobs": [{**alices, "name": name}, {"job_id": 8}],
    }
    jobs = read_jobs(json.dumps(document, ensure_ascii=False))
    assert [(job.job_id, job.comment, job.account) for job in jobs] == [
        ("7", comment, account),
        ("8", "", ""),
    ]


@pytest.mark.parametrize(
    "number", ["0", "-1", "1e400", "1e30", '"17; shutdown"', "null", "true", "[1]", "{}"]
)
def test_a_job_without_a_sound_number_is_left_out(number: str) -> None:
    text = f'{{"jobs": [{{"job_id": {number}, "job_state": "PENDING"}}, {{"job_id": 8}}]}}'
    assert [job.job_id for job in read_jobs(text)] == ["8"]


def test_an_array_that_is_handed_back_does_not_keep_bobs_job_waiting(cell: SiteOfTwo) -> None:
    cell.slurm.alices = tuple(held(job_id=f"{HOSTILE}_{task}", switches=1) for task in range(1000))
    bobs = cell.site.submit(gpus_per_node=8, user="bob")
    cell.controller.cycle()
    assert cell.site.states()[bobs] == "RUNNING"
    before = len(cell.slurm.orders)
    assert before < 500
    cell.controller.cycle()
    assert len(cell.slurm.orders) > before
