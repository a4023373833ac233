"""What follows when Slurm does not start a job that was released to it: where and when to try again."""

from dataclasses import replace

from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller.limit_use import licenses_asked
from slurm_plugin.controller.managed_job import ManagedJob, Refusals
from slurm_plugin.controller.unavailable_gpus import own_reservation

LATE = "it did not start in time"
"""Why, where Slurm gives no reason."""

ELSEWHERE = 3
"""So many refusals in a row are followed by a try on other nodes at once."""

LONGEST_BACKOFF_S = 3600.0

WITH_SEGMENT = (
    "Slurm refused its nodes; it may have a --segment, which this Slurm does not show; Slurm schedules it"
)
"""Why a job is handed back where Slurm shows no segments."""

_UNCHANGEABLE = "Job update not available"
"""Slurm changes no job whose number in its database it waits for: for ever, if it was restarted meanwhile."""

_LICENSES = "Licenses"
_CONFIGURED = ("Partition", "Account", "Job's account", "InvalidAccount", "InvalidQOS", "MaxMemPerLimit")
_OF_LIMITS = ("QOS", "Assoc", _LICENSES, *_CONFIGURED)
_HOPELESS = (*_OF_LIMITS, "BadConstraints")
_OF_NODES = ("BadConstraints", "Nodes", "Priority", "ReqNodeNotAvail", "Resources", LATE)


def hints_at_segment(reason: str, blocks: BlockTopology) -> bool:
    """Whether Slurm may have refused nodes in the fewest blocks for a segment that it does not show."""
    return reason == "BadConstraints" and blocks.hides_segments


def is_hopeless(reason: str) -> bool:
    """Whether no waiting helps a job that is pending for this reason: it gives its GPUs back at once."""
    return reason.startswith(_HOPELESS)


def refused(managed: ManagedJob, job: SlurmJob, reason: str) -> Refusals:
    """Slurm did not start a job once more; the nodes are among the refusals if they may be why."""
    before = managed.refusals
    nodes = () if reason.startswith((*_OF_LIMITS, _UNCHANGEABLE)) else tuple(managed.gpus)
    return Refusals(
        before.count + 1,
        reason,
        asked_for(managed, job),
        tuple(dict.fromkeys((*before.nodes, *nodes))),
        before.declined,
    )


def asked_for(managed: ManagedJob, job: SlurmJob) -> str:
    """What Slurm judges of a job, as a text; another one if its user or an administrator changes it."""
    asked = replace(managed.job, preemptible=True, machines=None)  # whose nodes come and go by themselves
    where = job.partition, own_reservation(job)
    more = (*where, job.account, job.qos, job.licenses, job.memory_per_node_mb, job.memory_per_cpu_mb)
    return repr((asked, more))


def pause_s(refusals: Refusals, backoff_s: float) -> float:
    """How long a job that was just refused is left out; 0 if other nodes may do."""
    if refusals.reason.startswith(_OF_NODES):
        beyond = refusals.count - ELSEWHERE
        return longer(backoff_s, beyond) if beyond > 0 else 0.0
    return longer(backoff_s, refusals.count)


def longer(backoff_s: float, times: int) -> float:
    """A back-off that doubles each time, up to an hour."""
    return min(LONGEST_BACKOFF_S, backoff_s * 2.0 ** min(times - 1, 30))


def may_help(reason: str, job: SlurmJob, left: SlurmJob) -> bool:
    """Whether a refused job may start now that another has left its nodes.

    Args:
        reason: Why Slurm did not start it.
        job: The refused job as Slurm shows it.
        left: The other job as it ran.
    """
    if reason.startswith(_LICENSES):
        return not licenses(job).isdisjoint(licenses(left))
    if reason.startswith("QOS"):
        return left.qos == job.qos or left.user == job.user
    if reason.startswith("Assoc"):  # a limit of a group may be that of an account above both
        return reason.startswith("AssocGrp") or left.account == job.account or left.user == job.user
    return not reason.startswith((*_CONFIGURED, _UNCHANGEABLE))


def licenses(job: SlurmJob) -> set[str]:
    """Names of the licences that a job asks for."""
    return {name for name, _ in licenses_asked(job.licenses.replace("|", ","))}


def payer(job: SlurmJob) -> tuple[str, str, str]:
    """User, account and QOS to which limits of a job belong."""
    return job.user, job.account, job.qos
