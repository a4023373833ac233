"""Tells which waiting jobs ask Slurm for the same: what one of them may have now, so may the others."""

from dataclasses import fields
from operator import attrgetter

from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller.job_requests import asked_size, own_limit_s
from slurm_plugin.controller.managed_job import ManagedJob

_ITS_OWN = {
    *("job_id", "submit_s", "job_name", "comment", "admin_comment", "nice", "dependency", "begin_s"),
    *("state", "state_name", "reason", "hold", "requeued_held", "restarts", "requeue", "exit_code"),
    *("start_s", "nodes", "gpus", "array_id", "array_throttle"),
}
"""Of a job what says nothing of the nodes, limits and licences that it asks for."""

_READ_ANEW = {"min_nodes", "tasks", "time_limit_s", "tres"}
_ASKED = attrgetter(*(each.name for each in fields(SlurmJob) if each.name not in _ITS_OWN | _READ_ANEW))


class EqualDemands:
    """Numbers for what waiting jobs ask for, worked out once for a job and again when it has changed."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: dict[str, tuple[tuple[object, ...], int]] = {}

    def number(self, managed: ManagedJob, job: SlurmJob) -> int:
        """The number of all jobs that ask for what this one does.

        Args:
            managed: What the controller knows of it.
            job: As Slurm shows it.
        """
        of = (
            *(job, managed.job, managed.request),
            *(managed.min_nodes, managed.tasks, managed.placed_once, managed.limit_s),
        )
        known = self._known.get(job.job_id)
        if known is None or known[0] != of:
            number = self._numbers.setdefault(_demand(managed, job), len(self._numbers))
            known = self._known[job.job_id] = of, number
        return known[1]

    def tidy(self, jobs: int) -> None:
        """Begin anew once most of what is kept is of others than so many jobs: they have left."""
        if len(self._known) > 2 * jobs or len(self._numbers) > 2 * jobs:
            self._numbers, self._known = {}, {}


def _demand(managed: ManagedJob, job: SlurmJob) -> tuple[object, ...]:
    asked, request = managed.job, managed.request
    return (
        *(_ASKED(job), frozenset(job.tres.items()), asked_size(managed, job), own_limit_s(managed, job)),
        *(asked.gang, asked.kind, asked.gpus_per_machine, asked.max_gpus, asked.time_limit_s),
        *(request.nodes, request.switches, request.switch_wait_s, request.max_gpus),
    )
