"""The page of advice in a real browser: drawn, on a phone, in the dark, no complaint."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dally.commands import main
from tests.analysis.advise.histories import BUSY, cluster_file, written

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of advice, calibrated."""
    folder = tmp_path_factory.mktemp("advice")
    inputs = [str(written(folder, BUSY)), "--cluster", str(cluster_file(folder)), "--processes", "1"]
    page = folder / "advice.html"
    main(["advise", *inputs, "--policy", "dally", "--today", "slurm", "-o", str(page)], standalone_mode=False)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_drawn_on_a_phone_without_complaint(browser: Browser, advice: Path, scheme: str) -> None:
    page = browser.new_page(
        viewport={"width": 390, "height": 844}, color_scheme="dark" if scheme == "dark" else "light"
    )
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(advice.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=180_000)
    assert [each for each in complaints if not each.startswith(("data:", "blob:"))] == [advice.as_uri()]
    plots = page.locator(".plot")
    expect(plots).to_have_count(5)
    for plot in plots.all():
        assert plot.locator(".scatterlayer .trace").count() > 0, plot.get_attribute("id")
    expect(page.locator("#problem")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
