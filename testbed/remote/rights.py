"""What the user who logs in may do in a Slurm of others, found out without changing anything there."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from slurm_plugin.admin.checks.gather import admin_level
from slurm_plugin.admin.checks.site import Finding, Level, ok, problem, some, warning
from slurm_plugin.client.job_json import read_jobs
from slurm_plugin.client.node_text import read_settings
from slurm_plugin.client.slurm import SlurmUnavailableError, State
from slurm_plugin.controller.job_requests import read_request
from slurm_plugin.local_cluster.cluster import ClusterError
from testbed.remote.head_node import HeadNode

_SITE_FILES = ("dally_site.lua", "dally/dally_site.lua")
_NEEDED = ("nodes", "partitions")
"""What PrivateData may hide that Dally must see."""

_PASSING = ("busy", "Node not available", "not available now", "Reservation is in use")
"""What keeps a job from starting now, and not from being submitted."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may do in a Slurm cluster, and which others use Dally there.

    Attributes:
        user: Who logs in, by name.
        uid: The same, by number.
        partition: The partition to use.
        settings: What `scontrol show config` tells, by key.
        admin_level: The user's in Slurm's accounting, in lower case; empty if there is none.
        refusal: What Slurm says against a job of this user there; empty if nothing.
        shared: Other partitions over the same nodes.
        marked: Other users with jobs there that ask for Dally.
        has_site_dally: Whether jobs pass through the job_submit.lua of the site's own Dally.
        site_lua: The text of its dally_site.lua; empty if it cannot be read.
    """

    user: str
    uid: int
    partition: str
    settings: Mapping[str, str] = field(default_factory=dict)
    admin_level: str = ""
    refusal: str = ""
    shared: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    has_site_dally: bool = False
    site_lua: str = ""

    @property
    def is_operator(self) -> bool:
        """Whether Slurm lets this user change jobs of others and make reservations."""
        is_slurm_user = f"({self.uid})" in self.settings.get("SlurmUser", "")
        return self.uid == 0 or is_slurm_user or self.admin_level.startswith(("operator", "admin"))

    @property
    def hidden(self) -> tuple[str, ...]:
        """What the user must see and may not."""
        private = self.settings.get("PrivateData", "").split(",")
        return () if self.is_operator else tuple(name for name in _NEEDED if name in private)


def find_rights(slurm: HeadNode) -> Rights:
    """What the user who logs in on the head node may do.

    Raises:
        ClusterError: The head node or Slurm does not answer.
    """
    user, uid = slurm.ask("id", "-un").strip(), int(slurm.ask("id", "-u"))
    settings = read_settings(slurm.ask("scontrol", "show", "config"))
    site_lua = ""
    # --test-only asks whether a job would be taken, and submits none.
    refusal = _refusal(slurm, f"--partition={slurm.partition}", "--gpus=1")
    refusal = refusal.replace("sbatch: error: ", "").replace("allocation failure: ", "")
    partitions: dict[str, set[str]] = {}
    for line in slurm.ask("sinfo", "--all", "--noheader", "--Node", "--format=%N %R").splitlines():
        node, partition = line.split()
        partitions.setdefault(node, set()).add(partition)
    shared = set().union(*(found for found in partitions.values() if slurm.partition in found))
    for name in _SITE_FILES:
        if not site_lua:
            with suppress(ClusterError):
                site_lua = slurm.ask("cat", str(slurm.conf.parent / name))
    try:
        jobs = read_jobs(slurm.ask("env", "SLURM_BITSTR_LEN=0", "squeue", "--all", "--json"))
    except SlurmUnavailableError as error:
        raise ClusterError(str(error)) from error
    marked = {
        job.user
        for job in jobs
        if slurm.partition in job.partition.split(",") and job.state is not State.ENDED and job.user != user
        if read_request(job.comment, job.admin_comment) is not None
    }
    return Rights(
        user,
        uid,
        slurm.partition,
        settings,
        admin_level(slurm.ask, user, settings),
        refusal,
        frozenset(shared) - {slurm.partition},
        frozenset(marked),
        # Dally's job_submit.lua refuses a mark that makes no sense; without it, a comment is a comment.
        "is no request to Dally" in _refusal(slurm, "--comment=dally:plain=no"),
        site_lua,
    )


def all_findings(here: Rights) -> dict[str, Finding]:
    """What is to be said of a user, by check."""
    return {"jobs": jobs_finding(here), "rights": rights_finding(here), "others": others_finding(here)}


def refuse_unfit(slurm: HeadNode, controlled: bool) -> str:
    """Refuse a cluster where a run would come to nothing.

    Args:
        slurm: The cluster.
        controlled: Whether Dally's controller is to run there, and not only Slurm itself.

    Returns:
        What is not as it could be, in one line; empty if nothing.

    Raises:
        ClusterError: It would, as the message says.
    """
    found = all_findings(find_rights(slurm))
    warnings = []
    for check in ("jobs", "rights", "others") if controlled else ("jobs",):
        said = f"{found[check].found} -> {found[check].advice}"
        if found[check].level is Level.PROBLEM:
            raise ClusterError(said)
        if found[check].level is Level.WARNING:
            warnings.append(said)
    return "; ".join(warnings)


def jobs_finding(here: Rights) -> Finding:
    """Whether the user's jobs are taken there, and left to the user."""
    if here.hidden:
        return problem(
            f"Slurm hides {' and '.join(here.hidden)} from {here.user} (PrivateData)",
            f"the administrator has to take that out of PrivateData, or {_grant(here)}",
        )
    # Where the site's partitions cannot be read, this may be one of them.
    if here.has_site_dally and (not here.site_lua or f'"{here.partition}"' in here.site_lua):
        return problem(
            f"jobs in partition {here.partition} go to the site's own Dally (job_submit.lua)",
            "name a partition that the site's dally.toml does not, and policy slurm",
        )
    if any(words in here.refusal for words in _PASSING):
        return warning(f"a job of {here.user} could not start now: {here.refusal}", "see `sinfo` there")
    if here.refusal:
        return problem(
            f"{here.user} may not run jobs in partition {here.partition}: {here.refusal}",
            "the administrator has to let this user in: AllowGroups, AllowAccounts or AllowQos of the "
            "partition, an association in sacctmgr, or Users of the reservation",
        )
    return ok(f"{here.user} may run jobs in partition {here.partition}")


