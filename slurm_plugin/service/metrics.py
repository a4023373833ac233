"""What Prometheus reads of the controller: counts of what happened, and its last report."""

import time
from collections.abc import Iterator, Sequence
from math import inf

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dally import __version__
from slurm_plugin.client.orders import Order
from slurm_plugin.controller.actuator import order_name
from slurm_plugin.service.report import PublishedStatus, Report

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Metrics(Collector):
    """The controller's metrics, in a registry of their own.

    What is known of the last cycle is read off the published status when somebody asks.

    Attributes:
        slurm_unavailable: Cycles that ended because Slurm did not answer.
        journal_errors: Cycles that ended because the journal could not be written.
    """

    def __init__(self, status: PublishedStatus) -> None:
        registry = CollectorRegistry()
        self._registry, self._status = registry, status
        self._cycle = Histogram(
            "dally_cycle_seconds", "Time that a cycle took.", registry=registry, buckets=_SECONDS
        )
        self._observe = Histogram(
            "dally_observe_seconds", "Time that looking at Slurm took.", registry=registry, buckets=_SECONDS
        )
        self._events = Counter("dally_events", "Events, by kind.", ["event"], registry=registry)
        self._orders = Counter("dally_orders", "Orders to Slurm, by kind.", ["order"], registry=registry)
        self._refused = Counter(
            "dally_orders_refused", "Orders that Slurm refused, by kind.", ["order"], registry=registry
        )
        self.slurm_unavailable = Counter(
            "dally_slurm_unavailable", "Cycles in which Slurm did not answer.", registry=registry
        )
        self.journal_errors = Counter(
            "dally_journal_errors", "Cycles in which the journal could not be written.", registry=registry
        )
        registry.register(self)

    def cycle(self, latest: Report) -> None:
        """A cycle went well."""
        self._cycle.observe(latest.cycle_s)
        self._observe.observe(latest.observe_s)

    def event(self, event: str) -> None:
        """Something happened."""
        self._events.labels(event).inc()

    def orders(self, orders: Sequence[Order], answers: Sequence[str | None]) -> None:
        """Slurm took or refused orders."""
        for order, refusal in zip(orders, answers, strict=True):
            kind = order_name(order)
            self._orders.labels(kind).inc()
            if refusal is not None:
                self._refused.labels(kind).inc()

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What the published status tells; little before the first good cycle."""
        info = GaugeMetricFamily("dally_build_info", "Version and mode.", labels=["version", "mode"])
        info.add_metric([__version__, self._status.mode], 1)
        yield info
        if self._status.last is None:
            return
        latest, published_s, _ = self._status.last
        yield GaugeMetricFamily(
            "dally_last_cycle_age_seconds",
            "Seconds since the last good cycle.",
            value=time.monotonic() - published_s,
        )
        jobs = GaugeMetricFamily("dally_jobs", "Jobs, by state.", labels=["state"])
        for state, count in latest.job_counts().items():
            jobs.add_metric([state], count)
        gpus = GaugeMetricFamily("dally_gpus", "GPUs: total, used, free, unavailable.", labels=["state"])
        for name, count in latest.gpus.items():
            gpus.add_metric([name], count)
        most_free = GaugeMetricFamily(
            "dally_most_free_gpus", "Free GPUs of the domain that has most, by level.", labels=["level"]
        )
        for level, count in latest.most_free.items():
            most_free.add_metric([level], count)
        yield GaugeMetricFamily(
            "dally_longest_wait_seconds", "Wait of the job that waits longest.", value=latest.longest_wait_s
        )
        yield GaugeMetricFamily(
            "dally_slower_jobs",
            "Running jobs that are slower than their placement explains.",
            value=latest.slower_jobs,
        )
        decisions = CounterMetricFamily("dally_decisions", "Decisions, by kind.", labels=["decision"])
        for kind, count in latest.decisions.items():
            decisions.add_metric([kind], count)
        timers = GaugeMetricFamily(
            "dally_timer_seconds",
            "How long gangs decline placements above a level.",
            labels=["level", "gpus"],
        )
        for timer in latest.timers:
            delay_s = inf if timer["delay_s"] is None else timer["delay_s"]
            timers.add_metric([timer["level"], str(timer["gpus"])], delay_s)
        yield from (jobs, gpus, most_free, decisions, timers)
