"""What Prometheus reads."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dally import __version__
from slurm_plugin.client.orders import Rehold, ReleaseToSlurm
from slurm_plugin.service.metrics import Metrics
from slurm_plugin.service.report import PublishedStatus
from tests.slurm_plugin.daemons import DaemonSite


def read(metrics: Metrics) -> dict[str, float]:
    """All samples, by name and labels, as Prometheus parses them."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, float]:
    """Of a controller with two jobs, one running, after two cycles and two without Slurm."""
    site = DaemonSite(tmp_path, policy="dally:timers=manual,machine=1,rack=2,lease_s=100")
    for _ in range(2):
        site.submit(nodes=4, gpus_per_node=8)
    site.run(
        lambda: setattr(site.slurm, "unavailable", True),
        lambda: None,
        lambda: setattr(site.slurm, "unavailable", False),
    )
    assert site.daemon is not None
    return read(site.daemon.metrics)


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ("dally_cycle_seconds_count", 2),
        ("dally_observe_seconds_count", 2),
        ("dally_jobs running", 1),
        ("dally_jobs pending", 1),
        ("dally_jobs released", 0),
        ("dally_gpus total", 32),
        ("dally_gpus free", 0),
        ("dally_gpus unavailable", 0),
        ("dally_decisions_total start", 1),
        ("dally_orders_total release_on_nodes", 1),
        ("dally_events_total submit", 2),
        ("dally_slurm_unavailable_total", 2),
        ("dally_journal_errors_total", 0),
        ("dally_timer_seconds 32 machine", 100),
        ("dally_timer_seconds 32 rack", 200),
        (f"dally_build_info normal {__version__}", 1),
    ],
)
def test_a_controller_counts(samples: dict[str, float], sample: str, value: float) -> None:
    assert samples[sample] == value


def test_the_age_of_the_last_good_cycle_is_told(samples: dict[str, float]) -> None:
    assert 0 <= samples["dally_last_cycle_age_seconds"] < 60


def test_refused_orders_are_counted_apart() -> None:
    metrics = Metrics(PublishedStatus("normal"))
    metrics.orders([Rehold("1"), Rehold("2"), ReleaseToSlurm("3", 1)], [None, "no", None])
    found = read(metrics)
    assert (found["dally_orders_total rehold"], found["dally_orders_refused_total rehold"]) == (2, 1)
    assert "dally_orders_refused_total release_to_slurm" not in found


def test_timers_that_never_end_are_infinite(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, policy="dally:timers=consolidated")
    site.submit(gpus_per_node=8)
    site.run()
    assert site.daemon is not None
    assert read(site.daemon.metrics)["dally_timer_seconds 8 machine"] == float("inf")
