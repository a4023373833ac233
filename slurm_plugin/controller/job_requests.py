"""What a job in Slurm's queue asks of Dally, as far as policies, this site and its cluster can give it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil

from dally.errors import InputError
from dally.hostlist import MOST_NAMES
from dally.jobs.job import Gang, Job, JobKind
from dally.jobs.training_plan import TrainingPlan
from dally.state import ClusterState
from dally.words import plural
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.orders import ReleaseToSlurm
from slurm_plugin.client.slurm import Hold, Partition, Reservation, SlurmJob, SlurmNode
from slurm_plugin.config import Config
from slurm_plugin.constraint import satisfies
from slurm_plugin.controller.managed_job import ManagedJob
from slurm_plugin.controller.node_room import in_all, is_usable, needed, usable_nodes
from slurm_plugin.controller.node_sets import has_exactly, named_nodes
from slurm_plugin.controller.unavailable_gpus import own_reservation
from slurm_plugin.request import Request, decode_job

UNLIMITED_S = 30 * 86_400.0
"""Taken as the duration of a job without a time limit: nobody knows it, and policies want a number."""


_GPU = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?P<type>(?![0-9]+(?![\w.-]))[\w.-]+))?(?:[:=](?P<count>[0-9]{1,9}))?(?:\([^()]*\))?(?=,|$)"
)


class UnfitError(InputError):
    """Dally cannot place the job as it was asked for; Slurm can."""


def demand(job: SlurmJob, request: Request, nodes: Iterable[SlurmNode] = (), segments: bool = False) -> Job:
    """The job that policies see, but for the nodes that it accepts.

    A count per node, or a number of nodes or tasks per node that divides the GPUs, fixes what each machine
    gives; `--gpus` alone leaves it open. The time limit stands for the unknown duration. Of a waiting job
    the numbers of nodes and tasks can be changed, so only one that counts its GPUs by them has a range.
    An exclusive job gets all GPUs of its nodes, as Slurm gives them to it. It need not ask for any where all
    nodes have some.

    Args:
        job: The job as Slurm shows it.
        request: What its user told Dally.
        nodes: The nodes of Slurm.
        segments: Segments of several nodes count, and Slurm starts them where they are told to.

    Raises:
        UnfitError: It asks for no GPUs, or its options fix a placement that policies know nothing of.
    """
    fixed = {
        "--switches": job.switches and not request.switches,
        "--segment": job.segment > 1 and not segments,
        "--spread-segments": job.spreads_segments and not (segments and job.segment),
        "--consolidate-segments": job.consolidates_segments and not (segments and job.segment),
        "--exclusive=topo": job.whole_blocks and not segments,
        "--gpus-per-socket": job.tres_per_socket,
        "a part of a heterogeneous job": job.heterogeneous,
    }
    if found := next((option for option, value in fixed.items() if value), ""):
        raise UnfitError(f"{found} fixes the placement")
    gpus, each, gpu_type = (0, 0, None) if _takes_gpu_nodes(job, nodes) else _gpus(job)
    if job.exclusive:
        gpus, each = _whole_nodes(job, each or ceil(gpus / job.min_nodes) or 1, nodes)
    if job.segment and each is None:
        raise UnfitError("--segment with GPUs that its nodes may share unevenly fixes the placement")
    if each is None and not (request.min_gpus or request.max_gpus):
        each = _share_with_room(job, gpus, gpu_type, nodes)
    plain = Job(
        job_id=job.job_id,
        submit_s=job.submit_s,
        gpus=gpus,
        duration_s=job.time_limit_s or UNLIMITED_S,
        user=job.user,
        group=job.account,
        model=request.model,
        gpu_type=gpu_type,
        time_limit_s=job.time_limit_s,
        gpus_per_machine=each,
        segment=_segment(job, gpus // each) if each and job.segment else None,
        spread_segments=job.spreads_segments,
        consolidate_segments=job.consolidates_segments,
        whole_blocks=job.whole_blocks,
        preemptible=bool(request.signal) and job.requeue,
        job_name=job.job_name,
    )
    if request.max_copies > 1:
        if not job.tres_per_node or job.tres_per_job:
            raise UnfitError("its copies' GPUs are not counted by --gpus-per-node or --gres alone")
        return replace(plain, kind=JobKind.FORKED, max_copies=request.max_copies)
    low, high = request.min_gpus or gpus, request.max_gpus or gpus
    if low == high or job.tres_per_job:
        return planned(plain, request)[0]
    if not low <= gpus <= high:
        raise UnfitError(f"it asks for {plural(gpus, 'GPU')}, outside of its own range {low} to {high}")
    return replace(plain, kind=JobKind.ELASTIC, min_gpus=low, max_gpus=high)


def planned(job: Job, request: Request) -> tuple[Job, str]:
    """The job with the plan that it was submitted with; where that does not fit, as it is, and why."""
    if not request.plan:
        return job, ""
    try:
        return replace(job, plan=TrainingPlan.parse(request.plan, job.gpus), batch=request.batch or None), ""
    except InputError as error:
        return job, str(error)


def _gpus(job: SlurmJob) -> tuple[int, int | None, str | None]:
    """GPUs in all, on each machine if that is fixed, and their type."""
    for text, times, each in (
        (job.tres_per_node, job.min_nodes, 1),
        (job.tres_per_task, job.tasks, job.tasks_per_node or _share(job.tasks, job.min_nodes)),
        (job.tres_per_job, 1, None),
    ):
        found = [(match["type"], int(match["count"] or 1)) for match in _GPU.finditer(text)]
        if len(found) > 1:
            raise UnfitError(f"it asks for several kinds of GPUs: {text}")
        if found and found[0][1]:
            gpu_type, count = found[0]
            gpus = count * times
            share = _share(gpus, job.min_nodes) if each is None else each * count
            if share and gpus % share:
                raise UnfitError(f"{plural(gpus, 'GPU')} cannot come out even with {share} on each node")
            return gpus, share, gpu_type
    raise UnfitError("it asks for no GPUs")


def _takes_gpu_nodes(job: SlurmJob, nodes: Iterable[SlurmNode]) -> bool:
    """Whether a job gets GPUs without a word of them: whole nodes, all of which have some."""
    said = (job.tres_per_node, job.tres_per_task, job.tres_per_job)
    if not job.exclusive or any(map(_GPU.search, said)):
        return False
    names = set(job.partition.split(","))
    of_its_partitions = [node for node in nodes if not names.isdisjoint(node.partitions)]
    return bool(of_its_partitions) and all(node.gpus for node in of_its_partitions)


def _whole_nodes(job: SlurmJob, least: int, nodes: Iterable[SlurmNode]) -> tuple[int, int]:
    """GPUs in all and on each node, of as many whole nodes as a job asks for; all of them have as many."""
    counts = Counter(node.gpus for node in usable_nodes(job, nodes) if node.gpus >= least)
    enough = [gpus for gpus, count in counts.items() if count >= job.min_nodes]
    if not enough:
        size = f"{plural(job.min_nodes, 'node')} with the same number of GPUs, {least} or more"
        raise UnfitError(f"--exclusive needs {size}, and its partitions have no such")
    return job.min_nodes * min(enough), min(enough)


def _segment(job: SlurmJob, nodes: int) -> int | None:
    """Nodes of each segment: all of them where Slurm was told of more; None if one says nothing."""
    segment = min(job.segment, nodes)
    if nodes % segment:
        raise UnfitError(f"--segment={job.segment} does not divide its {plural(nodes, 'node')}")
    return segment if segment > 1 or job.spreads_segments or job.consolidates_segments else None


def _share_with_room(
    job: SlurmJob, gpus: int, gpu_type: str | None, nodes: Iterable[SlurmNode]
) -> int | None:
    """GPUs on each node where CPUs or memory keep a job from having all of it; None if that is open.

    Policies, which count GPUs only, would choose all GPUs of such nodes again and again.
    """
    names, whole, most = {*job.partition.split(",")}, 0, list[int]()
    for node in nodes:
        of_type = gpu_type is None or f"gpu:{gpu_type}:" in node.gres
        if not of_type or names.isdisjoint(node.partitions) or not is_usable(job, node):
            continue
        shares, has = range(min(gpus, node.gpus), 0, -1), in_all(node)
        most.append(next((each for each in shares if has.holds(needed(job, gpus, each, node, False))), 0))
        whole += node.gpus if most[-1] == shares[0] else 0
        if whole >= gpus:
            return None
    if not any(most):
        return None
    for share in range(max(most), 0, -1):
        if gpus % share == 0 and share * sum(each >= share for each in most) >= gpus:
            return share
    raise UnfitError(f"its CPUs and memory leave no even share of {plural(gpus, 'GPU')} for each node")


def _share(whole: int, nodes: int) -> int | None:
    """The equal share of each node; None if the number of nodes is open or does not divide the whole."""
    return whole // nodes if nodes > 1 and whole % nodes == 0 else None


class RequestReader:
    """Reads jobs for one site.

    Args:
        config: Settings.
        state: The cluster.
        shadow: Whether jobs are looked at that do not ask for Dally.

    Attributes:
        nodes: The nodes as last seen.
        partitions: The partitions by name, as last seen.
        blocks: The blocks of topology/block, as last read.
        reservations: The reservations by name, as last seen.
    """

    def __init__(self, config: Config, state: ClusterState, shadow: bool) -> None:
        self._config, self._state, self._shadow = config, state, shadow
        self.nodes: Sequence[SlurmNode] = ()
        self.partitions: Mapping[str, Partition] = {}
        self.blocks = BlockTopology()
        self.reservations: Mapping[str, Reservation] = {}

    def request(self, job: SlurmJob) -> Request | None:
        """What the job's comments ask of Dally; None if nothing. In shadow mode every job of ours asks."""
        request = read_request(job.comment, job.admin_comment)
        if request is None:
            return Request(held=job.hold is Hold.USER) if self._shadow and self._is_ours(job) else None
        longest_s = self._config.longest_grace_s
        return request if request.grace_s <= longest_s else replace(request, grace_s=longest_s)

    def first_asked(self, job: SlurmJob, request: Request) -> Job:
        """What a job asks for, which Dally has never released.

        Raises:
            InputError: Dally cannot place it.
            CapacityError: The cluster is too small for it.
        """
        if not self._is_ours(job):
            raise UnfitError(f"partition {job.partition} is not one of Dally's")
        nodes, tasks = shown_size(job, request)
        partitions = [self.partitions.get(name, Partition(name)) for name in job.partition.split(",")]
        if found := next((each for each in partitions if each.exclusive_by), None):
            raise UnfitError(f"{found.exclusive_by} of partition {found.name} fixes the placement")
        fewest = min(each.min_nodes for each in partitions)
        if nodes < fewest:
            raise UnfitError(f"it asks for {plural(nodes, 'node')}, and its partition gives {fewest} or more")
        if job.features:
            satisfies(job.features, frozenset())  # or it cannot be judged node by node
        self._check_reservation(own_reservation(job))
        sized = replace(job, min_nodes=nodes, tasks=tasks)
        asked = demand(sized, request, self.nodes, self.blocks.wants_segments)
        if request.nodes and not has_exactly(asked, nodes, named_nodes(request, len(self.nodes))):
            raise UnfitError("--nodelist names other than just the nodes that it needs")
        self._state.best_level(asked.gang)
        self._check_layout(asked.gang)
        return asked

    def asked(self, managed: ManagedJob, job: SlurmJob, request: Request) -> Job:
        """What a waiting job asks for now: somebody may have changed it.

        Raises:
            UnfitError: Dally cannot place it any more.
            CapacityError: The cluster is too small for it.
        """
        nodes, tasks = asked_size(managed, job)
        limit_s = own_limit_s(managed, job)
        asked = self.first_asked(replace(job, min_nodes=nodes, tasks=tasks, time_limit_s=limit_s), request)
        often = max(job.restarts, managed.history.preemptions) >= self._config.max_requeues
        return replace(
            asked,
            submit_s=managed.job.submit_s,
            preemptible=asked.preemptible and not often,
            machines=managed.job.machines,
        )

    def _check_layout(self, gang: Gang) -> None:
        """Refuse a gang that is to lie by blocks which Dally's cluster does not have.

        Raises:
            UnfitError: Nodes that the cluster has in several blocks are in one of Slurm's, where segments are
                spread or blocks are shared with nobody; or the other way around, where they are consolidated.
        """
        if not gang.layout:
            return
        topology, segment = self._state.topology, gang.segment or 1
        paths = {
            machine.name: path for machine, path in zip(topology.machines, topology.ancestors, strict=True)
        }
        if gang.spread and self._span_racks(segment, paths):
            raise UnfitError("--spread-segments goes by blocks that Dally's cluster does not have")
        if gang.whole_blocks and self._span_racks(1, paths):
            raise UnfitError("--exclusive=topo goes by blocks that Dally's cluster does not have")
        areas = defaultdict[int, list[str]](list)
        for name, path in paths.items():
            areas[path[self._state.free.highest(gang)]].append(name)
        for names in areas.values() if gang.consolidated else ():
            block_of = self.blocks.consolidated(gang.units, segment, gang.spread, names)
            if block_of and len({block_of.get(name, name) for name in names}) > 1:
                raise UnfitError("--consolidate-segments goes by blocks that Dally's cluster does not have")

    def _span_racks(self, nodes: int, paths: Mapping[str, Sequence[int]]) -> bool:
        """Whether one of Slurm's blocks that hold so many nodes has several of Dally's, or parts of them."""
        block_of, racks = self.blocks.holding(nodes, paths), defaultdict[str, set[int]](set)
        for name, path in paths.items():
            racks[block_of.get(name, name)].add(path[1])
        return max(map(len, racks.values())) > 1

    def _check_reservation(self, name: str) -> None:
        """Refuse a job whose reservation says nothing certain about the nodes that it may use, and when.

        Raises:
            UnfitError: It is one of several, for maintenance, or of parts of nodes, or its jobs may run
                elsewhere, too.
        """
        if "," in name:
            raise UnfitError("--reservation names several")
        if (found := self.reservations.get(name)) is None:
            return
        if found.maintenance:  # its nodes start no other jobs, and look as if they started none at all
            raise UnfitError(f"reservation {name} is for maintenance")
        names = set(found.nodes)
        cpus = sum(node.cpus for node in self.nodes if node.name in names)
        if not found.bounds_jobs or found.cpus < cpus:
            raise UnfitError(f"jobs of reservation {name} may use other than its nodes, whole, in its time")

    def _is_ours(self, job: SlurmJob) -> bool:
        return set(job.partition.split(",")) <= set(self._config.partitions)


