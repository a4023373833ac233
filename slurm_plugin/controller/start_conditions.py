"""What Slurm would hold against a start beside GPUs: partitions, nodes, reservations, limits and licences."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import localtime, strftime

from dally.jobs.job import Gang, Job, JobKind
from dally.state import ClusterState
from slurm_plugin.client.accounting_limits import AccountingLimits
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.slurm import HOLDS_GPUS, Hold, Partition, Reservation, SlurmJob, SlurmNode, State
from slurm_plugin.controller.equal_demands import EqualDemands
from slurm_plugin.controller.job_requests import asked_size, own_limit_s
from slurm_plugin.controller.limit_use import LimitUse, in_one_partition, licenses_asked
from slurm_plugin.controller.managed_job import ON_GPUS, ManagedJob, ReleasedPhase, StartingPhase
from slurm_plugin.controller.node_room import Measure, NodeResources, NodeRoom
from slurm_plugin.controller.node_sets import (
    chosen,
    fits,
    in_one_of,
    node_sets,
    on_switches,
    switches_until_s,
)
from slurm_plugin.controller.oldest_first import OldestFirst
from slurm_plugin.controller.partition_cpus import PartitionCpus
from slurm_plugin.controller.partition_rules import partition_refusal
from slurm_plugin.controller.unavailable_gpus import (
    WITHOUT_LIMIT_S,
    own_reservation,
    reserved_before,
    reserved_for,
)

_FULL = "the nodes that it may use have no CPUs or memory left for it"
_RESERVED = "too many of the nodes that it may use are in reservations before its time limit ends"
_CROWDED = "jobs that are not Dally's leave it too few CPUs or too little memory on the nodes that it may use"
_SHARED = "jobs that are not Dally's, or reservations, are in too many of the blocks that it could have alone"
_CAPPED = "jobs of its partition have the CPUs that they may have of the nodes together (MaxCPUsPerNode)"
_NOWHERE = "too few nodes of its {} have the features, CPUs and memory that it asks for"

RunKey = tuple[str, float | None]
"""A job, by its number, and when it started."""


class StartConditions:
    """Slurm's conditions as of the last look.

    Args:
        managed_jobs: Our jobs, by number.
        state: The cluster, on which gangs must fit.

    Attributes:
        limits: Limits of QOS and associations.
        runs_in_spent: The runs that are part of what is spent of limits, each a job and its start.
        partitions: The partitions by name.
        licenses: Free licences by name.
        blocks: The blocks of topology/block.
        reservations: All reservations.
        room: The nodes, with what jobs leave of them.
        oldest_first: Nodes that are kept for the oldest job.
        equal_demands: Which jobs ask for the same.
    """

    def __init__(self, managed_jobs: Mapping[str, ManagedJob], state: ClusterState) -> None:
        self._managed_jobs, self._state = managed_jobs, state
        self.limits = AccountingLimits()
        self.runs_in_spent: Collection[RunKey] = ()
        self.partitions: Mapping[str, Partition] = {}
        self.licenses: Mapping[str, int] = {}
        self.blocks = BlockTopology()
        self.reservations: Sequence[Reservation] = ()
        self.room = NodeRoom()
        self.oldest_first = OldestFirst(managed_jobs, state)
        self.equal_demands = EqualDemands()
        self._jobs: Mapping[str, SlurmJob] = {}
        self._full: dict[str, dict[str, NodeResources]] = {}
        self._named: Mapping[str, Reservation] = {}
        self._up: dict[tuple[Gang, frozenset[str]], bool] = {}
        self._reserved: dict[tuple[str, float], frozenset[str]] = {}
        self._left: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}
        self._choices: dict[tuple[object, ...], frozenset[str] | None] = {}
        self._narrowed: dict[tuple[object, ...], frozenset[str] | None] = {}
        self._partition_cpus = PartitionCpus({}, ())

    def observe(
        self,
        jobs: Mapping[str, SlurmJob],
        nodes: Sequence[SlurmNode],
        reservations: Sequence[Reservation],
        now: float,
    ) -> None:
        """Take in a look at Slurm, with our jobs as they are by now."""
        self._jobs, self.reservations, self.room = jobs, reservations, NodeRoom(nodes, self.room)
        self._named, self._up = {each.name: each for each in reservations}, {}
        self._reserved, self._left, self._choices, self._narrowed = {}, {}, {}, {}
        self._partition_cpus = PartitionCpus(self.partitions, jobs.values())
        self.equal_demands.tidy(len(self._managed_jobs))
        for managed in self._managed_jobs.values():
            if isinstance(managed.phase, ON_GPUS):
                self.room.add_ours(jobs[managed.job_id], managed.phase.gpus)
        self._full = {
            job_id: self._still_full(full)
            for job_id, full in self._full.items()
            if job_id in self._managed_jobs
        }
        self.oldest_first.observe(jobs, self.room, reservations, now)

    def _still_full(self, full: Mapping[str, NodeResources]) -> dict[str, NodeResources]:
        """Of nodes on which a job found too little those on which it still would."""
        nodes = self.room.nodes
        return {
            name: needed
            for name, needed in full.items()
            if name in nodes and not self.room.now(nodes[name]).holds(needed)
        }

    # Nodes.

    def configured(self) -> object:
        """What the cluster is made of, whoever uses it and whatever is down; equal while that stays."""
        return self.partitions, [
            (node.name, node.partitions, node.cpus, node.gpus, node.memory_mb, node.features)
            for node in self.room.nodes.values()
        ]

    def narrowed(self, managed: ManagedJob, demand: int, now: float) -> tuple[Job, str]:
        """A waiting job with the nodes that it may use now; why it may not start, if these are too few.

        One whose size is open has no more GPUs than its limits could ever let it have.

        Args:
            managed: The job.
            demand: The number of what it asks for, by `equal_demands`.
            now: The time, seconds.
        """
        asked = self._within_limits(managed)
        if not self.room.nodes:
            return asked, ""
        kept = self.oldest_first.kept_from(managed, now)
        its_own = (
            *(managed.refusals.nodes, managed.request.switches, managed.job_id in self._full),
            managed.job.whole_blocks,  # nodes may be reserved for it
        )
        same = demand, kept, now
        if any(its_own) or same not in self._narrowed:
            machines, why = self._machines(managed, asked, kept, now)
            if why:
                return asked, why
            if not any(its_own):
                self._narrowed[same] = machines
        else:
            machines = self._narrowed[same]
        is_same = machines is asked.machines or machines == asked.machines
        return asked if is_same else replace(asked, machines=machines), ""

    def _machines(
        self, managed: ManagedJob, asked: Job, kept: frozenset[str], now: float
    ) -> tuple[frozenset[str] | None, str]:
        """The only nodes that a waiting job may use now, None for all; why it may not start, if too few.

        Args:
            managed: The job.
            asked: What it asks for, within its limits.
            kept: Nodes that are kept from it.
            now: The time, seconds.
        """
        room = self.room
        own = own_reservation(self._jobs[managed.job_id])
        if own and (closed := self._closed(own, now)):
            return None, closed
        end_s = now + (asked.time_limit_s or WITHOUT_LIMIT_S)
        reserved = self.reserved_from(self._jobs[managed.job_id], now, end_s)
        uncapped = self._with_room(managed, room.beside_others)
        beside_others = self._within_cpus_of_partition(managed, uncapped)
        unreserved = self._without(beside_others, reserved)
        roomy = self._without(unreserved, self._full.get(managed.job_id, ()))
        unkept = self._without(roomy, kept)
        alone = self._without(unkept, self._shared_blocks(managed, now, end_s))
        untried = self._without(alone, managed.refusals.nodes)
        machines = self._chosen(managed, untried, now)
        if machines is not None and not self._fits_up(asked.gang, machines):
            down = machines & room.down
            machines = self._chosen(managed, self._without(untried, room.down), now)
            if machines is None:
                return None, room.why_down(down, asked.gang.segment)
        if machines is not None:
            return None if machines is room.with_gpus else machines, ""
        tried = f"only nodes are left on which it did not start: {', '.join(managed.refusals.nodes)}"
        ever = self._with_room(managed, room.in_all)
        older = self.oldest_first.explanation(managed, now)
        reasons = (
            (alone, tried),
            (unkept, _SHARED),
            (roomy, older),
            (unreserved, _FULL),
            (beside_others, _RESERVED),
            (uncapped, _CAPPED),
            (ever, _CROWDED),
        )
        fits = (why for names, why in reasons if self._chosen(managed, names, now) is not None)
        nowhere = _NOWHERE.format(f"reservation {own}" if own else "partition")
        why = next(fits, nowhere + _segment_words(asked.gang) + self._option_words(managed, now))
        if why == _RESERVED:
            why = f"{why}: {self._reservation_words(own, beside_others, now, end_s)}"
        return None, "; ".join((why, *self._refusing_partitions(managed).values()))

    def _reservation_words(self, own: str, names: frozenset[str], now: float, end_s: float) -> str:
        """Which reservations for others some nodes are in until `end_s`, the soonest first, and when."""
        found = sorted(
            (each.start_s, each.end_s, each.name)
            for each in self.reservations
            if each.name != own and each.end_s > now and reserved_before(end_s, [each]) & names
        )
        words = (
            f"{name} until {_clock(over_s)}" if start_s <= now else f"{name} from {_clock(start_s)}"
            for start_s, over_s, name in found
        )
        return ", ".join(words)

    def _option_words(self, managed: ManagedJob, now: float) -> str:
        """Which options beside features, CPUs and memory narrow the nodes of a job; empty if none does."""
        request, since_s = managed.request, managed.switches_since_s
        options = {
            "--nodelist": request.nodes,
            "--exclude": self._jobs[managed.job_id].excluded_nodes,
            "--tmp": self._jobs[managed.job_id].tmp_disk_mb,
            "--switches": since_s is not None and now < switches_until_s(request, since_s),
        }
        given = [option for option, value in options.items() if value]
        return f", with its {' and '.join(given)}" if given else ""

    def _within_limits(self, managed: ManagedJob) -> Job:
        """A waiting job with the most GPUs that it may have, if it may have more or fewer."""
        asked, wanted = managed.job, managed.request.max_gpus
        if asked.kind is not JobKind.ELASTIC or not wanted:
            return asked
        use = LimitUse(self.limits, {}, self.partitions)
        most = max(map(use.most_gpus, in_one_partition(self._jobs[managed.job_id])))
        most = wanted if most >= wanted else max(asked.gpus, int(most))
        return asked if most == asked.most_gpus else replace(asked, max_gpus=most)

    def reserved_from(self, job: SlurmJob, now: float, end_s: float) -> frozenset[str]:
        """Nodes that are reserved for others than a job at any time until `end_s`."""
        key = own_reservation(job), end_s
        if key not in self._reserved:
            others = (each for each in self.reservations if each.name != key[0] and each.end_s > now)
            self._reserved[key] = frozenset(reserved_before(end_s, others))
        return self._reserved[key]

    def reserved_at_s(self, job: SlurmJob, nodes: Collection[str], now: float) -> float:
        """When the first of some nodes is reserved for others than a job, from now on; inf for never."""
        own = own_reservation(job)
        others = (each for each in self.reservations if each.name != own and each.end_s > now)
        starts = (each.start_s for each in others if not reserved_before(inf, [each]).isdisjoint(nodes))
        return min(starts, default=inf)

    def _shared_blocks(self, managed: ManagedJob, now: float, end_s: float) -> frozenset[str]:
        """Nodes of blocks that a job cannot have for itself alone, though none of ours is there.

        Slurm starts a job of `--exclusive=topo` neither beside another, which need not have GPUs, nor beside
        a node that is reserved for others before it ends. Nodes that are down do not matter. Tried on 26.05.
        """
        if not managed.job.whole_blocks:
            return frozenset()
        topology, index = self._state.topology, self._state.topology.machine_index
        ours = (*ON_GPUS, StartingPhase)
        taken = {
            node
            for job in self._jobs.values()
            if job.state in HOLDS_GPUS
            if (known := self._managed_jobs.get(job.job_id)) is None or not isinstance(known.phase, ours)
            for node in job.nodes
        }
        own = own_reservation(self._jobs[managed.job_id])
        for each in self.reservations:
            if each.name != own and reserved_for(each) != managed.job_id and now < each.end_s:
                taken.update(each.nodes if each.start_s < end_s else ())
        beside = topology.beside(index[name] for name in taken if name in index)
        return frozenset(topology.machines[machine].name for machine in beside)

    def _closed(self, name: str, now: float) -> str:
        """Why a job of a reservation may not start now at all; empty if it may."""
        found = self._named.get(name)
        if found is None:
            return f"there is no reservation {name} now"
        if now < found.start_s:
            return f"its reservation {name} begins on {_clock(found.start_s)}"
        return "" if now < found.end_s else f"its reservation {name} is over"

    def _fits_up(self, gang: Gang, machines: frozenset[str]) -> bool:
        """Whether a gang could have its nodes among those of some that are up, if all jobs left."""
        down = self.room.down
        if down.isdisjoint(machines):
            return True
        key = gang._replace(machines=None), machines
        if key not in self._up:
            self._up[key] = fits(gang._replace(machines=machines - down), self._state)
        return self._up[key]

    def _without(self, names: frozenset[str], taken: Collection[str]) -> frozenset[str]:
        """Some names without others; many jobs ask for the same."""
        if not taken:
            return names
        key = names, frozenset(taken)
        if key not in self._left:
            self._left[key] = self.room.same(names.difference(taken))
        return self._left[key]

    def exclude(self, managed: ManagedJob, lacking: Mapping[str, NodeResources]) -> None:
        """Keep nodes from a waiting job as long as they have not what it needs there.

        So are all others kept that have free GPUs and too little of the rest: the policy, which does not
        count that, would choose one after the other.

        Args:
            managed: The job.
            lacking: What it needs on nodes that were chosen for it and do not have that.
        """
        job, machines = self._as_asked(managed), self._state.topology.machine_index
        full = self._full.setdefault(managed.job_id, {})
        each = managed.job.gpus_per_machine or 1
        usable = self._with_room(managed, self.room.beside_others)
        for name in usable - self._with_room(managed, self.room.now):
            if name in machines and self._state.free.on(machines[name]):
                full[name] = self.room.needed(job, managed.job.gpus, each, name)
        full.update(lacking)
        self._choices, self._narrowed = {}, {}  # they go by the GPUs that are free: others than at the look

    def _with_room(self, managed: ManagedJob, room: Measure) -> frozenset[str]:
        job = self._jobs[managed.job_id]
        names = job.partition.split(",")
        if len(names) > 1:
            refusing = self._refusing_partitions(managed)
            names = [name for name in names if name not in refusing] or names
        in_each = (replace(job, partition=name) if name != job.partition else job for name in names)
        size = asked_size(managed, job)
        found = frozenset[str]().union(*(self.room.machines(one, size, managed.job, room) for one in in_each))
        own = self._named.get(own_reservation(job))
        return self.room.same(found.intersection(own.nodes)) if own else found

    def _within_cpus_of_partition(self, managed: ManagedJob, names: frozenset[str]) -> frozenset[str]:
        """Of some nodes those on which a partition of a job has CPUs left for it, by its MaxCPUsPerNode.

        What our own jobs have of them counts as taken, too: nobody is stopped for it.
        """
        job, each = self._as_asked(managed), managed.job.gpus_per_machine or 1
        if job.exclusive or not self._partition_cpus.any:
            return names
        own = job.partition.split(",")

        def has_room(name: str) -> bool:
            left = self._partition_cpus.left(own, self.room.nodes[name])
            return left == inf or self.room.needed(job, managed.job.gpus, each, name).cpus <= left

        return self.room.same(frozenset(filter(has_room, names)))

    def _chosen(self, managed: ManagedJob, usable: frozenset[str], now: float) -> frozenset[str] | None:
        """The nodes of some on which a job may start; None if they are too few, or do not go together."""
        request, job, gang = managed.request, self._jobs[managed.job_id], managed.job.gang
        since_s = now if managed.switches_since_s is None else managed.switches_since_s
        switches = request.switches if now < switches_until_s(request, since_s) else 0
        key = request.nodes, job.features, job.partition, switches, gang, usable
        if key not in self._choices:
            nodes = self.room.nodes
            sets = node_sets(request, job.features, nodes, usable)
            if "," in job.partition and gang.units > 1:
                sets = in_one_of(job.partition.split(","), sets, nodes)
            if switches:
                sets = on_switches(sets, switches, gang, self._state)
            names = chosen(sets, gang, self._state)
            self._choices[key] = None if names is None else self.room.same(names)
        return self._choices[key]

    def room_left(self) -> dict[str, NodeResources]:
        """What is free of each node now, once starting jobs have theirs."""
        left = {name: self.room.now(shown) for name, shown in self.room.nodes.items()}
        if self._partition_cpus.any:
            ours = {name for each in self._managed_jobs for name in self._jobs[each].partition.split(",")}
            for name, shown in self.room.nodes.items():
                cpus = min(left[name].cpus, self._partition_cpus.left(ours, shown))
                left[name] = replace(left[name], cpus=cpus)
        for managed in self._managed_jobs.values():
            if isinstance(managed.phase, StartingPhase):
                for node, taken in self.takes(managed, managed.phase.gpus).items():
                    left[node] -= taken
        return left

    def takes(self, managed: ManagedJob, gpus: Mapping[str, int]) -> dict[str, NodeResources]:
        """What a job takes of each node that Slurm shows, with so many GPUs there."""
        job, in_all = self._as_asked(managed), sum(gpus.values())
        return {
            name: self.room.needed(job, in_all, count, name)
            for name, count in gpus.items()
            if name in self.room.nodes
        }

    def _as_asked(self, managed: ManagedJob) -> SlurmJob:
        """A job with the tasks that it asks for."""
        job = self._jobs[managed.job_id]
        _, tasks = asked_size(managed, job)
        return job if tasks == job.tasks else replace(job, tasks=tasks)

    # Partitions, limits and licences.

    def refusal(self, managed: ManagedJob, use: LimitUse, gpus: int) -> str:
        """Why a waiting job may have so many GPUs in none of its partitions now; empty if it may."""
        refusals = []
        for job in in_one_partition(_as_submitted(managed, self._jobs[managed.job_id])):
            why = self._partition_refusal(managed, job) or use.refusal(job, gpus)
            if not why:
                return ""
            refusals.append(why)
        return refusals[0]

    def _partition_refusal(self, managed: ManagedJob, job: SlurmJob) -> str:
        """Why the one partition that is left of a job, as it was submitted, starts none like it."""
        partition = self.partitions.get(job.partition)
        if partition is None:
            return ""
        nodes, _ = asked_size(managed, job)
        return partition_refusal(job, nodes, partition, self.limits)

    def _refusing_partitions(self, managed: ManagedJob) -> dict[str, str]:
        """Of a job's partitions those that start none like it, each with why."""
        each_in_one = in_one_partition(_as_submitted(managed, self._jobs[managed.job_id]))
        refusals = {one.partition: self._partition_refusal(managed, one) for one in each_in_one}
        return {name: why for name, why in refusals.items() if why}

    def longest_s(self, job: SlurmJob) -> float:
        """The longest time limit that a job may have, seconds: in each of its partitions."""
        names = job.partition.split(",")
        of_partitions = (self.partitions[name].longest_s for name in names if name in self.partitions)
        use = LimitUse(self.limits, {}, self.partitions)
        return min(*of_partitions, *map(use.longest_s, in_one_partition(job)), inf)

    def limit_use(self, now: float) -> LimitUse:
        """What running and starting jobs take of limits and licences, and what Slurm's own are about to."""
        use = LimitUse(self.limits, self.licenses, self.partitions, now)
        for job in self._jobs.values():
            managed = self._managed_jobs.get(job.job_id)
            if managed is not None and isinstance(managed.phase, StartingPhase):
                use.promise(job, sum(managed.phase.gpus.values()))
            elif job.state in HOLDS_GPUS:
                held = job.gpus or (managed.gpus if managed else {})  # coming to its end, it shows none
                use.run(job, sum(held.values()), (job.job_id, job.start_s) in self.runs_in_spent)
            elif managed is None and _waits_in_slurm(job) and job.reason in ("", "Priority"):
                use.promise(job, 0)  # Slurm has found nothing yet that keeps it
        return use

    def knows_licenses(self, job: SlurmJob) -> bool:
        """Whether it is known which of the licences that a job asks for are free."""
        asked = licenses_asked(job.licenses)
        return not job.licenses or (bool(asked) and all(name in self.licenses for name, _ in asked))

    def others_wait(self) -> bool:
        """Whether Slurm has jobs in its own queue that it would start on GPUs which come free."""
        known = self._managed_jobs
        return any(
            _waits_in_slurm(job)
            and (job.job_id not in known or isinstance(known[job.job_id].phase, ReleasedPhase))
            for job in self._jobs.values()
        )


def _clock(at_s: float) -> str:
    return strftime("%b %d at %H:%M", localtime(at_s))


def _segment_words(gang: Gang) -> str:
    """How a gang's segments lie; empty if it has none."""
    return (f", in segments of {gang.segment}" if gang.segment else "") + gang.layout


def _as_submitted(managed: ManagedJob, job: SlurmJob) -> SlurmJob:
    """A job with the time limit that it asked for, not one that Dally gave it."""
    limit_s = own_limit_s(managed, job)
    return job if limit_s == job.time_limit_s else replace(job, time_limit_s=limit_s)


def _waits_in_slurm(job: SlurmJob) -> bool:
    """Whether a job waits and nobody holds it."""
    return job.state is State.PENDING and job.hold is Hold.NONE
