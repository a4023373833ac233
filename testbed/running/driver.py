"""Carries one run out: submits each job at its time, watches all, takes samples, until all have ended."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dally.errors import DallyError
from dally.jobs.job import CHECKPOINTED, JobKind
from dally.policies.registry import parse_policy
from dally.runs.records import CLUSTER
from slurm_plugin.local_cluster.cluster import PRELOADED, Cluster, ClusterError
from testbed.running.controller import ControllerFiles, RunController, configuration, free_port
from testbed.running.folder import (
    JOBS_FOLDER,
    OBSERVED,
    PROFILES,
    SUBMITTED,
    RunInputs,
    RunState,
    closed,
    job_folder,
    write_state,
)
from testbed.running.head_files import get_files, put_files
from testbed.running.job_plan import JobPlan
from testbed.running.json_lines import append_line, read_lines
from testbed.running.observer import Observer
from testbed.running.samples import EVERY_S, RunSampler
from testbed.running.script import CHECKPOINT, SCRIPT_LOG, SLOT_S, SubmitSettings
from testbed.running.submission import Submitter, is_slurms_own

POLL_EVERY_S = 1.0
_TICK_S = 0.1
_LEAD_S = 1.0
_RETRY_S = 2.0
_PATIENCE_S = 120.0
"""A job that cannot be submitted for so long ends the run."""

_SETTLE_S = 60.0
"""Wait for cancelled jobs at most so long; so long may a checkpointed job stand as ended, before it does."""


class RunError(DallyError):
    """A run cannot go on."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is, in jobs."""

    jobs: int
    submitted: int
    running: int
    ended: int


