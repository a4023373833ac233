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
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from slurm_plugin.local_cluster.slurm_files import PRELOADED
from testbed.running.controller import PORT_AND_USER, ControllerFiles, RunController, configuration
from testbed.running.folder import (
    JOBS_FOLDER,
    OBSERVED,
    PROFILES,
    SUBMITTED,
    RunInputs,
    RunState,
    job_folder,
    job_path,
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
    """One run of one policy; `state` and `inputs` are those in its folder, `timeout_s` is from its origin."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        state: RunState,
        inputs: RunInputs,
        timeout_s: float,
        on_progress: Callable[[RunProgress], None] = lambda progress: None,
    ) -> None:
        self._cluster, self._folder, self._state, self._inputs = cluster, folder, state, inputs
        self._plans, self._timeout_s, self._on_progress = inputs.plans, timeout_s, on_progress
        self._policy = parse_policy(state.policy)
        self._paths = ControllerFiles(Path(state.base))
        self._submitter = Submitter(
            cluster, self._paths.base, state.run, self._plans, self._policy, inputs.topology
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
            RunError, RunControllerError, ClusterError, ProcessError: It cannot go on; the jobs are cancelled.
        """
        self._prepare()
        controller = None if is_slurms_own(self._policy) else RunController(self._cluster, self._paths)
        note = "it failed"
        try:
            if controller:
                controller.start(stop)
            note = self._follow(stop)
        finally:
            if note:
                self._cancel()
            if controller:
                controller.stop()
            self._state = replace(self._state, end_s=time.time(), note=note)
            write_state(self._folder, self._state)
        return self._state

    def _prepare(self) -> None:
        """Put everything onto the head node, also when it is there already: a folder may have been lost."""
        cluster, paths, state = self._cluster, self._paths, self._state
        tflops = state.emulate_tflops
        settings = SubmitSettings(
            cluster.python,
            cluster.partition,
            cluster.interface,
            state.backend,
            tflops and {one.name: tflops[one.gpu_type] for one in self._inputs.topology.machines},
            preloaded=str(cluster.work / PRELOADED),
            slot_s=getattr(self._policy.knobs, "round_s", SLOT_S),
            data=state.data,
            companions=state.companions,
            seed=state.facts.get("seed") or 0,
        )
        port, user = cluster.ask(cluster.python, "-c", PORT_AND_USER).split()
        files = {
            **self._submitter.scripts(settings),
            str(paths.cluster): (self._folder / CLUSTER).read_text(encoding="utf-8"),
            str(paths.config): configuration(paths, state.policy, cluster.partition, int(port), user),
        }
        for path in sorted((self._folder / PROFILES).glob("*.json")):
            files[str(paths.profiles / path.name)] = path.read_text(encoding="utf-8")
        put_files(cluster, files)
        if state.origin_s is not None:
            # Jobs that were submitted just before an earlier driver was killed may have ended since.
            kept = get_files(cluster, paths.base / JOBS_FOLDER)
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
            t = time.time() - origin_s
            for number, plan in enumerate(self._plans):
                if plan.job.submit_s <= t and plan.job.job_id not in self._submitted:
                    self._submit(number, plan)
            running = sum(observed.holds for observed in self._observer.last.values())
            self._on_progress(
                RunProgress(len(self._plans), len(self._submitted), running, len(self._ended()))
            )
            time.sleep(_TICK_S)

    def _submit(self, number: int, plan: JobPlan) -> None:
        """Try to submit a job.

        An earlier try, also of a driver that was killed, may have reached Slurm though it seemed to fail. So
        a job is submitted only after Slurm was seen without it.
        """
        job_id = plan.job.job_id
        if self._observer.polled_s <= self._failed_s.get(job_id, float("-inf")) + _RETRY_S:
            return
        try:
            slurm = self._submitter.submit(number)
            self._note_submitted(plan, slurm)
        except ClusterError as error:
            now = self._failed_s[job_id] = time.time()
            if now - self._failing_since_s.setdefault(job_id, now) > _PATIENCE_S:
                raise RunError(f"job {job_id} cannot be submitted: {error}") from error
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

    def _poll(self) -> None:
        if not self._observer.poll():
            return
        for plan in self._plans:
            job_id = plan.job.job_id
            observed = self._observer.last.get(job_id)
            if observed is None:
                continue
            self._note_submitted(plan, observed.slurm)
            if observed.name == "COMPLETED" and job_id not in self._cleaned:
                # The checkpoints of all jobs together may be more than a disk holds.
                self._cleaned.add(job_id)
                with suppress(ClusterError):
                    path = job_path(self._paths.base, job_id) / CHECKPOINT
                    self._cluster.ask("rm", "-f", str(path))

    def _ended(self) -> set[str]:
        """Jobs that have ended for good: one that wrote its checkpoint is about to be requeued."""
        now = time.time()
        return {
            observed.job
            for observed in self._observer.last.values()
            if observed.ended and (observed.exit_code != CHECKPOINTED or now - observed.t > _SETTLE_S)
        }

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
