"""Submitting the jobs of a run: each once, at its time, through dally-sbatch or Slurm's own sbatch."""

import re
from collections.abc import Sequence
from pathlib import Path

from dally.cluster.topology import Topology
from dally.jobs.job import JobKind
from dally.policies.registry import PolicySpec
from dally.policies.slurm.policy import SlurmKnobs
from dally.profiles.costs import CostModel
from slurm_plugin.config import VARIABLE
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.running.controller import ControllerFiles
from testbed.running.folder import job_path
from testbed.running.job_plan import JobPlan
from testbed.running.observer import job_comment
from testbed.running.script import (
    COMPANION,
    SCRIPT,
    SubmitSettings,
    companion_script,
    job_script,
    switch_options,
)

_DALLY_SBATCH = "from slurm_plugin.submit.sbatch import main; main()"
_NUMBER = re.compile(r"^([0-9]+)(?:;\S+)?$", re.MULTILINE)


def is_slurms_own(policy: PolicySpec) -> bool:
    """Whether this policy, on a real cluster, is Slurm's scheduler itself, without Dally."""
    return isinstance(policy.knobs, SlurmKnobs)


class Submitter:
    """Submits the jobs of one run, whose folder on the head node is `base`."""

    def __init__(
        self,
        cluster: Cluster,
        base: Path,
        run: str,
        plans: Sequence[JobPlan],
        policy: PolicySpec,
        topology: Topology,
    ) -> None:
        self._cluster, self._run, self._plans, self._policy = cluster, run, plans, policy
        self._config = ControllerFiles(base).config
        self._folders = [job_path(base, plan.job.job_id) for plan in plans]
        self._costs = CostModel(topology)

    def scripts(self, settings: SubmitSettings) -> dict[str, str]:
        """The scripts of all jobs by path on the head node."""
        found = {}
        for number, (plan, folder) in enumerate(zip(self._plans, self._folders, strict=True)):
            name = f"{self._run}-{number}"
            found[str(folder / SCRIPT)] = job_script(plan, name, str(folder), settings)
            if settings.companions and plan.job.kind is JobKind.ELASTIC:
                found[str(folder / COMPANION)] = companion_script(plan, name, str(folder), settings)
        return found

    def submit(self, number: int) -> str:
        """Submit one job; its number in Slurm.

        Raises:
            ClusterError: It was not taken, or nobody knows whether it was.
        """
        comment = f"--comment={job_comment(self._run, number)}"
        script = str(self._folders[number] / SCRIPT)
        said = self._cluster.ask(*self._command(number), "--parsable", comment, script)
        found = _NUMBER.search(said)
        if not found:
            raise ClusterError(f"sbatch printed no number of a job but {said[:80]!r}")
        return found[1]

    def submit_companion(self, number: int, slurm: str) -> None:
        """Submit a companion of a job, by the job's number in Slurm.

        Raises:
            ClusterError: It was not taken, or nobody knows whether it was.
        """
        script = str(self._folders[number] / COMPANION)
        self._cluster.ask(*self._command(number), f"--companion-of={slurm}", script)

    def _command(self, number: int) -> tuple[str, ...]:
        knobs = self._policy.knobs
        if isinstance(knobs, SlurmKnobs):
            level = self._costs.best_level(self._plans[number].job.gang)
            return ("sbatch", *switch_options(self._plans[number], level, knobs))
        return ("env", f"{VARIABLE}={self._config}", self._cluster.python, "-c", _DALLY_SBATCH)
