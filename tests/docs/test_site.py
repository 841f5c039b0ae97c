"""The documentation builds offline without a warning, is complete, fetches nothing, and fits a phone."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.house import ROOT
from support.programs import CHROMIUM, HEADLESS, needs, run_program

pytestmark = pytest.mark.source

DOCS = ROOT / "docs"
WIDTHS = (360, 390, 1280, 1440, 1920)
"""Two phones, three desktops."""
# a window of chromium is at least 500 px wide, a frame can be as narrow as a phone
_PROBE = """<!doctype html><title>wait</title><body><script>
const pages = PAGES;
const wide = {};
async function look() {
  const frame = document.createElement("iframe");
  document.body.append(frame);
  for (const page of pages) {
    await new Promise((done) => { frame.onload = done; frame.src = page; });
    const root = frame.contentDocument.documentElement;
    wide[page] = [];
    for (const width of WIDTHS) {
      frame.style = `width: ${width}px; height: 800px; border: 0`;
      const tables = [...root.querySelectorAll(".table-wrapper, .table-wrapper > table")];
      const cut = width >= 1280 && tables.some((one) => one.scrollWidth > one.clientWidth + 1);
      const found = [width, root.clientWidth, root.scrollWidth, cut];
      if (root.scrollWidth > width || root.clientWidth !== width || cut) wide[page].push(found);
    }
  }
  document.title = JSON.stringify(wide);
}
look();
</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` builds it, without any network."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-d", f"{folder}/.doctrees", DOCS, folder],
        env={**os.environ, "http_proxy": nowhere, "https_proxy": nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Fetched(HTMLParser):
    """What a page loads by itself, and where it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.linked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.fetched += [given[name] for name in ("src", "srcset", "data") if name in given]
        if tag == "a" and "href" in given:
            self.linked.append(given["href"])
        if tag == "link" and given.get("rel") in {"stylesheet", "preload", "icon", "shortcut icon"}:
            self.fetched.append(given.get("href", ""))


def html_pages(site: Path) -> list[str]:
    """Every page of the site, as a path below it."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def test_every_page_is_there(site: Path) -> None:
    """Each Markdown file has become a page, and stands in the navigation of the first one."""
    names = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert names <= set(html_pages(site))
    first = (site / "index.html").read_text(encoding="utf-8")
    assert [name for name in names - {"index.html"} if f'href="{name}"' not in first] == []


def test_the_schemas_are_published(site: Path) -> None:
    """Each schema lies in the site under its own name, and the page about them links to it."""
    schemas = {path.name for path in (DOCS / "schemas").iterdir()}
    assert schemas <= {path.name for path in site.iterdir()}
    page = (DOCS / "saved-files.md").read_text(encoding="utf-8")
    assert [name for name in schemas if f"(schemas/{name})" not in page] == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Pages and their style sheets work offline."""
    for name in html_pages(site):
        parser = _Fetched()
        parser.feed((site / name).read_text(encoding="utf-8"))
        assert [url for url in parser.fetched if re.match(r"(https?:)?//", url)] == [], name
    for sheet in site.rglob("*.css"):
        assert (
            re.findall(r"""(?:url\(|@import)\s*["']?(?:https?:)?//[^)"']+""", sheet.read_text(encoding="utf-8")) == []
        )


def test_every_link_leads_somewhere(site: Path) -> None:
    """Whatever a page links to or shows within the site is there."""
    broken = []
    for name in html_pages(site):
        parser = _Fetched()
        parser.feed((site / name).read_text(encoding="utf-8"))
        for url in (*parser.linked, *parser.fetched):
            path = unquote(url.partition("#")[0].partition("?")[0])
            if path and not re.match(r"[a-z]+:", path) and not ((site / name).parent / path).resolve().is_file():
                broken.append(f"{name}: {url}")
    assert broken == []


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("controller", "quiesce.controller.Controller.cut"),
        ("controller", "quiesce.controller.phases.PhasedCut.publish"),
        ("server", "quiesce.participants.server.mount_policy"),
        ("fsm", "quiesce.fsm.Table"),
        ("fuzz", "quiesce.fuzz.assert_conforms"),
        ("diagrams", "quiesce.diagrams.render"),
        ("transport", "quiesce.transport.Transport.send"),
    ],
)
def test_the_reference_has_the_public_names(site: Path, page: str, name: str) -> None:
    """What a user calls has its entry, with an anchor that can be linked to."""
    assert f'id="{name}"' in (site / "api" / f"{page}.html").read_text(encoding="utf-8")


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of the site: a browser tells scripts nothing of pages that are files."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@needs(CHROMIUM)
def test_no_page_scrolls_sideways(site: Path, served: str, tmp_path: Path) -> None:
    """No page is wider than its window. What is wide scrolls by itself: code anywhere, tables on phones alone."""
    pages = html_pages(site)
    probe = _PROBE.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(WIDTHS))
    (site / "probe.html").write_text(probe, encoding="utf-8")
    try:
        dom = run_program(
            CHROMIUM,
            *HEADLESS,
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=120000",
            f"{served}/probe.html",
        )
    finally:
        (site / "probe.html").unlink()
    title = re.search("<title>(.*?)</title>", dom)
    assert title is not None
    wide = json.loads(title[1])
    assert set(wide) == set(pages)
    assert {page: widths for page, widths in wide.items() if widths} == {}


def test_the_reference_names_no_base_that_all_classes_have(site: Path) -> None:
    """A base is named where it says something."""
    for page in (site / "api").iterdir():
        text = re.sub("<[^>]+>", "", page.read_text(encoding="utf-8"))
        assert "Bases: object" not in text, page.name
        assert "(*args, **kwargs)" not in text, page.name
    assert "Bases: QuiesceError" in re.sub("<[^>]+>", "", (site / "api/fsm.html").read_text(encoding="utf-8"))
