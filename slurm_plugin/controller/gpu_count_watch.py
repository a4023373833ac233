"""Says when Slurm counts GPUs of a node as in use that no job holds."""

from collections import Counter
from collections.abc import Container, Iterable

from slurm_plugin.client.slurm import HOLDS_GPUS, SlurmJob, SlurmNode
from slurm_plugin.controller.transitions import Log

MISCOUNTED_S = 60.0
"""A count must be wrong for so long: jobs and nodes are read one after the other, and nodes clean up."""


class GpuCountWatch:
    """Finds GPUs that Slurm gives to nobody until it counts anew, as `scontrol reconfigure` makes it do.

    slurmctld 22.05 miscounts after a restart during which jobs end. Such GPUs count as another's, as no job
    would start on them.

    Args:
        log: Where events go.

    Attributes:
        miscounted: GPUs in use that no job holds, by node, of the nodes that were told of.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since_s: dict[str, float] = {}
        self.miscounted: dict[str, int] = {}

    def observe(
        self, jobs: Iterable[SlurmJob], nodes: Iterable[SlurmNode], ours: Container[str], now: float
    ) -> None:
        """Take in a look at Slurm.

        Args:
            jobs: All jobs.
            nodes: All nodes.
            ours: Names of the nodes that are looked at.
            now: The time, seconds.
        """
        held: Counter[str] = Counter()
        for job in jobs:
            if job.state in HOLDS_GPUS:
                held.update(job.gpus)
        extra = {
            node.name: node.gpus_used - held[node.name]
            for node in nodes
            if node.gpus_used > held[node.name] and node.name in ours and "completing" not in node.state_name
        }
        self._since_s = {name: self._since_s.get(name, now) for name in extra}
        before = self.miscounted
        self.miscounted = {
            name: gpus for name, gpus in extra.items() if now - self._since_s[name] >= MISCOUNTED_S
        }
        for name in self.miscounted.keys() - before.keys():
            self._log(now, "gpus_miscounted", node=name, gpus=self.miscounted[name])
