"""The report in a real browser: drawn, sorted, searched, told, on a phone, in the dark, no complaint."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, Page, expect

from dally.commands import main
from dally.runs.records import EVENTS

pytestmark = pytest.mark.xdist_group("browser")

JOBS = 120
GANGS = "1:40/4:30/8:20/16:10"
POLICIES = ("slurm", "dally")
SECONDS = 1000.0

Report = tuple[Page, list[str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small comparison with timers and preemptions, and its report."""
    out = tmp_path_factory.mktemp("report") / "runs"
    trace = f"venus-like:jobs={JOBS},gpus={GANGS},mu=8,sigma=1,max_s=50000,load=1.2,cluster_gpus=64"
    policies = [word for policy in POLICIES for word in ("--policy", policy)]
    inputs = ["--trace", trace, "--cluster", "demo", "--profiles", "realistic", "--seed", "1"]
    mix = ["--model-mix", "resnet50=0.5,vgg11=0.5"]
    assert CliRunner().invoke(main, ["simulate", *inputs, *mix, *policies, "--out", str(out)]).exit_code == 0
    assert CliRunner().invoke(main, ["report", str(out)]).exit_code == 0
    return out


@pytest.fixture(scope="module")
def report(browser: Browser, runs: Path) -> Iterator[Report]:
    """The report, opened once and drawn, with what the browser complains of or fetches."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    opened(page, runs)
    complaints.remove((runs / "report.html").as_uri())
    yield page, complaints
    page.close()


@pytest.fixture
def page(report: Report) -> Iterator[Page]:
    """The report as it was opened; a complaint or a fetch fails the test."""
    page, complaints = report
    page.evaluate("document.getElementById('timeline').close()")
    page.locator("#search").fill("")
    page.locator("#jobs select.run").select_option("0")
    page.emulate_media(color_scheme="light")
    yield page
    assert [each for each in complaints if not each.startswith(("data:", "blob:"))] == []


def opened(page: Page, runs: Path) -> None:
    """Open the report and wait until all is drawn."""
    page.goto((runs / "report.html").as_uri())
    page.wait_for_selector("body[data-ready]", timeout=180 * SECONDS)


def column(page: Page, title: str) -> list[str]:
    """What the list of jobs shows in a column."""
    titles = page.locator("#job-table thead th").all_inner_texts()
    place = [each.strip() for each in titles].index(title) + 1
    return page.locator(f"#job-table tbody tr > :nth-child({place})").all_inner_texts()


def test_all_figures_are_drawn(page: Page) -> None:
    plots = page.locator(".plot")
    expect(plots).to_have_count(7)
    for plot in plots.all():
        expect(plot.locator(".main-svg").first).to_be_visible()
        marks = plot.locator(".scatterlayer .trace, .barlayer .trace, .heatmaplayer image")
        assert marks.count() > 0, plot.get_attribute("id")
    expect(page.locator("#problem")).to_be_hidden()


def test_the_first_screen_says_who_was_best_by_how_much(page: Page) -> None:
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator("h1")).to_have_text(
        re.compile(r"was best: jobs took .* on average, \d+\s% less than")
    )
    expect(page.locator("h1")).to_be_in_viewport()
    expect(page.locator("table.headline")).to_be_in_viewport()


def test_jobs_are_sorted_by_the_column_that_is_chosen(page: Page) -> None:
    heading = page.locator("#job-table thead button", has_text=re.compile("^GPUs$"))
    heading.click()
    down = [int(gpus) for gpus in column(page, "GPUs")]
    heading.click()
    up = [int(gpus) for gpus in column(page, "GPUs")]
    assert (down[0], up[0]) == (16, 1)
    assert down == sorted(down, reverse=True)
    assert up == sorted(up)


def test_jobs_are_found_by_words_and_drawn_a_page_at_a_time(page: Page) -> None:
    first = column(page, "job")
    page.get_by_role("button", name="Next").click()
    second = column(page, "job")
    assert len({*first, *second}) == 50
    page.locator("#search").fill("VGG completed")
    assert set(column(page, "model")) == {"vgg11"}
    found = page.locator("#found").inner_text()
    assert 25 < int(found.split()[0]) < JOBS
    page.locator("#search").fill("000117")
    assert column(page, "job") == ["venus-like-000117"]
    page.locator("#search").fill("no such job")
    assert column(page, "job") == []


def test_the_timeline_of_a_job_has_all_its_events_under_each_run(page: Page, runs: Path) -> None:
    name = "venus-like-000100"
    page.locator("#search").fill(name)
    page.locator("#job-table tbody tr").click()
    expect(page.locator("#timeline")).to_be_visible()
    expect(page.locator("#timeline-title")).to_have_text(name)
    page.locator("#timeline details").last.locator("summary").click()
    for place, policy in enumerate(POLICIES):
        events = [json.loads(line) for line in (runs / policy / EVENTS).read_text().splitlines()]
        own = [event for event in events if event.get("job") == name or name in event.get("by", ())]
        lines = page.locator("#timeline details").nth(place).locator("li").all_inner_texts()
        assert len(lines) == len(own)
        assert "submitted, asks for" in lines[0]
        assert all(event.get("reason", "") in line for event, line in zip(own, lines, strict=True))
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#timeline")).to_be_hidden()


def test_a_cell_of_the_map_opens_the_timeline_of_its_job(page: Page) -> None:
    page.locator("#plot-map").scroll_into_view_if_needed()
    box = page.locator("#plot-map .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    expect(page.locator("#timeline-title")).to_have_text(re.compile("venus-like-"))


def test_choosing_a_run_changes_map_timers_and_jobs(page: Page) -> None:
    heads = [page.locator("#job-table thead").inner_text()]
    page.locator("#cluster select.run").select_option("1")
    heads.append(page.locator("#job-table thead").inner_text())
    assert [f"against {other}" in head for head, other in zip(heads, reversed(POLICIES), strict=True)] == [
        True
    ] * 2
    assert page.locator("#jobs select.run").input_value() == "1"
    page.locator("#map-colour").select_option("job")
    expect(page.locator("#map-legend")).to_contain_text("each colour is a job")


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, runs: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    opened(page, runs)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert max(page.locator(".plot").evaluate_all("plots => plots.map(plot => plot.scrollWidth)")) <= 390
    expect(page.locator("#job-table th", has_text="submitted")).to_be_hidden()
    page.close()


def test_in_the_dark_the_page_and_its_figures_are_dark(page: Page) -> None:
    light = page.locator("#plot-held .xtitle").evaluate("text => getComputedStyle(text).fill")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    page.wait_for_function(
        "light => getComputedStyle(document.querySelector('#plot-held .xtitle')).fill !== light", arg=light
    )


def test_it_prints(page: Page) -> None:
    assert page.pdf().startswith(b"%PDF")


def test_an_old_browser_says_why_it_shows_no_figures(browser: Browser, runs: Path) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto((runs / "report.html").as_uri())
    expect(page.locator("#problem")).to_contain_text("too old")
    page.close()