def shown_size(job: SlurmJob, request: Request) -> tuple[int, int]:
    """Fewest nodes and tasks that a job asks for, as Slurm shows them; those of one copy if it forks."""
    if request.max_copies > 1:
        return 1, max(1, job.tasks // job.min_nodes)
    return job.min_nodes, job.tasks


def asked_size(managed: ManagedJob, job: SlurmJob) -> tuple[int, int]:
    """Fewest nodes and tasks that a pending job asks for; once released, it may show what Dally chose.

    Slurm gives a job of GPUs as a total a task for each node that it was released on, and leaves it so.
    """
    if not managed.placed_once:
        return shown_size(job, managed.request)
    if managed.job.kind is not JobKind.RIGID or job.tres_per_job:
        return managed.min_nodes, managed.tasks
    return job.min_nodes if job.tres_per_node else managed.min_nodes, job.tasks


def min_cpus(managed: ManagedJob, job: SlurmJob, nodes: int) -> int | None:
    """The CPUs that an order to release a job on so many nodes must tell; None if it need not tell any."""
    if not managed.placed_once or not job.tres_per_job:
        return None
    _, tasks = asked_size(managed, job)
    return max(nodes, tasks) * job.cpus_per_task


def own_limit_s(managed: ManagedJob, job: SlurmJob) -> float | None:
    """The time limit that a job asks for; the one that it shows may be what Dally gave it."""
    given = managed.limit_s is not None and job.time_limit_s == managed.limit_s
    return managed.job.time_limit_s if given else job.time_limit_s


def release_order(job: SlurmJob, request: Request, managed: ManagedJob | None) -> ReleaseToSlurm:
    """The order by which a job becomes Slurm's own, of the size that it asked for."""
    nodes, tasks = shown_size(job, request) if managed is None else asked_size(managed, job)
    own_s = job.time_limit_s if managed is None else own_limit_s(managed, job)
    limit_min = None if own_s in (None, job.time_limit_s) else int(own_s // 60)
    wait_s = request.switch_wait_s if request.switches else 0
    own = _own_nodes(job, request, managed), request.switches, wait_s, bool(own_reservation(job))
    if job.tres_per_job or not (request.max_copies > 1 or request.min_gpus or request.max_gpus):
        cpus = None if managed is None else min_cpus(managed, job, nodes)
        return ReleaseToSlurm(job.job_id, nodes, None, False, 1, limit_min, *own, cpus)
    exact = has_exact_nodes(job, nodes)
    return ReleaseToSlurm(job.job_id, nodes, tasks, exact, job.cpus_per_task, limit_min, *own)


def _own_nodes(job: SlurmJob, request: Request, managed: ManagedJob | None) -> tuple[str, ...]:
    """The nodes that a job must have as Slurm's own.

    What a mark says, which anybody may have written, counts only where Dally has placed the job by it; else
    Slurm still has the job's own.
    """
    if managed is not None and not managed.placed_once:
        return job.required_nodes
    return tuple(
        sorted(named_nodes(request, max(job.min_nodes, job.tasks) if managed is None else MOST_NAMES))
    )


def has_exact_nodes(job: SlurmJob, nodes: int) -> bool:
    """Whether just so many nodes follow from how a job asks for its GPUs, and not as many as it takes."""
    return nodes > 1 or bool(job.tres_per_node or job.tasks_per_node)


@lru_cache(maxsize=1 << 15)
def read_request(comment: str, admin_comment: str) -> Request | None:
    """What a job's comments ask; a comment written by hand, and wrongly, makes it ours without wishes."""
    try:
        return decode_job(comment, admin_comment)
    except InputError:
        return Request()
