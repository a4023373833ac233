"""HadarE: Hadar with forked jobs, whose copies train side by side on machines that would be idle."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dally.cluster.topology import Allocation
from dally.errors import InputError
from dally.jobs.job import JobKind
from dally.policies.common.knobs import knob
from dally.policies.common.rounds import RoundTarget
from dally.policies.hadar.policy import Hadar, HadarKnobs, HadarRound
from dally.policies.hadar_e.forks import Forker, Machines, spread_copies
from dally.profiles.averaging import Averaging
from dally.state import ClusterState, JobState


@dataclass(frozen=True, slots=True)
class HadarEKnobs(HadarKnobs):
    """Settings of `hadar-e`; a round is a slot."""

    overhead_s: float = knob(
        10.0,
        "seconds of a slot that averaging several copies takes beside the transfer of the model",
        least=0,
    )

    def __post_init__(self) -> None:
        if self.overhead_s >= self.round_s:
            raise InputError(
                f"knob overhead_s is {self.overhead_s:g}, must be less than round_s {self.round_s:g}"
            )


class HadarE(Hadar):
    """Decides as Hadar which jobs run, with one copy each; then forked jobs get copies on what is left.

    One more copy adds its speed to that of the others. It is made where that raises a job's utility most, and
    by more than the price of its GPUs. A job that gains or loses a copy is checkpointed and started again, as
    each slot does in the original; a job whose copies stay runs on at no cost.
    """

    name = "hadar-e"
    summary = "Hadar, and forked jobs train copies side by side on machines that nobody else wants."
    source = "Sultana et al., HadarE, arXiv 2503.10918 (reconstructed)"
    knobs_type = HadarEKnobs
    knobs: HadarEKnobs

    @classmethod
    def averaging(cls, knobs: HadarEKnobs) -> Averaging:
        """Once each slot."""
        return Averaging(knobs.round_s, knobs.overhead_s)

    def round(self, state: ClusterState, now: float) -> HadarRound:
        """A slot, in which forked jobs get copies."""
        return SlotPlan(self, state, self._table.view(now), now)


class SlotPlan(HadarRound):
    """One slot in the making: a round in which each job bids for one copy, then copies are spread."""

    def held(self, job: JobState) -> Allocation:
        """What a running job bids to keep; of several copies the fastest."""
        if job.copies < 2:
            return job.allocation
        return (min(job.allocation, key=lambda copy: self._costs.cost(job.job, (copy,)).slowdown),)

    def targets(self) -> Mapping[str, RoundTarget]:
        """What each job is to have: one copy of those whose bid is accepted, and more of those that fork."""
        accepted = self.accepted()
        targets = {job.job_id: RoundTarget(bid.allocation, self.reason(job, bid)) for job, bid in accepted}
        forking = [(job, bid) for job, bid in accepted if job.job.kind is JobKind.FORKED]
        first = [bid.allocation[0][0] for _, bid in forking]
        forkers = []
        for job, _ in forking:
            names, speeds = self._state.topology.gpu_types, self._costs.worker_speeds(job.job)
            forker = Forker(
                gpus=job.job.gpus,
                most=job.job.max_copies,
                types=[number for number, name in enumerate(names) if name in speeds],
                accepted=self.market.servers.accepted(job.job.machines),
                current=frozenset(machine for machine, _ in job.allocation),
                utility=partial(self._worth, job),
            )
            forkers.append(forker)
        spread = spread_copies(self.market, forkers, first)
        for (job, bid), machine, machines in zip(forking, first, spread, strict=True):
            if machines == {machine}:  # what it bid for; one copy elsewhere is the one that runs, and stays
                continue
            allocation, reason = _copies(job, machines), "stays where it runs"
            if allocation != job.allocation:
                speed = 1 / self._costs.cost(job.job, allocation).slowdown
                reason = (
                    f"{len(machines)} copies at {speed:.2f} of its best speed: utility "
                    f"{self._worth(job, machines):.3g}, with one copy {bid.utility:.3g}"
                )
            targets[job.job_id] = RoundTarget(allocation, reason)
        return targets

    def _worth(self, job: JobState, machines: Machines) -> float:
        """What copies on these machines are worth to a job; several lose part of each slot, as costs say."""
        allocation = _copies(job, machines)
        slowdown = self._costs.cost(job.job, allocation).slowdown
        return self.worth(job, slowdown, stays=allocation == job.allocation)


def _copies(job: JobState, machines: Machines) -> Allocation:
    """One copy on each machine."""
    return tuple((machine, job.job.gpus) for machine in sorted(machines))
