"""The facts about a site that checks judge, and what a check finds."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dally.cluster.slurm_conf import ConfLine
from dally.cluster.topology import Topology
from dally.cluster.topology_build import Wiring
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.config import Config

Row = Mapping[str, str]
"""What `scontrol` tells of one thing, by key in its own spelling."""


class Level(StrEnum):
    """How bad a finding is: fine, worth a thought, or Dally will not work as it should."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, and what to do about it, one line each; advice may come with `ok`, too."""

    level: Level
    found: str
    advice: str = ""


def ok(found: str, advice: str = "") -> Finding:
    """Return the finding that all is fine."""
    return Finding(Level.OK, found, advice)


def warning(found: str, advice: str) -> Finding:
    """Return the finding that Dally works, but not as well as it could."""
    return Finding(Level.WARNING, found, advice)


def problem(found: str, advice: str) -> Finding:
    """Return the finding that Dally does not work like this."""
    return Finding(Level.PROBLEM, found, advice)


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """Slurm's topology file.

    Attributes:
        path: Where it is.
        modified_s: Its last change, seconds since 1970.
        wiring: What it says; None if it says that the network is flat, or is wrong.
        error: Why it cannot be read; empty if it can.
    """

    path: Path
    modified_s: float
    wiring: Wiring | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The controller's folder: who owns it (a uid), its permission bits, and the free bytes of its disk."""

    uid: int
    mode: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Everything that the checks judge.

    An attribute that could not be read is None or empty, with the reason in the attribute `..._error`.

    Attributes:
        config_path: The configuration file.
        config: The configuration.
        commands: Slurm's commands that Dally runs, each with its path; None if it is not there.
        version: Of Slurm's commands, like (22, 5).
        slurm_error: Why Slurm did not answer; empty if it did.
        settings: What `scontrol show config` tells, by key.
        partitions: All partitions, by name.
        nodes: All nodes, by name.
        blocks: The blocks of topology/block in the configured partitions.
        skew_s: How far this machine's clock is ahead of slurmctld's, seconds; whole ones are known.
        booted_s: When slurmctld started, seconds since 1970.
        user: Name of the user whom the controller is taken to run as: who asks, or, where root does, the one
            to whom the state folder belongs.
        uid: Number of this user.
        gid: And of its group.
        admin_level: This user's AdminLevel in Slurm's accounting, in lower case.
        history_error: Why sacct does not answer; empty if it does, or there is no slurmdbd.
        dbd_settings: The settings of slurmdbd, by key.
        conf_dir: Folder of slurm.conf.
        conf_gres: `Gres=` by node in slurm.conf.
        cloud_nodes: Nodes with `State=CLOUD` in slurm.conf.
        conf_error: Why slurm.conf cannot be read.
        gres_lines: The lines of gres.conf about GPUs and detection; None if there is no such file.
        topology: The topology file that Slurm would read.
        cluster: The cluster as Dally reads it.
        cluster_error: Why it cannot.
        lua: The job_submit.lua beside slurm.conf; None if there is none.
        own_lua: The job_submit.lua that this version of Dally brings.
        site_lua: The dally_site.lua beside slurm.conf; empty if there is none.
        profiles: How many models have a profile.
        stand_ins: Which GPU type's profiles stand in for which, in words.
        profiles_error: Why the profiles cannot be read.
        state_dir: The controller's folder; None if it is missing.
        health_error: Why the controller did not answer; empty if it did, or is not asked.
    """

    config_path: Path
    config: Config | None = None
    config_error: str = ""
    commands: Mapping[str, str | None] = field(default_factory=dict)
    version: tuple[int, int] | None = None
    slurm_error: str = ""
    settings: Row = field(default_factory=dict)
    partitions: Mapping[str, Row] = field(default_factory=dict)
    nodes: Mapping[str, Row] = field(default_factory=dict)
    blocks: BlockTopology = field(default_factory=BlockTopology)
    skew_s: float = 0.0
    booted_s: float = 0.0
    user: str = ""
    uid: int = 0
    gid: int = 0
    admin_level: str = ""
    history_error: str = ""
    dbd_settings: Row = field(default_factory=dict)
    conf_dir: Path = Path("/etc/slurm")
    conf_gres: Row = field(default_factory=dict)
    cloud_nodes: frozenset[str] = frozenset()
    conf_error: str = ""
    gres_lines: tuple[ConfLine, ...] | None = None
    topology: TopologyFile | None = None
    cluster: Topology | None = None
    cluster_error: str = ""
    lua: str | None = None
    own_lua: str = ""
    site_lua: str = ""
    profiles: int = 0
    stand_ins: tuple[str, ...] = ()
    profiles_error: str = ""
    state_dir: StateFolder | None = None
    health_error: str = ""

    @property
    def required_config(self) -> Config:
        """The configuration, for checks that run only where there is one."""
        assert self.config is not None
        return self.config

    @property
    def hint_mode(self) -> bool:
        """The installed job_submit.lua gives hints to Slurm, and there is no controller."""
        return 'mode = "hint"' in self.site_lua

    @property
    def is_operator(self) -> bool:
        """Whether the user has the admin level of an operator, or a higher one."""
        return self.admin_level in ("operator", "administrator", "admin")

    @property
    def is_privileged(self) -> bool:
        """Whether slurmctld shows the user everything."""
        return self.uid == 0 or self.is_operator or f"({self.uid})" in self.setting("SlurmUser")

    @property
    def as_user(self) -> tuple[str, ...]:
        """What comes before a command that this user is to run; only root runs some as another."""
        if os.geteuid() or not self.uid:
            return ()
        return ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups")

    def setting(self, key: str) -> str:
        """A setting of slurmctld; empty if it is unset."""
        value = self.settings.get(key, "")
        return "" if value.lower() in _UNSET else value

    def option(self, key: str, name: str) -> str | None:
        """One of a setting's comma-separated options; empty if it has no value, None if it is not there."""
        for item in self.setting(key).split(","):
            found, _, value = item.strip().partition("=")
            if found.lower() == name:
                return value
        return None

    def gpu_nodes(self, partition: str) -> frozenset[str]:
        """The nodes of a partition that have GPUs."""
        return frozenset(
            name
            for name, node in self.nodes.items()
            if partition in node.get("Partitions", "").split(",") and "gpu" in node.get("Gres", "")
        )

    @property
    def managed_nodes(self) -> frozenset[str]:
        """The GPU nodes of all configured partitions."""
        return frozenset().union(*(self.gpu_nodes(name) for name in self.required_config.partitions))


_UNSET = ("", "(null)", "n/a", "none", "unlimited", "infinite")


def some(names: Collection[str]) -> str:
    """A few of the names, and how many more there are."""
    first = ", ".join(sorted(names)[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"
