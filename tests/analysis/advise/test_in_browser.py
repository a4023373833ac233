"""The page of advice in a real browser: drawn, on a phone, in the dark, no complaint."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dally.commands import main
from tests.analysis.advise.histories import BUSY, cluster_file, held_back, written

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module", params=[True, False], ids=["concluded", "refused"])
def advice(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A page of advice, calibrated, and how many figures it has: fewer where nothing is concluded."""
    folder = tmp_path_factory.mktemp("advice")
    history = written(folder, BUSY if request.param else held_back())
    inputs = [str(history), "--cluster", str(cluster_file(folder)), "--processes", "1"]
    page = folder / "advice.html"
    main(
        ["advise", *inputs, "--policy", "srsf-delay", "--today", "slurm", "-o", str(page)],
        standalone_mode=False,
    )
    return page, 5 if request.param else 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_drawn_on_a_phone_without_complaint(
    browser: Browser, advice: tuple[Path, int], scheme: str
) -> None:
    path, figures = advice
    page = browser.new_page(
        viewport={"width": 390, "height": 844}, color_scheme="dark" if scheme == "dark" else "light"
    )
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=180_000)
    assert [each for each in complaints if not each.startswith(("data:", "blob:"))] == [path.as_uri()]
    plots = page.locator(".plot")
    expect(plots).to_have_count(figures)
    for plot in plots.all():
        assert plot.locator(".scatterlayer .trace").count() > 0, plot.get_attribute("id")
    expect(page.locator("#problem")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
