"""One rank of an elastic job: steps, and changes of the group between them."""

import gc
import importlib
import os
import time
from collections.abc import Sequence

from torch._C._distributed_c10d import PrefixStore, TCPStore

from dally.words import plural
from workloads.checkpoint import load_checkpoint
from workloads.checkpoint_owner import CheckpointWriter
from workloads.elastic.batch_rules import LearningRateRamp, most_ranks, size_on
from workloads.elastic.broadcast import broadcast, broadcast_state
from workloads.elastic.folder import RendezvousFolder, RendezvousPoint
from workloads.elastic.rendezvous import (
    Newcomer,
    RendezvousHost,
    Terms,
    connect,
    machine,
    open_store,
    siblings,
)
from workloads.group import Group, RankEnvironment, find_device, find_place, first_line, gather, join, leave
from workloads.progress import Progress
from workloads.registry import find_workload
from workloads.settings import BatchRule, Elastic, TrainingJob
from workloads.step_sync import StepReport, StepSync, TrainingError
from workloads.steps import Steps
from workloads.stopping import StopRequest

_FORM_S = 60.0
"""How long members wait for each other at a change: all were there a moment before."""

_FIRST_STEPS = 2
"""Of a group, which take longer than others."""

_LOADED_BY_DDP = "torch._dynamo"
"""Loading this takes a second or more, which members would wait for at their first change."""


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
        if elastic.joins and not member.join_job():
            return not stop.back
        if not elastic.joins:
            member.start_job()
        return member.run()
    except RuntimeError as error:  # torch's: memory, CUDA, another rank that is gone
        raise TrainingError(f"{member.name} failed: {first_line(error)}") from error


