"""What was seen of a run's jobs in Slurm, change by change: written down during the run, read afterwards."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from slurm_plugin.client.job_json import read_jobs
from slurm_plugin.client.slurm import HOLDS_GPUS, SlurmUnavailableError, State
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.running.json_lines import append_line, read_lines

GONE_S = 10.0
"""A job that Slurm has not shown for so long is gone: it ended long ago, or slurmctld has lost it."""


@dataclass(frozen=True, slots=True)
class JobObservation:
    """A job as Slurm showed it from some moment on.

    Attributes:
        t: When it was first seen so, seconds since 1970.
        job: Its id in the workload.
        slurm: Its number in Slurm.
        state: As Dally tells states apart, see `State`.
        name: The state in Slurm's own words; `GONE` if Slurm does not know the job any more.
        start_s: When Slurm started it, whole seconds since 1970; None if it is pending.
        gpus: GPUs it holds, by node.
        restarts: How often it was requeued.
        exit_code: Of its script, once it ended.
    """

    t: float
    job: str
    slurm: str
    state: str
    name: str
    start_s: float | None = None
    gpus: Mapping[str, int] | None = None
    restarts: int = 0
    exit_code: int = 0

    @property
    def holds(self) -> bool:
        """Whether it holds GPUs."""
        return State(self.state) in HOLDS_GPUS and self.start_s is not None

    @property
    def ended(self) -> bool:
        """Whether it has left Slurm's queue."""
        return self.state == State.ENDED.value

    @property
    def shown(self) -> "JobObservation":
        """All of it whose change is to be written down: neither the time nor the exit code."""
        return replace(self, t=0.0, gpus=self.gpus or {}, exit_code=0)


def job_comment(run: str, number: int) -> str:
    """The comment by which a run's job is found in Slurm."""
    return f"testbed:{run}:{number}"


class Observer:
    """Watches the jobs of one run, and writes changes to a file; what is there already counts as seen."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        job_ids: Sequence[str],
        path: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._job_ids, self._path, self._clock = cluster, job_ids, path, clock
        self._comment = re.compile(rf"(?:^|\s){re.escape(job_comment(run, 0)[:-1])}([0-9]+)(?!\S)")
        self.last = {observed.job: observed for observed in read_observations(path)}
        self._absent_s: dict[str, float] = {}
        self.polled_s = float("-inf")
        self.failure = ""

    def poll(self) -> bool:
        """Ask Slurm, and note what has changed; False if it did not answer."""
        try:
            text = self._cluster.ask("env", "SLURM_BITSTR_LEN=0", "squeue", "--all", "--states=all", "--json")
            jobs = read_jobs(text)
        except (ClusterError, SlurmUnavailableError) as error:
            self.failure = str(error)
            return False
        now = self.polled_s = self._clock()
        shown = set()
        for job in jobs:
            found = self._comment.search(job.comment)
            if found and int(found[1]) < len(self._job_ids):
                job_id = self._job_ids[int(found[1])]
                shown.add(job_id)
                self._note(
                    JobObservation(
                        t=round(now, 3),
                        job=job_id,
                        slurm=job.job_id,
                        state=job.state.value,
                        name=job.state_name,
                        start_s=job.start_s,
                        gpus=dict(job.gpus),
                        restarts=job.restarts,
                        exit_code=job.exit_code if job.state is State.ENDED else 0,
                    )
                )
        for job_id, observed in list(self.last.items()):
            if job_id in shown or observed.ended:
                self._absent_s.pop(job_id, None)
            elif now - self._absent_s.setdefault(job_id, now) >= GONE_S:
                self._note(JobObservation(now, job_id, observed.slurm, State.ENDED.value, "GONE"))
        return True

    def expect(self, job_id: str, slurm: str, submitted_s: float) -> None:
        """Note a job that was submitted and is to be seen."""
        if job_id not in self.last:
            self._note(JobObservation(submitted_s, job_id, slurm, State.PENDING.value, "PENDING"))

    def _note(self, observed: JobObservation) -> None:
        before = self.last.get(observed.job)
        if before is None or before.shown != observed.shown:
            self.last[observed.job] = observed
            append_line(self._path, **asdict(observed))


def read_observations(path: Path) -> list[JobObservation]:
    """All that was written down, in order; none if there is no such file."""
    return [JobObservation(**line) for line in read_lines(path)]
