"""The training loop: steps, checkpoints at intervals and at signals, and going on from one."""

from dally.errors import InputError
from workloads.checkpoint import load_checkpoint
from workloads.checkpoint_owner import CheckpointWriter
from workloads.elastic.run import run_elastic
from workloads.forked.run import run_forked
from workloads.group import Group, first_line, gather, join, leave
from workloads.progress import Progress
from workloads.settings import TrainingJob
from workloads.step_sync import StepReport, StepSync, TrainingError
from workloads.steps import Steps
from workloads.stopping import StopRequest


def run_job(job: TrainingJob, stop: StopRequest) -> bool:
    """Train, from the checkpoint if there is one, until all is done or a rank is asked to stop.

    Returns:
        Whether all steps are done; if not, those that are are in the checkpoint.

    Raises:
        DallyError: One of its children: the job is wrong, ranks did not meet, or training failed.
    """
    if job.fork:
        return run_forked(job, job.fork, stop)
    if job.elastic:
        return run_elastic(job, job.elastic, stop)
    group = join(job.backend, job.join_timeout_s)
    try:
        done = _Run(job, group, stop).run()
    except RuntimeError as error:  # torch's: memory, CUDA, another rank that is gone
        raise TrainingError(f"rank {group.rank} of {group.size} failed: {first_line(error)}") from error
    leave()
    return done


class _Run:
    """One start of a job, on one rank."""

    def __init__(self, job: TrainingJob, group: Group, stop: StopRequest) -> None:
        self._job, self._group, self._stop = job, group, stop
        self._steps = Steps(job, group, group.rank, group.size)
        self._sync = StepSync(group)
        self._progress = Progress(job, group, trainer=self._steps.trainer) if group.rank == 0 else None
        self._writer = CheckpointWriter(job, group, self._progress)

    def run(self) -> bool:
        step = first = self._resume()
        while step < self._job.steps:
            loss = self._steps.train(step)
            step += 1
            stopping = self._hear(self._sync.send(step, loss, self._must_stop()))
            if stopping or self._job.saves_after(step):
                stopping |= self._hear(self._sync.finish())
                self._save(step)
            if self._progress and self._job.judges_after(step) and (score := self._steps.score()):
                self._progress.note_score(score, step)
                self._sync.restart_clock()
            if stopping:
                break
        done = step >= self._job.steps
        if done and step > first and self._progress and (score := self._steps.score()):
            self._progress.note_score(score)
        self._writer.release()
        return done

    def _must_stop(self) -> bool:
        """Whether this rank was asked to, or the job has been started anew elsewhere."""
        return self._stop.asked or self._writer.is_lost()

    def _hear(self, report: StepReport | None) -> bool:
        """Note how a step went; whether to stop after it."""
        if report is None:
            return False
        if self._progress:
            self._progress.note(report)
        return report.stop

    def _resume(self) -> int:
        """Load the checkpoint; gives the steps that are done."""
        self._writer.take()
        gather(self._group, 0)
        checkpoint = self._job.checkpoint and load_checkpoint(self._job.checkpoint, self._steps.identity)
        if checkpoint:
            self._steps.trainer.restore(checkpoint.state)
        step = checkpoint.step if checkpoint else 0
        steps = gather(self._group, step)
        if len(set(steps)) > 1:
            raise InputError(
                f"ranks go on from steps {steps}: all must share the file {self._job.checkpoint}"
            )
        if self._progress:
            self._progress.start(step)
        return step

    def _save(self, step: int) -> None:
        """Write the checkpoint, if the job has one."""
        samples = step * self._job.settings.global_batch
        self._writer.save(self._steps.identity, step, samples, self._steps.trainer)
        self._sync.restart_clock()
