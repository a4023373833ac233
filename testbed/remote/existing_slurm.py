"""A Slurm that is there already, reached over SSH through one host; nothing but our own jobs is touched."""

from pathlib import Path

from dally.errors import DallyError
from slurm_plugin.client.node_text import read_settings
from slurm_plugin.local_cluster.cluster import ClusterError
from testbed.remote.head_node import HeadNode
from testbed.remote.hosts import Hosts

_HARMLESS = (
    "show",
    "ping",
    "hold",
    "uhold",
    "release",
    "requeue",
    "requeuehold",
    "version",
    "--version",
    "-V",
)
"""What may be asked of scontrol, besides updates of jobs."""

_WIDE = ("-u", "--user", "-p", "--partition", "-t", "--state", "-A", "--account", "--me", "-w", "--nodelist")
"""Options by which scancel takes more than the jobs that it names."""


class ExistingSlurm(HeadNode):
    """A partition of a Slurm cluster of others, perhaps only a reservation in it.

    Commands that would change the cluster itself are refused: of scontrol all but showing it and changing
    jobs, of scancel all but naming jobs.
    """

    def argv(self, *argv: str) -> tuple[str, ...]:
        """What runs a command on the head node, unless it would change the cluster itself."""
        check_harmless(argv)
        return super().argv(*argv)


def find_slurm(
    hosts: Hosts, partition: str, work: Path, reservation: str = "", conf: Path | None = None
) -> ExistingSlurm:
    """The Slurm cluster that the first host of the file belongs to.

    Args:
        hosts: The connected hosts; the others may be nodes, whose traffic is then told.
        partition: The partition to use.
        work: A folder that the first host and all nodes share.
        reservation: A reservation to use; empty for none.
        conf: Its slurm.conf on the first host; None for what `scontrol show config` tells there.

    Raises:
        ClusterError: Slurm does not answer or has no such partition or reservation, or the folder is missing,
            or slurm.conf cannot be read.
    """
    head = hosts.file.hosts[0].name
    if conf is None:
        try:
            settings = read_settings(hosts.ask(head, "scontrol", "show", "config"))
        except DallyError as error:
            raise ClusterError(f"no Slurm answers: {error}") from error
        if "SLURM_CONF" not in settings:
            raise ClusterError(f"{head}: scontrol show config names no SLURM_CONF")
        conf = Path(settings["SLURM_CONF"])
    names = ("SBATCH_RESERVATION", "SLURM_RESERVATION", "SALLOC_RESERVATION") if reservation else ()
    slurm = ExistingSlurm(hosts, head, conf, work, partition, {}, dict.fromkeys(names, reservation))
    user = hosts.host(head).login.user or "the user here"
    if hosts.attempt(head, "test", "-r", str(conf)).status:
        raise ClusterError(
            f"{user} cannot read {conf} on {head}; have the administrator make it readable, "
            "or name a copy of it with --slurm-conf"
        )
    if hosts.attempt(head, "test", "-d", str(work), "-a", "-w", str(work)).status:
        raise ClusterError(f"{head} has no folder {work} that {user} may write")
    if "State=UP" not in slurm.ask("scontrol", "--all", "show", "partition", partition):
        raise ClusterError(f"the partition {partition} is not up")
    if reservation:
        slurm.ask("scontrol", "show", "reservation", reservation)
    return slurm


def check_harmless(argv: tuple[str, ...]) -> None:
    """Refuse what would change more of a cluster than jobs that are named.

    Raises:
        ClusterError: It would.
    """
    program, words = Path(argv[0]).name, argv[1:]
    # Without words, scontrol reads what it is to do; the jobs named there are our own.
    if program == "scontrol" and words:
        verbs = [word for word in words if not word.startswith("-") or word in _HARMLESS]
        if verbs and verbs[0] == "update":
            harmless = any(word.lower().startswith(("jobid=", "job=")) for word in verbs)
        else:
            harmless = bool(verbs) and verbs[0] in _HARMLESS
        if not harmless:
            raise ClusterError(f"{' '.join(argv)}: on a Slurm of others, only jobs may be changed")
    if program == "scancel" and (
        any(word.split("=")[0] in _WIDE for word in words) or not any(word[0].isdigit() for word in words)
    ):
        raise ClusterError(f"{' '.join(argv)}: on a Slurm of others, scancel must name the jobs it ends")
