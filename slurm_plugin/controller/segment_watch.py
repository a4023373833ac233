"""Says when a running job's nodes are no longer whole segments, as after somebody changed them in Slurm."""

from collections.abc import Collection, Mapping

from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.controller.transitions import Log


class SegmentWatch:
    """Looks at each job again only when its nodes are others than at the last look.

    Args:
        ours: Numbers of the jobs that are looked at.
        log: Where events go.
    """

    def __init__(self, ours: Collection[str], log: Log) -> None:
        self._ours, self._log = ours, log
        self._nodes: dict[str, tuple[str, ...]] = {}

    def observe(self, jobs: Mapping[str, SlurmJob], blocks: BlockTopology, now: float) -> None:
        """Take in a look at Slurm."""
        before, self._nodes = self._nodes, {}
        if not blocks.wants_segments:
            return
        for job_id in self._ours:
            job = jobs[job_id]
            if job.segment < 2 or job.state is not State.RUNNING:
                continue
            self._nodes[job_id] = job.nodes
            if before.get(job_id) != job.nodes and (torn := blocks.torn(job.nodes, job.segment)):
                self._log(now, "segment_torn", job=job_id, reason=torn)
