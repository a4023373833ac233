"""How newcomers join a job that runs: they meet its first rank, the host, at a store of torch's.

A newcomer says at the store that it is ready, and asks in the folder to be taken in. The job trains on until
all that are asked for are ready, or have not come for long. At the change the host calls, those that answer
are taken in, and the others are left out: so no rank that has died meanwhile is waited for.
"""

import json
import os
import socket
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from dally.errors import InputError
from workloads.elastic.folder import RendezvousFolder, RendezvousPoint
from workloads.group import JoinError, RankEnvironment
from workloads.stopping import StopRequest

_CHECK_S = 0.2
"""How often the host reads the folder."""

_POLL_S = 0.02
"""How often a newcomer looks whether it is called."""

_ANSWER_S = 5.0
"""So long the host waits for newcomers' answers to its call."""

_CONNECT = timedelta(seconds=30)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Terms = Mapping[str, str | float | None]
"""What must be the same on all ranks of a job, by names for people."""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A change of the members of a job.

    Attributes:
        staying: Members that go on, in order.
        newcomers: Those taken in.
    """

    staying: Sequence[str]
    newcomers: Sequence[str]

    @property
    def members(self) -> Sequence[str]:
        """All members after the change, in order of rank."""
        return [*self.staying, *self.newcomers]


def siblings(place: RankEnvironment) -> Sequence[str]:
    """Names of all ranks that were started together with this one, in order of their ranks."""
    env = os.environ
    if "RANK" in env:
        launch = f"{place.host}:{place.port}"
    elif "SLURM_PROCID" in env and "SLURM_NTASKS" in env:
        launch = f"{env.get('SLURM_JOB_ID')}.{env.get('SLURM_STEP_ID')}"
    else:
        launch = f"{socket.gethostname()}:{os.getpid()}"
    return [f"{launch}/{rank}" for rank in range(place.size)]


def machine() -> str:
    """This machine's name, Slurm's if it has one."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def open_store() -> tuple[TCPStore, RendezvousPoint]:
    """A store on this machine, and where it is."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    master = os.environ.get("MASTER_ADDR")
    return store, RendezvousPoint(master if master in _LOOPBACK else machine(), store.port, uuid.uuid4().hex)


def connect(meeting: RendezvousPoint) -> TCPStore:
    """The store that another has opened.

    Raises:
        OSError: Nobody listens there.
        RuntimeError: It is gone.
    """
    address = meeting.host, meeting.port  # torch would print pages of stacks if nobody listened
    socket.create_connection(address, _CONNECT.total_seconds()).close()
    return TCPStore(*address, is_master=False, wait_for_workers=False, timeout=_CONNECT)


class RendezvousHost:
    """The first rank's side.

    Args:
        folder: The job's.
        store: Opened by this rank.
        members: Of the group, by rank.
        most: So many ranks the job can have.
        patience_s: How long a newcomer is waited for, while training goes on.
        terms: The job's.
    """

    def __init__(
        self,
        folder: RendezvousFolder,
        store: TCPStore,
        members: Sequence[str],
        most: float,
        patience_s: float,
        terms: Terms,
    ) -> None:
        self._folder, self._store, self._members = folder, store, members
        self._most, self._patience_s = most, patience_s
        self._checked_s = float("-inf")
        self._asked_s: dict[str, float] = {}
        store.set("terms", json.dumps(terms))

    def wants_change(self) -> bool:
        """Whether members are to leave, or all newcomers that are still waited for are ready."""
        now_s = time.monotonic()
        if now_s - self._checked_s < _CHECK_S:
            return False
        self._checked_s = now_s
        _, wanted = self._folder.wanted()
        staying = [name for name in self._members if name in wanted]
        if len(staying) < len(self._members):
            return True
        ready, awaited, lost = self._sort(wanted)
        if lost:
            self._folder.ask(out=lost)
        return not awaited and bool(ready[: self._room(staying)])

    def plan(self, leaving: Collection[str]) -> MembershipChange | None:
        """What changes; None if nothing does.

        Args:
            leaving: Members that must go, even if they are asked for.
        """
        _, wanted = self._folder.wanted()
        staying = [name for name in self._members if name in wanted and name not in leaving]
        ready, _, lost = self._sort(wanted)
        called = ready[: self._room(staying)] if staying else []
        newcomers = self._call(called)
        self._folder.ask(out=[*leaving, *lost, *(name for name in called if name not in newcomers)])
        if not newcomers and len(staying) == len(self._members):
            return None
        return MembershipChange(staying, newcomers)

    def admit(self, plan: MembershipChange, meeting: RendezvousPoint) -> None:
        """Tell the newcomers who is in, and where the new group meets."""
        self._store.set("members", json.dumps({"members": plan.members, "meeting": asdict(meeting)}))

    def _room(self, staying: Sequence[str]) -> int:
        return int(max(0, min(self._most, 1 << 30) - len(staying)))

    def _sort(self, wanted: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """Newcomers that are ready, that are waited for, and that have not come for long."""
        ready, awaited, lost = list[str](), list[str](), list[str]()
        for name in wanted:
            if name in self._members:
                continue
            since_s = self._asked_s.setdefault(name, time.monotonic())
            if self._store.check([f"ready/{name}"]):
                ready.append(name)
            else:
                (awaited if time.monotonic() - since_s < self._patience_s else lost).append(name)
        return ready, awaited, lost

    def _call(self, names: Sequence[str]) -> Sequence[str]:
        """Those that answer in time."""
        if not names:
            return []
        self._store.set("call", "")
        until_s = time.monotonic() + _ANSWER_S
        answers = [f"here/{name}" for name in names]
        while not self._store.check(answers) and time.monotonic() < until_s:
            time.sleep(_POLL_S / 4)
        return [name for name in names if self._store.check([f"here/{name}"])]


class Newcomer:
    """A newcomer's side.

    Args:
        folder: The job's.
        name: Of this rank.
        siblings: Of all ranks that were started with it, which come together.
        terms: Of the job as this rank knows it.
        stop: Whether it was asked to stop.
    """

    def __init__(
        self, folder: RendezvousFolder, name: str, siblings: Sequence[str], terms: Terms, stop: StopRequest
    ) -> None:
        self._folder, self._name, self._siblings = folder, name, siblings
        self._terms, self._stop = terms, stop

    def join(self, timeout_s: float) -> tuple[RendezvousPoint, Sequence[str]] | None:
        """Wait to be taken in: where the new group meets, and its members; None if there is no need.

        Raises:
            InputError: This rank's command line does not fit the job.
            JoinError: The job did not take it in within the time.
        """
        until_s, tried = time.monotonic() + timeout_s, None
        try:
            while self._waits(until_s):
                meeting = self._folder.rendezvous()
                if meeting is None or meeting == tried:
                    time.sleep(_POLL_S)
                    continue
                tried = meeting
                try:
                    store = connect(meeting)
                    if invitation := self._wait(store, until_s):
                        return invitation
                except (OSError, RuntimeError):
                    pass  # the group has changed meanwhile, or it is one that has ended
        except BaseException:
            self._folder.ask(out=[self._name])
            raise
        self._folder.ask(out=[self._name])
        return None

    def _waits(self, until_s: float) -> bool:
        if self._stop.asked or self._folder.is_over():
            return False
        if time.monotonic() > until_s:
            raise JoinError(f"{self._name}: no elastic job has taken this rank in in time; does one run?")
        return True

    def _wait(self, store: TCPStore, until_s: float) -> tuple[RendezvousPoint, Sequence[str]] | None:
        """Wait at one group until it changes; None if that was without this rank."""
        store.wait(["terms"], _CONNECT)
        self._compare(json.loads(store.get("terms")))
        store.set(f"ready/{self._name}", "")
        self._folder.ask(into=self._siblings)
        while not store.check(["call"]):
            if not self._waits(until_s):
                return None
            time.sleep(_POLL_S)
        store.set(f"here/{self._name}", "")
        store.wait(["members"], _CONNECT)
        content = json.loads(store.get("members"))
        if self._name not in content["members"]:
            return None
        return RendezvousPoint(**content["meeting"]), content["members"]

    def _compare(self, terms: Terms) -> None:
        for name, value in self._terms.items():
            if terms.get(name) != value:
                raise InputError(
                    f"the job has {name} {terms.get(name)}, and this rank {value}; start it with the same"
                )
