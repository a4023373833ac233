"""Checks of Slurm's topology: whether it has one, whether it is used, and whether it is right."""

from collections import Counter

from dally.words import plural
from slurm_plugin.admin.checks.site import Finding, SiteFacts, ok, problem, some, warning

_FLAT = ("", "topology/none", "topology/default", "topology/flat")
_YAML_SINCE = (25, 5)
_CLOSE_S = 60.0


def plugin(site: SiteFacts) -> Finding:
    """The topology file and TopologyPlugin agree."""
    found = site.setting("TopologyPlugin").lower()
    conf = site.conf_dir / "topology.conf"
    if site.topology is None and found not in _FLAT:
        return problem(f"TopologyPlugin={found}, but {conf} is missing", "write it, or bring it to this host")
    if site.topology is None:
        return warning(
            f"Slurm knows no switches: TopologyPlugin is flat and {conf} is missing",
            "write topology.conf (`topograph` can), or name a TOML file as `cluster`",
        )
    if site.topology.path.suffix == ".yaml":
        if site.version is not None and site.version < _YAML_SINCE:
            return problem(
                f"{site.topology.path} is there, but only Slurm 25.05 and newer read it",
                "write topology.conf instead",
            )
        return ok(f"{site.topology.path.name} is what Slurm reads")
    if found in _FLAT:
        return problem(
            f"{site.topology.path} is there, but Slurm ignores it: TopologyPlugin is unset or flat",
            "TopologyPlugin=topology/tree (or topology/block) in slurm.conf, then restart slurmctld",
        )
    return ok(f"{site.topology.path.name} with TopologyPlugin={found}")


def content(site: SiteFacts) -> Finding:
    """The topology file can be read."""
    topology = site.topology
    if topology is None:
        return ok("no topology file")
    if topology.error:
        return problem(topology.error, "mend the file, then `scontrol reconfigure`")
    if topology.wiring is None:
        return warning(f"{topology.path.name} says that the network is flat", "give it switches or blocks")
    return ok(f"{len(topology.wiring.parents)} switches or blocks")


def known_nodes(site: SiteFacts) -> Finding:
    """The topology file and Slurm know the same nodes."""
    if site.topology is None or site.topology.wiring is None:
        return ok("no switches to compare")
    placed = set(site.topology.wiring.switch_of)
    if unknown := placed - set(site.nodes):
        return warning(
            f"{site.topology.path.name} has {some(unknown)}, which Slurm does not know",
            "Slurm and Dally pass them over; write the file anew, then `scontrol reconfigure`",
        )
    if (missing := site.managed_nodes - placed) and not _own_topologies(site):
        return warning(
            f"on no switch: {some(missing)}",
            "add them to a switch or block: without TopologyParam=TopoOptional, Slurm starts no job there",
        )
    return ok("every GPU node is on a switch")


def freshness(site: SiteFacts) -> Finding:
    """Slurmctld has read the file as it is."""
    if site.topology is None:
        return ok("no topology file")
    if site.topology.modified_s > site.booted_s + _CLOSE_S:
        return warning(
            f"{site.topology.path.name} was changed after slurmctld started",
            "`scontrol reconfigure`, unless you did so since",
        )
    return ok(f"{site.topology.path.name} is older than slurmctld's start")


def shape(site: SiteFacts) -> Finding:
    """The leaves of the tree are alike, and there is more than one."""
    if site.topology is None or site.topology.wiring is None:
        return ok("no switches to compare")
    switch_of = site.topology.wiring.switch_of
    sizes = Counter(switch_of[name] for name in site.managed_nodes if name in switch_of)
    if len(sizes) < 2:
        return warning("all GPU nodes are on one switch", "Dally can then only choose between machines")
    (largest, most), (smallest, least) = sizes.most_common()[0], sizes.most_common()[-1]
    if most > 2 * least:
        return warning(
            f"uneven: {largest} has {plural(most, 'GPU node')}, {smallest} has {least}",
            "see whether nodes are missing from a switch; if it is so in truth, all is well",
        )
    spread = plural(most, "GPU node") if least == most else f"{least} to {plural(most, 'GPU node')}"
    return ok(f"{plural(len(sizes), 'rack')} of {spread} each")


def own_topology(site: SiteFacts) -> Finding:
    """Which topology the partitions use; Dally reads the same."""
    named = _own_topologies(site)
    told = ", ".join(f"partition {name} uses topology {topology}" for name, topology in named.items())
    return ok(told or "the partitions use the cluster's topology")


def blocks(site: SiteFacts) -> Finding:
    """Under topology/block jobs can start in any blocks, if this Slurm takes a segment with a node list."""
    if not site.blocks.block_of:
        return ok("no partition has topology/block")
    if site.blocks.takes_segments:
        return ok("topology/block: jobs get --segment=1, so that they can start in any blocks")
    return warning(
        "topology/block: this Slurm starts jobs only in as few blocks as they need; Dally decides no others",
        "Slurm 25.11 or newer, which takes --segment=1 with a node list, or topology/tree",
    )


def _own_topologies(site: SiteFacts) -> dict[str, str]:
    """The topology that a partition names, by partition; those that name none are left out."""
    partitions = {name: site.partitions.get(name, {}) for name in site.required_config.partitions}
    return {name: row["Topology"] for name, row in partitions.items() if row.get("Topology")}
