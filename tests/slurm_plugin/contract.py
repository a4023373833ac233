"""The two worlds that the contract tests run in: the fake Slurm, and a real one on this machine."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.orders import Order
from slurm_plugin.client.pyslurm_backend import PyslurmSlurm
from slurm_plugin.client.slurm import Hold, Slurm, SlurmJob, State
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.patience import LONGEST_S, wait_until
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import SubmitSpec


class SlurmWorld(Protocol):
    """Nodes n1 to n8 with 8 GPUs each, n7 and n8 of another type; what users and administrators do there."""

    @property
    def slurm(self) -> Slurm:
        """Access to it, as the controller has it."""

    def submit(self, spec: SubmitSpec) -> str:
        """Submit a job; its number."""

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Let time pass until something holds; fail if it does not."""

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""

    def hold(self, job_id: str) -> None:
        """Hold a job as an administrator."""

    def release(self, job_id: str) -> None:
        """Release a job."""

    def set_node(self, name: str, state: str) -> None:
        """Drain a node, or let it fail."""

    def stop_answering(self) -> None:
        """From now on Slurm does not answer."""

    def answer_again(self) -> None:
        """Slurm answers again."""


class FakeWorld:
    """The fake, whose time passes from event to event."""

    def __init__(self, fake: FakeSlurm, backend: Slurm | None = None):
        """Take a fake, and the backend over it that is tried; by default the fake itself."""
        self.fake = fake
        self.slurm: Slurm = backend or fake
        self.submit = fake.submit
        self.cancel = fake.cancel
        self.hold = fake.hold
        self.release = fake.release
        self.set_node = fake.set_node

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Go from event to event until something holds."""
        while not holds():
            next_s = self.fake.next_event_s
            assert next_s is not None, f"waited in vain for {what}"
            self.fake.advance(next_s)

    def stop_answering(self) -> None:
        """Every call raises."""
        self.fake.unavailable = True

    def answer_again(self) -> None:
        """Calls work again."""
        self.fake.unavailable = False


class RealWorld:
    """Real Slurm, reached by its commands."""

    def __init__(self, local_slurm: LocalSlurm):
        self.local_slurm = local_slurm
        self.slurm = self.reach(LONGEST_S)

    def reach(self, timeout_s: float) -> Slurm:
        """Access to it; commands may take so long, seconds."""
        return CommandLine(self.local_slurm.environment, timeout_s=timeout_s)

    def submit(self, spec: SubmitSpec) -> str:
        """Submit by sbatch a script that sleeps."""
        kind = f"{spec.gpu_type}:" if spec.gpu_type else ""
        asked = {
            "--nodes": f"{spec.nodes}" if spec.gpus_per_node or spec.nodes > 1 else "",
            "--ntasks-per-node": f"{spec.tasks_per_node}" if spec.tasks_per_node > 1 else "",
            "--gres": f"gpu:{kind}{spec.gpus_per_node}" if spec.gpus_per_node else "",
            "--gpus": f"{kind}{spec.gpus}" if spec.gpus else "",
            "--ntasks": str(spec.tasks or ""),
            "--gpus-per-task": f"{kind}{spec.gpus_per_task}" if spec.gpus_per_task else "",
            "--comment": spec.comment,
            "--partition": spec.partition,
            "--array": ",".join(map(str, spec.array)),
        }
        if spec.array_throttle:
            asked["--array"] += f"%{spec.array_throttle}"
        script = f"--wrap=sleep {min(spec.run_time_s, 600.0) if not callable(spec.run_time_s) else 600}"
        return self.local_slurm.run(
            "sbatch",
            "--parsable",
            "--output=/dev/null",
            "--requeue" if spec.requeue else "--no-requeue",
            *(["--hold"] if spec.held else []),
            *(f"{option}={value}" for option, value in asked.items() if value),
            f"{script}; exit {spec.exit_code}",
            user=spec.user,
        ).strip()

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Look again and again until something holds."""
        wait_until(holds, what)

    def cancel(self, job_id: str) -> None:
        """Cancel as root."""
        self.local_slurm.run("scancel", job_id)

    def hold(self, job_id: str) -> None:
        """Hold as root."""
        self.local_slurm.run("scontrol", "hold", job_id)

    def release(self, job_id: str) -> None:
        """Release as root."""
        self.local_slurm.run("scontrol", "release", job_id)

    def set_node(self, name: str, state: str) -> None:
        """Change a node's state as root."""
        self.local_slurm.run("scontrol", "update", f"NodeName={name}", f"State={state}", "Reason=test")

    def stop_answering(self) -> None:
        """Freeze slurmctld, and do not wait long for it."""
        self.local_slurm.pause_controller()
        self.slurm = self.reach(0.5)

    def answer_again(self) -> None:
        """Let slurmctld go on."""
        self.local_slurm.resume_controller()
        self.slurm = self.reach(LONGEST_S)

    def clean(self) -> None:
        """Bring the cluster back to how it was: no jobs, no reservations, all nodes idle."""
        self.local_slurm.run("scancel", "--quiet", "--user=dally-alice")
        self.local_slurm.run("scancel", "--quiet", "--user=dally-bob")
        for reservation in self.slurm.reservations():
            self.local_slurm.run("scontrol", "delete", f"ReservationName={reservation.name}")
        for node in self.slurm.nodes():
            if not node.available:
                self.set_node(node.name, "resume")
        self.wait(lambda: not self._left() and self._idle(), "an empty cluster")

    def _left(self) -> list[SlurmJob]:
        return [job for job in self.slurm.jobs() if job.state is not State.ENDED]

    def _idle(self) -> bool:
        return all(node.state_name == "idle" for node in self.slurm.nodes())


class PyslurmWorld(RealWorld):
    """Real Slurm, reached by pyslurm, of which a process reads slurm.conf just once."""

    def reach(self, timeout_s: float) -> Slurm:
        """Access to it; commands may take so long, seconds."""
        names = ("SLURM_CONF", "SLURM_BITSTR_LEN")
        commands = CommandLine(self.local_slurm.environment, timeout_s=timeout_s)
        os.environ.update({name: commands.environment[name] for name in names})
        return PyslurmSlurm(import_module("pyslurm"), commands)


def find(world: SlurmWorld, job_id: str) -> SlurmJob:
    """A job as Slurm shows it now."""
    return next(job for job in world.slurm.jobs() if job.job_id == job_id)


def wait_state(world: SlurmWorld, job_id: str, state: State) -> SlurmJob:
    """Wait until a job is in a state; the job then."""
    world.wait(lambda: find(world, job_id).state is state, f"job {job_id} to be {state}")
    return find(world, job_id)


def wait_reason(world: SlurmWorld, job_id: str, reason: str) -> SlurmJob:
    """Wait until a job waits for a reason; the job then."""
    world.wait(lambda: find(world, job_id).reason == reason, f"job {job_id} to wait for {reason}")
    return find(world, job_id)


def run_one(world: SlurmWorld, order: Order) -> str | None:
    """What Slurm says to one order."""
    (answer,) = world.slurm.run([order])
    return answer


def is_held(job: SlurmJob) -> bool:
    """Whether a job waits for Dally, without any node list."""
    return job.state is State.PENDING and job.hold is Hold.USER and not job.required_nodes
