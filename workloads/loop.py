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
        self._writer = CheckpointWriter(job.checkpoint)

    def run(self) -> bool:
        job = self._job
        step = first = self._resume()
        while step < job.steps:
            loss = self._steps.train(step)
            step += 1
            # To stop are a rank that was asked to, and all of a job that has been started anew elsewhere.
            must_stop = self._stop.asked or self._writer.is_lost()
            stopping = self._note(self._sync.send(step, loss, must_stop))
            if stopping or job.saves_after(step):
                stopping |= self._note(self._sync.finish())
                samples = step * job.settings.global_batch
                self._writer.save(self._group, self._progress, self._steps, step, samples)
                self._sync.restart_clock()
            if self._progress and job.judges_after(step) and (score := self._steps.score()):
                self._progress.note_score(score, step)
                self._sync.restart_clock()
            if stopping:
                break
        done = step >= job.steps
        if done and step > first and self._progress and (score := self._steps.score()):
            self._progress.note_score(score)
        self._writer.release()
        return done

    def _note(self, report: StepReport | None) -> bool:
        """Note how a step went; whether to stop after it."""
        if report and self._progress:
            self._progress.note(report)
        return report is not None and report.stop

    def _resume(self) -> int:
        """Load the checkpoint; gives the steps that are done."""
        if self._progress:
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
