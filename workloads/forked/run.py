"""One rank of a job that trains as several copies: slots of training, and the average after each.

Copies share no group of ranks once all have met: a group breaks when one of its members dies, files do not.
"""

import os
import time
from collections.abc import Callable
from functools import partial

from dally.errors import InputError
from dally.jobs.job import CHECKPOINTED
from workloads.forked.exchange import Exchange, folder_of, prepare
from workloads.forked.ranges import gaps, numbers, size, union
from workloads.forked.slot import CopyResult, SlotStart
from workloads.forked.tracker import OVER, Tracker
from workloads.group import Group, RankEnvironment, find_place, first_line, free_port, gather, join, leave
from workloads.progress import Progress
from workloads.settings import Backend, Fork, TrainingJob
from workloads.step_sync import StepSync, TrainingError
from workloads.steps import Steps
from workloads.stopping import StopRequest


def run_forked(job: TrainingJob, fork: Fork, stop: StopRequest) -> bool:
    """Train one rank of a copy until the job is done or a copy is asked to stop.

    Returns:
        Whether all steps are done; if not, those that are are in the checkpoint.

    Raises:
        DallyError: One of its children: the job is wrong, ranks did not meet, or this copy failed.
    """
    world = find_place(os.environ)
    if world.size % fork.ranks_per_copy:
        raise InputError(f"ranks are {world.size}, must be copies of {fork.ranks_per_copy} each")
    try:
        start, place = _meet(job, fork, world)
        group = join(job.backend, job.join_timeout_s, place)
        done = _Copy(job, fork, world, group, start, stop).run()
    except RuntimeError as error:  # torch's: memory, CUDA, another rank that is gone
        raise TrainingError(f"rank {world.rank} of {world.size} failed: {first_line(error)}") from error
    leave()
    return done


def _meet(job: TrainingJob, fork: Fork, world: RankEnvironment) -> tuple[int, RankEnvironment]:
    """Meet the ranks of all copies, once: a number of this start, and this rank's place in its copy."""
    assert job.checkpoint
    group = join(Backend.GLOO, job.join_timeout_s, world)
    start = gather(group, time.time_ns())[0]
    ports = gather(group, free_port())
    if world.rank == 0:
        prepare(job.checkpoint, start)
    gather(group, 0)
    if not all(gather(group, folder_of(job.checkpoint, start).is_dir())):
        raise InputError(f"all ranks must share the folder of {job.checkpoint}, and do not")
    leave()
    copy, rank = divmod(world.rank, fork.ranks_per_copy)
    port = ports[copy * fork.ranks_per_copy]
    return start, RankEnvironment(rank, fork.ranks_per_copy, world.local_rank, "127.0.0.1", port)


class _Copy:
    """One start of a job, on one rank of one copy; the copy's first rank writes for it."""

    def __init__(
        self,
        job: TrainingJob,
        fork: Fork,
        world: RankEnvironment,
        group: Group,
        start: int,
        stop: StopRequest,
    ) -> None:
        assert job.checkpoint
        self._job, self._fork, self._group, self._stop = job, fork, group, stop
        self._copy, copies = world.rank // group.size, world.size // group.size
        self._steps = Steps(job, group, world.rank, world.size)
        batch = job.settings.global_batch
        self._exchange = Exchange(job.checkpoint, start, self._copy, self._steps.identity, batch)
        self._sync = StepSync(group)
        self._progress = Progress(job, group, copies)
        self._tracker = Tracker(job, fork, self._exchange, self._copy, copies, stop, self._progress)

    def run(self) -> bool:
        trained, state = self._exchange.trained()
        if state:
            self._steps.trainer.restore(state)
        if self._copy == self._group.rank == 0:
            self._progress.start(size(trained))
        if not gaps(trained, self._job.steps):
            self._exchange.close_at_once()
            return True
        number = self._agree(lambda: self._tracker.open(trained, self._steps.trainer.state()))
        while number != OVER:
            begun_s = time.monotonic()
            slot, state = self._exchange.slot(number)
            self._steps.trainer.restore(state)  # all copies begin a slot with the same
            if slot.stop or not gaps(slot.trained, self._job.steps):
                return self._end(slot)
            result = self._train(slot, begun_s)
            own = self._steps.trainer.state()
            number = self._agree(partial(self._tracker.follow, slot, result, own, begun_s))
        return self._exchange.ended_with() == 0

    def _train(self, slot: SlotStart, begun_s: float) -> CopyResult:
        """Train this copy's batches of a slot, as many as there is time for."""
        from_s, until_s = time.monotonic(), begun_s + self._fork.slot_s - slot.overhead_s
        trained, loss, cut = [], 0.0, False
        self._sync.restart_clock()
        for number in numbers(slot.shares.get(self._copy, ())):
            own = self._steps.train(number)
            trained.append((number, number + 1))
            # The first rank ends the slot when time is up, any rank when it is asked to stop.
            out_of_time = self._group.rank == 0 and time.monotonic() >= until_s
            report = self._sync.send(number + 1, own, out_of_time or self._asked_to_stop())
            if report:
                loss, cut = loss + report.loss, report.stop
            if cut:
                break
        if last := self._sync.finish():
            loss += last.loss
        seconds = time.monotonic() - from_s
        stop = self._asked_to_stop() or (cut and time.monotonic() < until_s)  # another rank was asked
        return CopyResult(self._copy, union(trained), seconds, loss / max(len(trained), 1), stop)

    def _asked_to_stop(self) -> bool:
        return self._stop.asked or (self._group.rank == 0 and self._exchange.asked_to_stop())

    def _agree(self, say: Callable[[], int]) -> int:
        """What the copy's first rank says, on all of its ranks."""
        return gather(self._group, say() if self._group.rank == 0 else 0)[0]

    def _end(self, slot: SlotStart) -> bool:
        """End the job for this copy: all is trained, or a copy was asked to stop; whether all is."""
        done = not gaps(slot.trained, self._job.steps)
        gather(self._group, 0)  # all ranks of the copy have read the slot, which goes with the last copy
        if self._group.rank == 0:
            if done and self._tracker.published and (score := self._steps.score()):
                self._progress.note_score(score)
            self._exchange.close(slot, 0 if done else CHECKPOINTED)
        return done
