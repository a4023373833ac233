"""Which corrections are ordered now: users take turns, and a refused one waits until something changes."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter

from slurm_plugin.client.orders import JobOrder, Order, ReleaseToSlurm
from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller.failed_starts import LONGEST_BACKOFF_S

_MOST = 200
"""At once; more of them come with the next view."""

_MOST_OF_USER = 50
"""Of these, so that a huge array of one user keeps nobody waiting."""

_LONGEST_UNRESERVED_S = 60.0
"""As `LONGEST_BACKOFF_S`, for orders about reservations: they keep nodes from everybody."""

_BY_ITSELF = {"job_id", "reason", "admin_comment", "gpus", "tres"}
_shown = attrgetter(*(each.name for each in fields(SlurmJob) if each.name not in _BY_ITSELF))
"""What Slurm shows of a job, but for its number and what changes by itself or with the rest."""


class Corrections:
    """Chooses the corrections to order, of all that a view of Slurm calls for.

    Slurm may refuse one for good, as of a job with more tasks than its partition has CPUs. It is tried again
    after 8 s, then after eight times as long each time, up to an hour; at once if the job or the cluster
    has changed. Tasks of an array that are alike wait together, and one of them, each time another, is tried.
    """

    def __init__(self) -> None:
        self._cluster: object = None
        self._refused: dict[Hashable, tuple[int, float]] = {}
        self._alike: dict[Order, Hashable] = {}

    def due(
        self, orders: Sequence[Order], jobs: Mapping[str, SlurmJob], cluster: object, now: float
    ) -> list[Order]:
        """Those to give now, in this order; jobs that are released to Slurm come last.

        Args:
            orders: All that are called for.
            jobs: The jobs as Slurm shows them, by number.
            cluster: What Slurm may judge them by beside the job; another one if that has changed.
            now: The time, seconds.
        """
        if cluster != self._cluster:
            self._cluster, self._refused = cluster, {}
        self._alike = {order: _alike(order, jobs) for order in sorted(orders, key=_comes_late)}
        groups = defaultdict[Hashable, list[Order]](list)
        for order, alike in self._alike.items():
            groups[alike].append(order)
        self._refused = {alike: each for alike, each in self._refused.items() if alike in groups}
        turns, due = Counter[str](), list[tuple[int, Order]]()
        for alike, group in sorted(groups.items(), key=lambda each: each[0] in self._refused):
            times, until_s = self._refused.get(alike, (0, now))
            tried = [] if now < until_s else [group[times % len(group)]] if times else group
            for order in tried:
                job = jobs.get(order.job_id) if isinstance(order, JobOrder) else None
                if job is None:
                    due.append((0, order))
                elif turns[job.user] < _MOST_OF_USER:
                    turns[job.user] += 1
                    due.append((turns[job.user], order))
        due.sort(key=lambda each: each[0])
        return sorted((order for _, order in due[:_MOST]), key=_comes_late)

    def answered(self, orders: Sequence[Order], answers: Sequence[str | None], now: float) -> None:
        """Take in what Slurm said: None where it carried an order out."""
        accepted = {self._alike[order] for order, said in zip(orders, answers, strict=True) if said is None}
        refused = {
            self._alike[order]: order for order, said in zip(orders, answers, strict=True) if said is not None
        }
        before = {alike: times for alike, (times, _) in self._refused.items() if alike not in accepted}
        for alike in accepted:
            self._refused.pop(alike, None)
        for alike, order in refused.items():
            times = before.get(alike, 0) + 1
            longest_s = LONGEST_BACKOFF_S if isinstance(order, JobOrder) else _LONGEST_UNRESERVED_S
            self._refused[alike] = times, now + min(longest_s, 8.0 ** min(times, 9))


def _comes_late(order: Order) -> bool:
    return isinstance(order, ReleaseToSlurm)


def _alike(order: Order, jobs: Mapping[str, SlurmJob]) -> Hashable:
    """The same for all orders that Slurm judges alike, and another one once the job has changed."""
    job = jobs.get(order.job_id) if isinstance(order, JobOrder) else None
    if job is None or not isinstance(order, JobOrder):
        return order
    return replace(order, job_id=job.array_id or job.job_id), _shown(job)