class Driver:
    """One run of one policy.

    Args:
        cluster: Where it runs.
        folder: Its folder, begun.
        state: Its state, as in the folder.
        inputs: Its inputs, as in the folder.
        timeout_s: Longest time from its origin.
        tell: Told how far it is, again and again.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        state: RunState,
        inputs: RunInputs,
        timeout_s: float,
        tell: Callable[[RunProgress], None] = lambda counts: None,
    ) -> None:
        self._cluster, self._folder, self._state, self._inputs = cluster, folder, state, inputs
        self._plans, self._timeout_s, self._tell = inputs.plans, timeout_s, tell
        self._policy = parse_policy(state.policy)
        self._paths = ControllerFiles(Path(state.base))
        self._submitter = Submitter(
            cluster, self._paths, state.run, self._plans, self._policy, inputs.topology
        )
        ids = [plan.job.job_id for plan in self._plans]
        self._observer = Observer(cluster, state.run, ids, folder / OBSERVED)
        self._submitted = {line["job"] for line in read_lines(folder / SUBMITTED)}
        self._failed_s: dict[str, float] = {}
        self._failing_since_s: dict[str, float] = {}
        self._cleaned: set[str] = set()

    def run(self, stop: Callable[[], bool]) -> RunState:
        """Run until all jobs have ended, the time is over, or `stop` says so; then cancel what is left.

        Returns:
            The state at its end, as in the folder.

        Raises:
            RunError, ControlError, ClusterError, ProcessError: It cannot go on; the jobs are cancelled.
        """
        self._prepare()
        control = None if is_slurms_own(self._policy) else RunController(self._cluster, self._paths)
        note = "it failed"
        try:
            if control:
                control.start(stop)
            note = self._follow(stop)
        finally:
            if note:
                self._cancel()
            if control:
                control.stop()
            self._state = closed(self._state, time.time(), note)
            write_state(self._folder, self._state)
        return self._state

    def _prepare(self) -> None:
        """Put everything onto the head node, also when it is there already: a folder may have been lost."""
        cluster, paths = self._cluster, self._paths
        place = SubmitSettings(
            cluster.python,
            cluster.partition,
            cluster.interface,
            self._state.backend,
            self._speeds(),
            preloaded=str(cluster.work / PRELOADED),
            slot_s=getattr(self._policy.knobs, "round_s", SLOT_S),
            data=self._state.data,
            companions=self._state.companions,
            seed=self._state.facts.get("seed") or 0,
        )
        profiles = sorted((self._folder / PROFILES).glob("*.json"))
        files = {
            **self._submitter.scripts(place),
            str(paths.cluster): (self._folder / CLUSTER).read_text(encoding="utf-8"),
            **{str(paths.profiles / path.name): path.read_text(encoding="utf-8") for path in profiles},
        }
        files[str(paths.config)] = configuration(
            paths, self._state.policy, cluster.partition, free_port(cluster)
        )
        put_files(cluster, files)
        if self._state.origin_s is not None:
            self._recall()

    def _speeds(self) -> dict[str, float] | None:
        """Speed of the pretended GPUs of each node; None if they are real."""
        by_type = self._state.emulate_tflops
        if by_type is None:
            return None
        return {machine.name: by_type[machine.gpu_type] for machine in self._inputs.topology.machines}

    def _recall(self) -> None:
        """Find jobs that were submitted just before an earlier driver was killed, and have ended since."""
        kept = get_files(self._cluster, self._paths.base / JOBS_FOLDER)
        for plan in self._plans:
            if f"{job_folder(plan.job.job_id)}/{SCRIPT_LOG}" in kept:
                self._note_submitted(plan, "")

    def _follow(self, stop: Callable[[], bool]) -> str:
        """Submit and watch; why the run is not complete, empty if it is."""
        if self._state.origin_s is None:
            self._state = replace(self._state, origin_s=round(time.time() + _LEAD_S, 3))
            write_state(self._folder, self._state)
        origin_s = self._state.origin_s
        assert origin_s is not None
        sampler = RunSampler(self._cluster, self._folder, origin_s)
        polled_s = sampled_s = float("-inf")
        while True:
            now = time.time()
            if now - polled_s >= POLL_EVERY_S:
                self._poll()
                polled_s = now
            if stop():
                return "interrupted"
            if now - origin_s > self._timeout_s:
                return f"not all jobs had ended after {self._timeout_s:g} s"
            if len(self._ended()) == len(self._plans):
                return ""
            if now - sampled_s >= EVERY_S:
                sampler.take()
                sampled_s = now
            self._submit_due(time.time() - origin_s)
            self._tell(self.counts())
            time.sleep(_TICK_S)

    def counts(self) -> RunProgress:
        """How far it is."""
        running = sum(observed.holds for observed in self._observer.last.values())
        return RunProgress(len(self._plans), len(self._submitted), running, len(self._ended()))

    # Submitting: a job is handed in only while Slurm shows that it is not there yet.

    def _submit_due(self, t: float) -> None:
        for number, plan in enumerate(self._plans):
            if plan.job.submit_s <= t and plan.job.job_id not in self._submitted and self._may_try(plan):
                self._submit(number, plan)

    def _may_try(self, plan: JobPlan) -> bool:
        """Whether it is certain that no earlier try has succeeded, and time for another."""
        failed_s = self._failed_s.get(plan.job.job_id)
        return self._observer.polled_s > (failed_s + _RETRY_S if failed_s is not None else float("-inf"))

    def _submit(self, number: int, plan: JobPlan) -> None:
        try:
            slurm = self._submitter.submit(number)
            self._note_submitted(plan, slurm)
        except ClusterError as error:
            now = self._failed_s[plan.job.job_id] = time.time()
            if now - self._failing_since_s.setdefault(plan.job.job_id, now) > _PATIENCE_S:
                raise RunError(f"job {plan.job.job_id} cannot be submitted: {error}") from error
            return
        if plan.job.kind is JobKind.ELASTIC and not is_slurms_own(self._policy):
            for _ in range(self._state.companions):
                with suppress(ClusterError):  # the job is then resized by requeues
                    self._submitter.submit_companion(number, slurm)

    def _note_submitted(self, plan: JobPlan, slurm: str) -> None:
        job_id = plan.job.job_id
        if job_id not in self._submitted:
            self._submitted.add(job_id)
            now = round(time.time(), 3)
            append_line(self._folder / SUBMITTED, t=now, job=job_id, slurm=slurm)
            self._observer.expect(job_id, slurm, now)

    # Watching.

    def _poll(self) -> None:
        if not self._observer.poll():
            return
        for plan in self._plans:
            observed = self._observer.last.get(plan.job.job_id)
            if observed is not None:
                self._note_submitted(plan, observed.slurm)
                self._clean(plan)

    def _ended(self) -> set[str]:
        """Jobs that have ended for good: one that wrote its checkpoint is about to be put back."""
        now = time.time()
        return {
            observed.job
            for observed in self._observer.last.values()
            if observed.ended and (observed.exit_code != CHECKPOINTED or now - observed.t > _SETTLE_S)
        }

    def _clean(self, plan: JobPlan) -> None:
        """Remove the checkpoint of a job that is done: all of them may be more than a disk holds."""
        job_id = plan.job.job_id
        if self._observer.last[job_id].name == "COMPLETED" and job_id not in self._cleaned:
            self._cleaned.add(job_id)
            with suppress(ClusterError):
                path = self._paths.base / JOBS_FOLDER / job_folder(job_id) / CHECKPOINT
                self._cluster.ask("rm", "-f", str(path))

    def _cancel(self) -> None:
        """Cancel this run's jobs, no others, and wait until they are gone."""
        with suppress(ClusterError):
            self._poll()
            left = [
                observed for observed in self._observer.last.values() if observed.slurm and not observed.ended
            ]
            if left:
                self._cluster.ask("scancel", *(observed.slurm for observed in left))
            until_s = time.monotonic() + _SETTLE_S
            while time.monotonic() < until_s:
                self._poll()
                if all(observed.ended for observed in self._observer.last.values()):
                    break
                time.sleep(POLL_EVERY_S)