class _Member:
    """This rank, alone at first.

    Attributes:
        name: Its name in the folder.
    """

    def __init__(self, job: TrainingJob, elastic: Elastic, stop: StopRequest, place: RankEnvironment) -> None:
        self._job, self._elastic, self._stop, self._place = job, elastic, stop, place
        self._siblings = siblings(place)
        self.name = self._siblings[place.rank]
        self._folder = RendezvousFolder(elastic.folder)
        device = find_device(job.backend, place.local_rank)
        alone = Group(0, 1, device, job.backend)
        self._steps = Steps(job, alone, 0, 1)
        self._lr = find_workload(job.model).learning_rate
        self._total = job.steps * job.settings.global_batch
        self._done = self._samples = self._first = self._formed = 0
        self._writer = CheckpointWriter(job.checkpoint)
        gc.freeze()  # what is there by now stays: changes collect garbage, and need not look at it

    def start_job(self) -> None:
        """Start the job with those that the launcher started, from the checkpoint if there is one."""
        job = self._job
        group = join(job.backend, job.join_timeout_s)
        if group.rank == 0:
            self._writer.take()
            self._folder.prepare()
            self._folder.ask(into=self._siblings)
            checkpoint = job.checkpoint and load_checkpoint(job.checkpoint, self._steps.identity)
            if checkpoint:
                self._steps.trainer.restore(checkpoint.state)
                self._done, self._samples = checkpoint.step, checkpoint.samples
                self._first = self._done
        self._enter(group, None)
        if self._progress:
            self._progress.start(self._done)

    def join_job(self) -> bool:
        """Join the job that runs; False if it has ended, or this rank was asked to stop."""
        newcomer = Newcomer(self._folder, self.name, self._siblings, self._terms(), self._stop)
        invitation = newcomer.join(self._job.join_timeout_s)
        if invitation:
            self._form(*invitation, None)
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
        must_stop = self._writer.is_lost() or (self._stop.asked and not self._elastic.joins)
        wants_change = self._leaves() or (self._host is not None and self._host.wants_change())
        stop, pause = self._note(self._sync.send(self._done, loss, must_stop, wants_change))
        saves = self._is_done() or self._job.saves_after(self._done)
        if stop or pause or saves:
            too = self._note(self._sync.finish())
            stop, pause = stop or too[0], pause or too[1]
        if stop or saves:
            self._save()
        if self._progress and self._job.judges_after(self._done) and (score := self._steps.score()):
            self._progress.note_score(score, self._done)
            self._sync.restart_clock()
        return stop, pause

    def _note(self, report: StepReport | None) -> tuple[bool, bool]:
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

    def _change(self) -> bool:
        """Go on in another group, if there is need; False if this rank is not in it."""
        leaving = [
            name
            for name, goes in zip(self._members, gather(self._group, int(self._leaves())), strict=True)
            if goes
        ]
        proposed = self._host.plan(leaving) if self._host else None
        if proposed and proposed.staying and self.name not in proposed.staying:
            self._writer.release()  # before another rank takes the checkpoint
        plan = broadcast(self._group, 0, proposed)
        if plan is None:
            return True
        if not plan.staying:
            self._save()
            if self._progress:
                self._end(self._progress)
            return False
        first = self._members.index(plan.staying[0])
        store, opened = open_store() if self._group.rank == first else (None, None)
        point = broadcast(self._group, first, opened)
        assert point
        if self._host:
            self._host.admit(plan, point)
        self._leave()
        if self.name in plan.staying:
            self._form(point, plan.members, store)
            return True
        if self._host and plan.newcomers:
            # Newcomers learn of the new group at this rank's store, so it stays until that group has formed.
            other, until_s = connect(point), time.monotonic() + _FORM_S
            while not other.check(["formed"]) and time.monotonic() < until_s:
                time.sleep(0.01)
        return False

    def _leave(self) -> None:
        self._steps.trainer.part()
        leave()

    def _form(self, point: RendezvousPoint, members: Sequence[str], store: TCPStore | None) -> None:
        """Form the new group; the first rank has opened the store."""
        own = store or connect(point)
        rank = members.index(self.name)
        place = RankEnvironment(rank, len(members), self._place.local_rank, point.host, point.port)
        group = join(self._job.backend, _FORM_S, place, PrefixStore(point.group, own))
        self._kept_store = own  # must live as long as the group
        if rank == 0:
            self._writer.take()
        self._enter(group, (store, point) if store else None)
        if store:
            store.set("formed", "")
        if self._progress:
            ranks = plural(group.size, "rank")
            self._progress.tell(
                f"goes on after step {self._done} with {ranks}, batches of {self._size.batch}"
            )

    def _enter(self, group: Group, opened: tuple[TCPStore, RendezvousPoint] | None) -> None:
        """Be a rank of this group: all go on from what its first one has, which newcomers meet."""
        job, elastic, trainer = self._job, self._elastic, self._steps.trainer
        self._group = group
        noise = trainer.noise.samples if trainer.noise else None
        measured = (trainer.tuning, noise) if trainer.tuning else None
        size = size_on(elastic, job.settings.global_batch, self._lr, group.size, measured)
        self._size = broadcast(group, 0, size)
        self._steps.regroup(group, self._size.batch)
        broadcast_state(group, trainer)
        self._formed, self._samples = broadcast(group, 0, (self._done, self._samples))
        self._done = self._formed
        self._ramp = None
        if self._size.lr is not None:
            self._ramp = LearningRateRamp(
                trainer.learning_rate, self._size.lr, self._done, elastic.ramp_steps
            )
        hosts = dict(broadcast(group, rank, (self.name, machine())) for rank in range(group.size))
        self._members = list(hosts)
        self._progress = Progress(job, group, trainer=trainer) if group.rank == 0 else None
        self._host = None
        if group.rank == 0:
            store, point = opened or open_store()
            most = most_ranks(elastic, job.settings.global_batch, self._lr)
            self._host = RendezvousHost(
                self._folder, store, self._members, most, job.join_timeout_s, self._terms()
            )
            self._folder.open(point, hosts, self._done)
        self._sync = StepSync(group)

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

    def _save(self) -> None:
        self._writer.save(self._group, self._progress, self._steps, self._done, self._samples)
        self._sync.restart_clock()

    def _end(self, progress: Progress) -> None:
        """The job ends here, or is asked to."""
        if self._is_done() and self._done > self._first and (score := self._steps.score()):
            progress.note_score(score)
        self._folder.close()
        self._writer.release()
