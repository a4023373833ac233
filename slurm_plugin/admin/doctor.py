"""Runs all checks of a site, in the order in which an administrator would look."""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_plugin.admin.checks import network, nodes, settings, setup
from slurm_plugin.admin.checks.site import Finding, SiteFacts


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: What it is about, in a word or two.
        judge: Tells what it finds.
        needs_config: It is left out where the configuration cannot be read.
        needs_slurm: It is left out where Slurm does not answer.
    """

    name: str
    judge: Callable[[SiteFacts], Finding]
    needs_config: bool = True
    needs_slurm: bool = True


CHECKS: tuple[Check, ...] = (
    Check("configuration", setup.configuration, needs_config=False, needs_slurm=False),
    Check("commands", setup.commands, needs_config=False, needs_slurm=False),
    Check("version", setup.version, needs_config=False, needs_slurm=False),
    Check("slurmctld", setup.slurmctld, needs_config=False, needs_slurm=False),
    Check("user", setup.user, needs_config=False, needs_slurm=False),
    Check("rights", setup.rights, needs_config=False),
    Check("hidden", setup.hidden, needs_config=False),
    Check("history", setup.history),
    Check("clock", setup.clock, needs_config=False),
    Check("partitions", nodes.partitions),
    Check("other partitions", nodes.other_partitions),
    Check("availability", nodes.availability),
    Check("select type", nodes.select_type, needs_config=False),
    Check("gres types", nodes.gres_types, needs_config=False),
    Check("gres devices", nodes.gres_devices, needs_config=False, needs_slurm=False),
    Check("registration", nodes.registration, needs_config=False),
    Check("slurm.conf", nodes.conf_agrees),
    Check("topology plugin", network.plugin, needs_config=False),
    Check("topology file", network.content, needs_config=False, needs_slurm=False),
    Check("topology nodes", network.known_nodes),
    Check("topology age", network.freshness, needs_config=False),
    Check("racks", network.shape),
    Check("partition topology", network.own_topology),
    Check("blocks", network.blocks),
    Check("cluster", nodes.cluster),
    Check("memory", settings.memory),
    Check("requeue", settings.requeue, needs_config=False),
    Check("checkpoint exit", settings.checkpoint_exit, needs_config=False),
    Check("job age", settings.job_age, needs_config=False),
    Check("start delay", settings.start_delay),
    Check("switch wait", settings.switch_wait, needs_config=False),
    Check("power saving", settings.power_saving, needs_config=False),
    Check("preemption", settings.preemption, needs_config=False),
    Check("job_submit", setup.job_submit, needs_config=False),
    Check("profiles", setup.profiles, needs_slurm=False),
    Check("state folder", setup.state_folder, needs_slurm=False),
    Check("controller", setup.health, needs_slurm=False),
    Check("reports", setup.reports, needs_slurm=False),
)


def examine(site: SiteFacts) -> dict[str, Finding]:
    """What each check finds, by name; those are left out that need what is missing, a problem of its own."""
    return {
        check.name: check.judge(site)
        for check in CHECKS
        if not (check.needs_config and site.config is None)
        and not (check.needs_slurm and (site.slurm_error or site.version is None))
    }
