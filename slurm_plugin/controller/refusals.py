"""What follows when Slurm does not start a job that was released to it: where and when to try again."""

from dataclasses import replace

from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller.tickets import Ticket

LATE = "it did not start in time"
"""Why, where Slurm gives no reason."""

ELSEWHERE = 3
"""So many refusals in a row are followed by a try on other nodes at once."""

LONGEST_BACKOFF_S = 3600.0

_LICENSES = "Licenses"
_CONFIGURED = ("Partition", "InvalidAccount", "InvalidQOS", "MaxMemPerLimit")
_OF_LIMITS = ("QOS", "Assoc", _LICENSES, *_CONFIGURED)
_HOPELESS = (*_OF_LIMITS, "BadConstraints")
_OF_NODES = ("BadConstraints", "Nodes", "Priority", "ReqNodeNotAvail", "Resources", LATE)


def is_hopeless(reason: str) -> bool:
    """Whether no waiting helps a job that is pending for this reason: it gives its GPUs back at once."""
    return reason.startswith(_HOPELESS)


def remember(ticket: Ticket, job: SlurmJob, reason: str) -> None:
    """Slurm did not start the job; the nodes are remembered if they may be why."""
    ticket.refusals += 1
    ticket.refused, ticket.refused_as = reason, asked_for(ticket, job)
    if not reason.startswith(_OF_LIMITS):
        ticket.refused_nodes = tuple(dict.fromkeys((*ticket.refused_nodes, *ticket.gpus)))


def forget(ticket: Ticket) -> None:
    """The job has started, or asks for something else: it is a job like all others."""
    ticket.refusals, ticket.refused, ticket.refused_as, ticket.refused_nodes = 0, "", "", ()
    ticket.declined = ""


def asked_for(ticket: Ticket, job: SlurmJob) -> str:
    """What Slurm judges of a job, as a text; another one if its user or an administrator changes it."""
    asked = replace(ticket.job, preemptible=True)
    more = (job.partition, job.account, job.qos, job.licenses, job.memory_per_node_mb, job.memory_per_cpu_mb)
    return repr((asked, more))


def pause_s(ticket: Ticket, backoff_s: float) -> float:
    """How long a job that was just refused is left out; 0 if other nodes may do."""
    if ticket.refused.startswith(_OF_NODES):
        beyond = ticket.refusals - ELSEWHERE
        return longer(backoff_s, beyond) if beyond > 0 else 0.0
    return longer(backoff_s, ticket.refusals)


def longer(backoff_s: float, times: int) -> float:
    """A back-off that doubles each time, up to an hour."""
    return min(LONGEST_BACKOFF_S, backoff_s * 2.0 ** min(times - 1, 30))


def may_help(ticket: Ticket, job: SlurmJob, left: SlurmJob) -> bool:
    """Whether a refused job may start now that another has left its nodes.

    Args:
        ticket: The refused job's ticket.
        job: The same job as Slurm shows it.
        left: The other job as it ran.
    """
    reason = ticket.refused
    if reason.startswith(_LICENSES):
        return not licenses(job).isdisjoint(licenses(left))
    if reason.startswith("QOS"):
        return left.qos == job.qos or left.user == job.user
    if reason.startswith("Assoc"):  # a limit of a group may be that of an account above both
        return reason.startswith("AssocGrp") or left.account == job.account or left.user == job.user
    return not reason.startswith(_CONFIGURED)


def licenses(job: SlurmJob) -> set[str]:
    """Names of the licences that a job asks for."""
    return {each.partition(":")[0] for each in job.licenses.replace("|", ",").split(",") if each}


def whose_limit(ticket: Ticket, job: SlurmJob) -> tuple[str, str, str] | None:
    """User, account and QOS by whose limit a job was refused; None if it was not."""
    return payer(job) if ticket.refused.startswith(("QOS", "Assoc")) else None


def payer(job: SlurmJob) -> tuple[str, str, str]:
    """User, account and QOS to which limits of a job belong."""
    return job.user, job.account, job.qos
