"""What follows when Slurm does not start a job that was released to it: where and when to try again."""

from dataclasses import replace

from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller.limit_use import licenses_asked
from slurm_plugin.controller.managed_job import ManagedJob

LATE = "it did not start in time"
"""Why, where Slurm gives no reason."""

ELSEWHERE = 3
"""So many refusals in a row are followed by a try on other nodes at once."""

LONGEST_BACKOFF_S = 3600.0

_LICENSES = "Licenses"
_CONFIGURED = ("Partition", "Account", "Job's account", "InvalidAccount", "InvalidQOS", "MaxMemPerLimit")
_OF_LIMITS = ("QOS", "Assoc", _LICENSES, *_CONFIGURED)
_HOPELESS = (*_OF_LIMITS, "BadConstraints")
_OF_NODES = ("BadConstraints", "Nodes", "Priority", "ReqNodeNotAvail", "Resources", LATE)


def is_hopeless(reason: str) -> bool:
    """Whether no waiting helps a job that is pending for this reason: it gives its GPUs back at once."""
    return reason.startswith(_HOPELESS)


def remember(managed: ManagedJob, job: SlurmJob, reason: str) -> None:
    """Slurm did not start the job; the nodes are remembered if they may be why."""
    managed.refusals += 1
    managed.refused, managed.refused_as = reason, asked_for(managed, job)
    if not reason.startswith(_OF_LIMITS):
        managed.refused_nodes = tuple(dict.fromkeys((*managed.refused_nodes, *managed.gpus)))


def forget(managed: ManagedJob) -> None:
    """The job has started, or asks for something else: it is a job like all others."""
    managed.refusals, managed.refused, managed.refused_as, managed.refused_nodes = 0, "", "", ()
    managed.declined = ""


def asked_for(managed: ManagedJob, job: SlurmJob) -> str:
    """What Slurm judges of a job, as a text; another one if its user or an administrator changes it."""
    asked = replace(managed.job, preemptible=True)
    more = (job.partition, job.account, job.qos, job.licenses, job.memory_per_node_mb, job.memory_per_cpu_mb)
    return repr((asked, more))


def pause_s(managed: ManagedJob, backoff_s: float) -> float:
    """How long a job that was just refused is left out; 0 if other nodes may do."""
    if managed.refused.startswith(_OF_NODES):
        beyond = managed.refusals - ELSEWHERE
        return longer(backoff_s, beyond) if beyond > 0 else 0.0
    return longer(backoff_s, managed.refusals)


def longer(backoff_s: float, times: int) -> float:
    """A back-off that doubles each time, up to an hour."""
    return min(LONGEST_BACKOFF_S, backoff_s * 2.0 ** min(times - 1, 30))


def may_help(managed: ManagedJob, job: SlurmJob, left: SlurmJob) -> bool:
    """Whether a refused job may start now that another has left its nodes.

    Args:
        managed: The refused job's managed.
        job: The same job as Slurm shows it.
        left: The other job as it ran.
    """
    reason = managed.refused
    if reason.startswith(_LICENSES):
        return not licenses(job).isdisjoint(licenses(left))
    if reason.startswith("QOS"):
        return left.qos == job.qos or left.user == job.user
    if reason.startswith("Assoc"):  # a limit of a group may be that of an account above both
        return reason.startswith("AssocGrp") or left.account == job.account or left.user == job.user
    return not reason.startswith(_CONFIGURED)


def licenses(job: SlurmJob) -> set[str]:
    """Names of the licences that a job asks for."""
    return {name for name, _ in licenses_asked(job.licenses.replace("|", ","))}


def payer(job: SlurmJob) -> tuple[str, str, str]:
    """User, account and QOS to which limits of a job belong."""
    return job.user, job.account, job.qos