def rights_finding(here: Rights) -> Finding:
    """Whether Dally's controller, run by the user, may do all that it would."""
    if here.is_operator:
        return ok(f"{here.user} may do all that Dally's controller does")
    if not here.shared:
        return ok(f"{here.user} is no operator, and need not be: no other partition has these nodes")
    partitions = f"partition{'s' * (len(here.shared) > 1)} {some(here.shared)}"
    return warning(
        f"{here.user} is no operator: jobs of {partitions} may take nodes that Dally has chosen",
        f"its jobs then wait again; to keep such nodes, the administrator has to {_grant(here)}",
    )


def others_finding(here: Rights) -> Finding:
    """Whether a controller of ours would come upon jobs of others."""
    if here.marked:
        return problem(
            f"partition {here.partition} has jobs for Dally of {some(here.marked)}, "
            "which a controller of yours would take for its own",
            "wait until they have ended, or have them cancelled; policy slurm can run beside them",
        )
    if here.has_site_dally:
        return problem(
            "the site's own Dally (job_submit.lua) takes the hold off jobs for a controller of yours",
            "policy slurm can run; for others the administrator has to take lua out of JobSubmitPlugins",
        )
    return ok("no others use Dally there")


def _grant(here: Rights) -> str:
    """What makes this user an operator."""
    if here.settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        return f"make {here.user} an operator: sacctmgr modify user {here.user} set adminlevel=Operator"
    slurm_user = here.settings.get("SlurmUser", "SlurmUser").partition("(")[0]
    return f"let you log in as {slurm_user}: without slurmdbd there are no operators, only SlurmUser"


def _refusal(slurm: HeadNode, *options: str) -> str:
    """What Slurm says against a job with these options; empty if nothing."""
    try:
        slurm.ask("sbatch", "--test-only", *options, "--wrap=true")
    except ClusterError as error:
        return str(error).partition("): ")[2] or str(error)
    return ""
