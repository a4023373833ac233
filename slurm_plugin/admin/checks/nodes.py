"""Checks of partitions, nodes and their GPUs."""

from collections import Counter

from dally.cluster.slurm_gres import parse_gres
from dally.cluster.summary import left_out_line
from dally.words import plural
from slurm_plugin.admin.checks.site import Finding, SiteFacts, ok, problem, some, warning
from slurm_plugin.client.node_text import is_available

_DEVICES = ("file", "multiplefiles", "autodetect")


def partitions(site: SiteFacts) -> Finding:
    """The configured partitions exist and have GPU nodes."""
    for name in site.required_config.partitions:
        if name not in site.partitions:
            return problem(f"there is no partition {name}", f"`partitions` may name: {some(site.partitions)}")
        if not site.gpu_nodes(name):
            return problem(
                f"partition {name} has no node with GPUs",
                "name partitions with GPU nodes, or give the nodes Gres=gpu:... in slurm.conf",
            )
    states = {name: site.partitions[name].get("State", "UP") for name in site.required_config.partitions}
    if closed := [f"{name} is {state}" for name, state in states.items() if state != "UP"]:
        return warning(
            f"partition {', '.join(closed)}", "`scontrol update PartitionName=... State=UP`, unless meant so"
        )
    return ok(
        f"{', '.join(site.required_config.partitions)}: {plural(len(site.managed_nodes), 'node')} with GPUs"
    )


def other_partitions(site: SiteFacts) -> Finding:
    """Whether other partitions put jobs on the same nodes."""
    others = {
        partition
        for name in site.managed_nodes
        for partition in site.nodes[name]["Partitions"].split(",")
        if partition not in site.required_config.partitions
    }
    if others:
        return ok(f"nodes are also in {some(others)}: Dally reserves nodes for the moment a job starts")
    return ok("no other partition has these nodes")


def select_type(site: SiteFacts) -> Finding:
    """Slurm counts GPUs when it selects nodes."""
    found = site.setting("SelectType")
    if found != "select/cons_tres":
        return problem(
            f"SelectType={found}", "SelectType=select/cons_tres in slurm.conf; no other counts GPUs"
        )
    return ok(f"SelectType={found}")


def gres_types(site: SiteFacts) -> Finding:
    """Slurm knows GPUs as a resource."""
    found = site.setting("GresTypes")
    if "gpu" not in found.split(","):
        return problem(
            f"GresTypes={found or 'unset'}", "GresTypes=gpu in slurm.conf, then restart all daemons"
        )
    return ok(f"GresTypes={found}")


def gres_devices(site: SiteFacts) -> Finding:
    """GPUs in gres.conf have devices."""
    if site.gres_lines is None:
        return ok("no gres.conf here; every node needs its own, or AutoDetect")
    detects = [line.values.get("autodetect", "off").lower() != "off" for line in site.gres_lines]
    if any(detects):
        return ok("gres.conf lets the GPUs be detected")
    for line in site.gres_lines:
        if line.values.get("name", "").lower() == "gpu" and not any(key in line.values for key in _DEVICES):
            return problem(
                f"{line.where}: GPUs are counted, but have no devices; Slurm then drops them",
                "give the line File=/dev/nvidia[0-7], or AutoDetect=nvml",
            )
    return ok("gres.conf gives every GPU its device")


def registration(site: SiteFacts) -> Finding:
    """Nodes registered with the GPUs that slurm.conf gives them."""
    invalid = [name for name, node in site.nodes.items() if "INVAL" in node.get("State", "")]
    if not invalid:
        return ok("no node is invalid")
    reason = site.nodes[invalid[0]].get("Reason", "")
    return problem(
        f"invalid: {some(invalid)} ({reason or 'no reason given'})",
        "make Gres= in slurm.conf and the devices in the node's gres.conf agree, then restart slurmd",
    )


def availability(site: SiteFacts) -> Finding:
    """How many of the nodes could run jobs."""
    nodes = site.managed_nodes
    away = [name for name in nodes if not is_available(site.nodes[name].get("State", ""))]
    if len(away) == len(nodes):
        return problem("no GPU node could run a job", "`sinfo -R` tells why")
    if away:
        return ok(f"not available: {some(away)}; Dally leaves them out")
    return ok(f"{plural(len(nodes), 'GPU node')} up, all of them")


def conf_agrees(site: SiteFacts) -> Finding:
    """The slurm.conf here says what slurmctld works with."""
    if site.conf_error:
        return warning(
            site.conf_error, "without slurm.conf here, write the cluster as TOML and name it as `cluster`"
        )
    differ = [
        name
        for name in site.managed_nodes
        if name in site.conf_gres and _gpus(site.conf_gres[name]) != _gpus(site.nodes[name].get("Gres", ""))
    ]
    if differ:
        return problem(
            f"{site.conf_dir}/slurm.conf has other GPUs than slurmctld for {some(differ)}",
            "bring the file up to date here, or `scontrol reconfigure`",
        )
    return ok("slurm.conf here has the GPUs that slurmctld has")


def _gpus(gres: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for gpus in parse_gres(gres):
        counts[gpus.gpu_type] += gpus.count
    return counts


def cluster(site: SiteFacts) -> Finding:
    """Dally reads the cluster, with all nodes on which it may place."""
    if site.cluster is None:
        return problem(site.cluster_error, "`dally cluster FOLDER` must work for what `cluster` names")
    known = {machine.name for machine in site.cluster.machines}
    missing = site.managed_nodes - known
    named = {name for each in site.cluster.left_out for name in each.names}
    if missing and missing <= named and site.managed_nodes & known:
        return warning(
            f"{site.required_config.cluster}: {left_out_line(site.cluster)}",
            "Dally places no job there; mend what stands in brackets, or take them out of the partition",
        )
    if missing:
        return problem(
            f"{site.required_config.cluster} lacks {some(missing)}", "add these nodes to what `cluster` names"
        )
    return ok(
        f"{plural(len(known), 'machine')}, {plural(site.cluster.gpus, 'GPU')}, levels "
        f"{', '.join(site.cluster.levels)}"
    )
