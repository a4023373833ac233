"""The documentation site: it builds without a warning, fetches nothing, and is found in by its search."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.patience import LONGEST_S

pytestmark = pytest.mark.xdist_group("browser")

FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as one builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def url(site: Path) -> Iterator[str]:
    """Where the site is served."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    assert [found for page in pages for found in FETCHED.findall(page.read_text(encoding="utf-8"))] == []


def test_a_page_is_found_by_search_in_the_dark_without_a_complaint(browser: Browser, url: str) -> None:
    complaints: list[str] = []
    page = browser.new_page(color_scheme="dark")
    page.on("console", lambda message: complaints.append(message.text))
    page.on(
        "request", lambda request: None if request.url.startswith(url) else complaints.append(request.url)
    )
    page.goto(url)
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    page.locator("input.md-search__input").click()
    expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching")
    page.locator("input.md-search__input").press_sequentially("threat model")
    expect(page.locator(".md-search-result__item").first).to_contain_text("Threat model")
    page.close()
    assert complaints == []
