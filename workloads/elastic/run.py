"""One rank of an elastic job: steps, and changes of the group between them."""

import gc
import importlib
import os
import time
from collections.abc import Mapping, Sequence

from torch._C._distributed_c10d import PrefixStore, TCPStore

from workloads.checkpoint import load_checkpoint
from workloads.elastic.folder import Folder, Meeting
from workloads.elastic.rendezvous import (
    Guest,
    Host,
    MembershipChange,
    Terms,
    connect,
    machine,
    open_store,
    siblings,
)
from workloads.elastic.rules import Ramp, Size, most_ranks, size_on
from workloads.elastic.spread import spread, tell
from workloads.group import Group, RankEnvironment, find_device, find_place, first_line, gather, join, leave
from workloads.progress import Progress
from workloads.registry import find_workload
from workloads.saving import Saver
from workloads.settings import BatchRule, Elastic, TrainingJob
from workloads.signals import StopRequest
from workloads.step_sync import Pulse, StepReport, TrainingError
from workloads.steps import Steps

_FORM_S = 60.0
"""How long members wait for each other at a change: all were there a moment before."""

_FIRST_STEPS = 2
"""Of a group, which take longer than others."""

_LOADED_BY_DDP = "torch._dynamo"
"""It takes a second or more, which members would wait for at their first change."""


def run_elastic(job: TrainingJob, elastic: Elastic, stop: StopRequest) -> bool:
    """Train until the job is done, it is asked to stop, or this rank leaves it.

    Returns:
        Whether this rank has nothing left to do: if not, what is done is in the checkpoint, or the job goes
        on without this rank, which is to join it again.

    Raises:
        DallyError: One of its children: the job is wrong, ranks did not meet, or training failed.
    """
    importlib.import_module(_LOADED_BY_DDP)
    member = _Member(job, elastic, stop, find_place(os.environ))
    try:
        begun = member.come() if elastic.joins else member.begin()
        return member.run() if begun else not stop.back
    except RuntimeError as error:  # torch's: memory, CUDA, another rank that is gone
        raise TrainingError(f"{member.name} failed: {first_line(error)}") from error


