"""A controller over the fake Slurm on a virtual clock, for tests."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from dally.cluster.topology import Topology
from dally.profiles.files import ProfileSet
from dally.testing.worlds import racks
from slurm_plugin.client.slurm import SlurmUnavailableError
from slurm_plugin.config import Config
from slurm_plugin.controller.controller import Controller, ControllerMode
from slurm_plugin.controller.journal import Journal, read_events
from slurm_plugin.controller.managed_job import ManagedJob
from slurm_plugin.controller.progress_reports import ProgressFiles
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeNode, SubmitSpec

RACKS = racks([[8, 8], [8, 8]])


POLL_S = 5.0

Action = tuple[float, Callable[["FakeSite"], object]]
"""What a person does, and when."""


class Killed(BaseException):
    """The controller's process is no more."""


class FakeSite:
    """A cluster, its Slurm and its controller, which can be started anew."""

    def __init__(
        self,
        folder: Path,
        topology: Topology = RACKS,
        policy: str = "dally:lease_s=100",
        profiles: ProfileSet | None = None,
        mode: ControllerMode | None = None,
        partitions: Mapping[str, tuple[str, ...]] | None = None,
        slurm_ahead_s: float = 0.0,
        memory_mb: float = inf,
        cpus: float = inf,
        features: Mapping[str, tuple[str, ...]] | None = None,
        ours: tuple[str, ...] = ("gpu",),
        **settings: Any,
    ) -> None:
        self.folder, self.topology, self.profiles, self.mode = folder, topology, profiles, mode
        self.now_s = max(0.0, -slurm_ahead_s)
        shared = partitions or {}
        nodes = [
            FakeNode(
                machine.name,
                machine.gpus,
                shared.get(machine.name, ("gpu",)),
                machine.gpu_type,
                cpus,
                memory_mb,
                (features or {}).get(machine.name, ()),
            )
            for machine in topology.machines
        ]
        self.slurm = FakeSlurm(nodes, clock=lambda: self.now_s + slurm_ahead_s)
        self.config = Config(
            ours, policy=policy, **{"restart_gap_s": 0.0, "max_requeues": 1_000_000, **settings}
        )
        self.controller = self.new_controller()

    def new_controller(self, at: Callable[[str], None] = lambda step: None) -> Controller:
        """A controller on the journal in the folder."""
        return Controller(
            self.slurm,
            self.config,
            self.topology,
            self.profiles,
            Journal(self.folder),
            self.mode,
            clock=lambda: self.now_s,
            sleep=self.sleep,
            at=at,
            progress_files=ProgressFiles(lambda read: read()),
        )

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds

    def restart(self, at: Callable[[str], None] = lambda step: None) -> None:
        """The controller's process ends, however it likes, and a new one begins."""
        self.controller._journal.close()
        self.controller = self.new_controller(at)

    def outcome(self) -> dict[str, tuple[str, int]]:
        """How each job stands, and how often it was requeued."""
        return {job.job_id: (job.state_name, job.restarts) for job in self.slurm.jobs()}

    def submit(
        self,
        model: str = "",
        signal: str = "",
        grace_s: int = 0,
        tag: str = "",
        copies: int = 1,
        least: int = 0,
        most: int = 0,
        **spec: Any,
    ) -> str:
        """A job of `dally-sbatch`, perhaps with copies, or of open size."""
        request = Request(model, signal, grace_s, least, most, copies, tag)
        return self.slurm.submit(SubmitSpec(comment=encode(request), **spec))

    def run_to(self, until_s: float) -> None:
        """Cycles at every moment at which anything happens, until a time."""
        while True:
            wakeup_s = self.controller.cycle()
            event_s = self.slurm.next_event_s
            self.now_s = max(self.now_s, min(wakeup_s, inf if event_s is None else event_s))
            if self.now_s >= until_s:
                self.now_s = until_s
                self.controller.cycle()
                return

    def live(
        self,
        until_s: float,
        actions: Sequence[Action] = (),
        away_s: float = 0.0,
        poll_s: float = POLL_S,
        rest_s: float = 0.0,
    ) -> None:
        """Cycles as a daemon runs them, and what people do meanwhile, until a time.

        Cycles come when anything happens, and every `poll_s`, but not before `rest_s` is over. A controller
        that is killed is started anew after `away_s`; Slurm is asked again if it broke off.
        """
        coming = sorted(actions, key=lambda action: action[0])
        while True:
            while coming and coming[0][0] <= self.now_s:
                coming.pop(0)[1](self)
            wakeup_s = inf
            try:
                wakeup_s = self.controller.cycle()
            except SlurmUnavailableError:
                self.slurm.breaks_after = None
            except Killed:
                self.now_s += away_s
                self.restart()
                continue
            if self.now_s >= until_s or not (
                coming or self.slurm.busy or self.controller.reconciler.managed_jobs
            ):
                return
            event_s = inf if self.slurm.next_event_s is None else self.slurm.next_event_s
            action_s = coming[0][0] if coming else inf
            moments = (wakeup_s, event_s, action_s, self.now_s + poll_s, until_s)
            next_s = min(moment for moment in moments if moment > self.now_s)
            self.now_s = min(until_s, max(next_s, self.now_s + rest_s))

    def managed(self, job_id: str) -> ManagedJob:
        """The controller's managed of a job."""
        return self.controller.reconciler.managed_jobs[job_id]

    def nodes(self, job_id: str) -> Mapping[str, int]:
        """GPUs by node that Slurm gives a job."""
        return next(job.gpus for job in self.slurm.jobs() if job.job_id == job_id)

    def states(self) -> dict[str, str]:
        """The state of each job as Slurm shows it."""
        return {job.job_id: job.state_name for job in self.slurm.jobs()}

    def events(self, *kinds: str) -> list[tuple[str, str]]:
        """Kind and job of the journal's events."""
        return [
            (event["event"], event.get("job", ""))
            for event in read_events(self.folder)
            if not kinds or event["event"] in kinds
        ]


def whole(nodes: Sequence[str]) -> dict[str, int]:
    """Eight GPUs on each of some nodes."""
    return dict.fromkeys(nodes, 8)
