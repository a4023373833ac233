"""The shipped Grafana dashboard and the documented alerts, against what a controller tells Prometheus."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from dally.commands import main
from slurm_plugin.client.orders import Rehold
from tests.slurm_plugin.daemons import DaemonSite

MONITORING = Path(__file__).parents[3] / "docs" / "monitoring.md"
METRIC = re.compile(r"dally_\w+")
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"')
LEGEND = re.compile(r"{{(\w+)}}")
OVER_TIME = re.compile(r"\b(?:rate|increase)\((\w+)")
BY_PROMETHEUS = {"instance", "job"}


@dataclass(frozen=True, slots=True)
class ToldMetric:
    """A metric as the endpoint tells it: its type, and the names of its labels."""

    kind: str
    labels: frozenset[str]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ToldMetric]:
    """All metrics of a controller that is at work, by the names of their samples."""
    policy = "dally:timers=manual,machine=1,rack=2,lease_s=100"
    site = DaemonSite(tmp_path_factory.mktemp("site"), listen="127.0.0.1:0", policy=policy)
    site.submit(nodes=4, gpus_per_node=8)
    site.submit(gpus_per_node=8)
    said: list[str] = []

    def scrape() -> None:
        assert site.daemon is not None
        assert site.daemon.server is not None
        site.daemon.metrics.orders([Rehold("1")], ["no"])
        with urlopen(f"http://127.0.0.1:{site.daemon.server.port}/metrics", timeout=10) as answer:
            said.append(answer.read().decode())

    site.run(scrape)
    return {
        sample.name: ToldMetric(family.type, frozenset(sample.labels))
        for family in text_string_to_metric_families(said[0])
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    done = CliRunner().invoke(main, ["slurm", "dashboard"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def targets(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Expression and legend of each line that is drawn."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def alerts() -> list[str]:
    """The expressions of the alerts in the documentation."""
    return re.findall(r"^ +expr: (.*)$", MONITORING.read_text(encoding="utf-8"), re.MULTILINE)


def check(expr: str, legend: str, endpoint: Mapping[str, ToldMetric]) -> None:
    """Names, types and labels are those of the endpoint; counts are drawn as rates, and nothing else is."""
    names = METRIC.findall(expr)
    assert names, expr
    assert set(names) <= endpoint.keys(), expr
    counted = {name for name in names if endpoint[name].kind in ("counter", "histogram")}
    assert counted == set(OVER_TIME.findall(expr)), expr
    known = BY_PROMETHEUS.union(*(endpoint[name].labels for name in names))
    assert {*MATCHER.findall(expr), *LEGEND.findall(legend)} <= known, (expr, legend)
    for opening, closing in ("()", "{}", "[]"):
        assert expr.count(opening) == expr.count(closing), expr


def test_every_panel_draws_metrics_that_a_controller_tells(
    dashboard: dict[str, Any], endpoint: dict[str, ToldMetric]
) -> None:
    for expr, legend in targets(dashboard):
        check(expr, legend, endpoint)
        assert expr.count('instance="$instance"') == len(METRIC.findall(expr)), expr


def test_every_metric_is_on_the_dashboard(dashboard: dict[str, Any], endpoint: dict[str, ToldMetric]) -> None:
    drawn = " ".join(expr for expr, _ in targets(dashboard))
    kept = {name for name in endpoint if not name.endswith(("_created", "_sum", "_count"))}
    assert kept == set(METRIC.findall(drawn))


def test_it_imports_as_it_is(dashboard: dict[str, Any]) -> None:
    """Nothing names a data source of somebody's, nor an id that another Grafana gave."""
    source, instance = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert METRIC.findall(instance["definition"]) == ["dally_build_info"]
    assert dashboard["id"] is None
    used = re.findall(r'"uid": "([^"]*)"', json.dumps({**dashboard, "uid": ""}))
    assert set(used) == {"", "${datasource}"}


def test_panels_have_their_own_number_and_place(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        aside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert aside or above
    assert all(panel["title"] and panel["description"] for panel in panels)


def test_the_documented_alerts_ask_for_metrics_that_there_are(endpoint: dict[str, ToldMetric]) -> None:
    found = alerts()
    assert len(found) >= 4
    for expr in found:
        check(expr, "", {**endpoint, "up": ToldMetric("gauge", frozenset())})