class _Member:
    """This rank, alone at first.

    Attributes:
        name: Its name in the folder.
    """

    def __init__(self, job: TrainingJob, elastic: Elastic, stop: StopRequest, place: RankEnvironment) -> None:
        self._job, self._elastic, self._stop, self._place = job, elastic, stop, place
        self._crew = siblings(place)
        self.name = self._crew[place.rank]
        self._folder = Folder(elastic.folder)
        device = find_device(job.backend, place.local_rank)
        alone = Group(0, 1, place.local_rank, device, job.backend)
        self._steps = Steps(job, alone, 0, 1)
        self._lr = find_workload(job.model).learning_rate
        self._total = job.steps * job.settings.global_batch
        self._done = self._samples = self._first = self._formed = 0
        self._saver: Saver | None = None
        gc.freeze()  # what is there by now stays: changes collect garbage, and need not look at it

    def begin(self) -> bool:
        """Start the job with those that the launcher started, from the checkpoint if there is one."""
        group = join(self._job.backend, self._job.join_timeout_s)
        saver = Saver(self._job, group)
        if group.rank == 0:
            saver.take()
            self._folder.prepare()
            self._folder.ask(into=self._crew)
            self._load()
        self._enter(group, saver, None)
        if self._progress:
            self._progress.start(self._done)
        return True

    def come(self) -> bool:
        """Join the job that runs; False if it has ended, or this rank was asked to stop."""
        guest = Guest(self._folder, self.name, self._crew, self._terms(), self._stop)
        invitation = guest.come(self._job.join_timeout_s)
        if invitation:
            self._meet(*invitation, None)
        return invitation is not None

    def run(self) -> bool:
        """Train; whether this rank has nothing left to do."""
        while not self._is_done():
            stop, pause = self._step()
            if stop:
                break
            if pause and not self._is_done() and not self._change():
                return not (self._leaves() and self._stop.back)
        if self._progress:
            self._end(self._progress)
        self._leave()
        return self._is_done() or self._elastic.joins

    def _step(self) -> tuple[bool, bool]:
        """One step, and what follows it; whether to stop, and whether to pause."""
        if self._ramp:
            self._steps.trainer.learning_rate = self._ramp.at(self._done)
        loss = self._steps.train(self._done, self._samples)
        self._done += 1
        self._samples += self._size.batch
        stop, pause = self._hear(self._pulse.send(self._done, loss, self._must_stop(), self._wants_change()))
        saves = self._is_done() or self._job.saves_after(self._done)
        if stop or pause or saves:
            too = self._hear(self._pulse.settle())
            stop, pause = stop or too[0], pause or too[1]
        if stop or saves:
            self._save()
        if self._progress and self._job.judges_after(self._done) and (score := self._steps.score()):
            self._progress.note_score(score, self._done)
            self._pulse.rest()
        return stop, pause

    def _hear(self, report: StepReport | None) -> tuple[bool, bool]:
        """Note how a step went; whether to stop after it, and whether to pause."""
        if report is None:
            return False, False
        tuning = self._steps.trainer.tuning
        if tuning and report.step > self._formed + _FIRST_STEPS:
            tuning.note(self._group.size, self._size.batch, report.seconds)
        if self._progress and self._elastic.rule is BatchRule.KEEP:
            self._progress.note(report)
        elif self._progress:
            samples = self._samples - (self._done - report.step) * self._size.batch
            self._progress.note(report, self._size.batch, samples)
        return report.stop, report.pause

    def _is_done(self) -> bool:
        return self._samples >= self._total

    def _leaves(self) -> bool:
        """Whether this rank, not the job, was asked to stop."""
        return self._stop.asked and self._elastic.joins

    def _must_stop(self) -> bool:
        asked = self._stop.asked and not self._elastic.joins
        return asked or (self._saver is not None and self._saver.is_lost())

    def _wants_change(self) -> bool:
        return self._leaves() or (self._host is not None and self._host.wants_change())

    def _change(self) -> bool:
        """Go on in another group, if there is need; False if this rank is not in it."""
        members = list(self._members)
        leaving = [name for name, goes in zip(members, self._gather_leaving(), strict=True) if goes]
        plan = tell(self._group, 0, self._plan(leaving))
        if plan is None:
            return True
        if not plan.staying:
            self._save()
            if self._progress:
                self._end(self._progress)
            return False
        first = members.index(plan.staying[0])
        store, opened = open_store() if self._group.rank == first else (None, None)
        meeting = tell(self._group, first, opened)
        assert meeting
        if self._host:
            self._host.admit(plan, meeting)
        self._leave()
        if self.name in plan.staying:
            self._meet(meeting, plan.members, store)
            return True
        if self._host and plan.newcomers:
            _wait_for(meeting)
        return False

    def _leave(self) -> None:
        self._steps.trainer.part()
        leave()

    def _gather_leaving(self) -> Sequence[int]:
        return gather(self._group, int(self._leaves()))

    def _plan(self, leaving: Sequence[str]) -> MembershipChange | None:
        """The first rank's; if it is to leave, it gives up the checkpoint before anybody takes it."""
        if not self._host:
            return None
        plan = self._host.plan(leaving)
        if plan and plan.staying and self.name not in plan.staying and self._saver:
            self._saver.release()
        return plan

    def _meet(self, meeting: Meeting, members: Sequence[str], store: TCPStore | None) -> None:
        """Form the new group; the first rank has opened the store."""
        own = store or connect(meeting)
        rank = members.index(self.name)
        place = RankEnvironment(rank, len(members), self._place.local_rank, meeting.host, meeting.port)
        group = join(self._job.backend, _FORM_S, place, PrefixStore(meeting.group, own))
        self._had = own
        goes_on = self._saver is not None and self._saver.owner is not None
        saver = self._saver if goes_on else Saver(self._job, group)
        assert saver
        if rank == 0 and not goes_on:
            saver.take()
        self._enter(group, saver, (store, meeting) if store else None)
        if store:
            store.set("formed", "")
        if self._progress:
            ranks = f"{group.size} rank{'s' * (group.size > 1)}"
            self._progress.tell(
                f"goes on after step {self._done} with {ranks}, batches of {self._size.batch}"
            )

    def _enter(self, group: Group, saver: Saver, opened: tuple[TCPStore, Meeting] | None) -> None:
        """Be a rank of this group: all go on from what its first one has."""
        self._group = group
        self._size = tell(group, 0, self._size_on(group.size))
        self._steps.regroup(group, self._size.batch)
        spread(group, self._steps.trainer)
        self._done, self._samples = tell(group, 0, (self._done, self._samples))
        self._ramp = self._make_ramp()
        self._formed = self._done
        self._members = self._gather_members()
        trainer = self._steps.trainer
        self._progress = Progress(self._job, group, trainer=trainer) if group.rank == 0 else None
        self._saver = Saver(self._job, group, self._progress, saver.owner)
        self._host = self._receive(*(opened or open_store())) if group.rank == 0 else None
        self._pulse = Pulse(group)

    def _size_on(self, ranks: int) -> Size:
        trainer = self._steps.trainer
        noise = trainer.noise.samples if trainer.noise else None
        measured = (trainer.tuning, noise) if trainer.tuning else None
        return size_on(self._elastic, self._job.settings.global_batch, self._lr, ranks, measured)

    def _make_ramp(self) -> Ramp | None:
        """How the learning rate goes to that of this number of ranks; None if it stays."""
        if self._size.lr is None:
            return None
        return Ramp(self._steps.trainer.learning_rate, self._size.lr, self._done, self._elastic.ramp_steps)

    def _gather_members(self) -> Mapping[str, str]:
        """All names in order of rank, and their machines."""
        return dict(tell(self._group, rank, (self.name, machine())) for rank in range(self._group.size))

    def _receive(self, store: TCPStore, meeting: Meeting) -> Host:
        """Be the one whom newcomers meet."""
        most = most_ranks(self._elastic, self._job.settings.global_batch, self._lr)
        names = list(self._members)
        host = Host(self._folder, store, names, most, self._job.join_timeout_s, self._terms())
        self._folder.open(meeting, self._members, self._done)
        return host

    def _terms(self) -> Terms:
        """What a newcomer must have as the job has it: all ranks must stop and save after the same steps."""
        job, elastic = self._job, self._elastic
        return {
            **self._steps.identity,
            "steps": job.steps,
            "checkpoint": str(job.checkpoint and job.checkpoint.resolve()),
            "checkpoint_every": job.checkpoint_every,
            "backend": str(job.backend),
            "max_batch": elastic.max_batch,
            "max_lr": elastic.max_lr,
            "ramp_steps": elastic.ramp_steps,
        }

    def _load(self) -> None:
        """Go on from the checkpoint, on the first rank."""
        checkpoint = self._job.checkpoint and load_checkpoint(self._job.checkpoint, self._steps.identity)
        if checkpoint:
            self._steps.trainer.restore(checkpoint.state)
            self._done, self._samples = checkpoint.step, checkpoint.samples
            self._first = self._done

    def _save(self) -> None:
        assert self._saver
        self._saver.save(self._steps.identity, self._done, self._samples, self._steps.trainer)
        self._pulse.rest()

    def _end(self, progress: Progress) -> None:
        """The job ends here, or is asked to."""
        if self._is_done() and self._done > self._first and (score := self._steps.score()):
            progress.note_score(score)
        self._folder.close()
        if self._saver:
            self._saver.release()


def _wait_for(meeting: Meeting) -> None:
    """Till the new group has formed, whose newcomers learn of it at this rank's store."""
    store, until_s = connect(meeting), time.monotonic() + _FORM_S
    while not store.check(["formed"]) and time.monotonic() < until_s:
        time.sleep(0.01)
