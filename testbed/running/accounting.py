"""Slurm's own accounting of a run's jobs: from its database, completion file or memory."""

import re

from slurm_plugin.local_cluster.cluster import Cluster, ClusterError

ACCOUNTING = "slurm-jobs.txt"
_SETTING = re.compile(r"^JobCompLoc\s*=\s*(/\S+)", re.MULTILINE)
_SACCT = "JobID,JobName%60,State,ExitCode,Submit,Start,End,ElapsedRaw,NNodes,NodeList%60,AllocTRES%60"


def read_accounting(cluster: Cluster, run: str) -> str:
    """What Slurm has on record of a run's jobs.

    Args:
        cluster: The cluster.
        run: The run's name, which its jobs' names begin with.

    Raises:
        ClusterError: Slurm does not answer.
    """
    for read in (_from_database, _from_file):
        try:
            lines = read(cluster, run)
        except ClusterError:
            continue
        if lines:
            return "\n".join(lines) + "\n"
    shown = cluster.ask("scontrol", "--oneliner", "--details", "show", "job")
    return "".join(f"{line}\n" for line in shown.splitlines() if f"JobName={run}-" in line)


def _from_database(cluster: Cluster, run: str) -> list[str]:
    text = cluster.ask("sacct", "--duplicates", "--parsable2", f"--format={_SACCT}")
    header, *rows = text.splitlines() or [""]
    own = [row for row in rows if f"|{run}-" in row]
    return [header, *own] if own else []


def _from_file(cluster: Cluster, run: str) -> list[str]:
    place = _SETTING.search(cluster.ask("scontrol", "show", "config"))
    text = cluster.ask("cat", place[1]) if place else ""
    return [line for line in text.splitlines() if f" Name={run}-" in line]
