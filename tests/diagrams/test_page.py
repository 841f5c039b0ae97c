"""The page of a run works by itself: offline, on a phone, in the dark, with a thousand participants."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.programs import CHROMIUM, DOT, HEADLESS, needs, run_program
from support.runs import cut, healed

from quiesce.diagrams import RunRecord, run_page
from quiesce.fsm.tables.transaction import TRANSACTION

FLEET = ("main/policy", "main/agent", "main/tools")
# what a browser is asked, after the page's own script has run; the answer stands in the title
_PROBE = """
<script>
window.addEventListener("load", () => {
  const box = (name) => document.querySelector(name).getBoundingClientRect();
  const find = document.getElementById("find");
  // a value says which column it is of, in the words of that column's head
  const isNamed = (one) => {
    const head = one.closest("table").querySelectorAll("th")[one.cellIndex].textContent;
    return getComputedStyle(one, "::before").content === `"${head} "`;
  };
  const cells = [...document.querySelectorAll(".cards td")].filter((one) => one.textContent);
  const named = cells.filter(isNamed).length;
  const heads = [...document.querySelectorAll(".cards tr:has(th)")].filter((one) => one.offsetHeight).length;
  const all = document.querySelectorAll("#journal tbody tr").length;
  find.value = "SEARCH";
  find.dispatchEvent(new Event("input"));
  const some = document.querySelectorAll("#journal tbody tr").length;
  const lane = document.getElementById("lane");
  lane.value = "LANE";
  lane.dispatchEvent(new Event("input"));
  const found = JSON.stringify({
    wide: document.documentElement.scrollWidth,
    window: innerWidth,
    all,
    some,
    count: document.getElementById("count").textContent,
    lanes: document.querySelectorAll(".lane").length,
    seen: [...document.querySelectorAll(".lane")].filter((one) => !one.hidden).length,
    bars: document.querySelectorAll(".bar i").length,
    page: getComputedStyle(document.body).backgroundColor,
    alerts: window.alerted ?? 0,
    pictures: document.querySelectorAll("section svg").length,
    lanesWide: box(".lanes").right,
    unnamed: cells.length - named,
    named,
    heads,
    torn: [...document.querySelectorAll("nav a")].filter((one) => one.getClientRects().length > 1).length,
    aslant: [...document.querySelectorAll(".cards th")].filter((head) => {
      const below = head.closest("table").querySelector(`td:nth-child(${head.cellIndex + 1})`);
      return getComputedStyle(head).textAlign !== getComputedStyle(below).textAlign;
    }).length,
  });
  document.title = found;
  parent.postMessage(found, "*");
});
</script>
"""


# a window of chromium is at least this wide, a frame can be as narrow as a phone
_WINDOW_MIN = 500
_FRAME = """<title>none</title><iframe style="width: {width}px; height: 800px; border: 0" src="page.html"></iframe>
<script>addEventListener("message", (event) => {{ document.title = event.data; }});</script>"""


def probed(
    page: str, folder: Path, *, width: int, dark: bool = False, search: str = "", lane: str = ""
) -> dict[str, object]:
    """What chromium finds in the page in a window of this width."""
    path, frame = folder / "page.html", folder / "frame.html"
    frame.write_text(_FRAME.format(width=width), encoding="utf-8")
    probe = _PROBE.replace("SEARCH", search).replace("LANE", lane)
    path.write_text(page.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    dom = run_program(
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},900",
        "--virtual-time-budget=20000",
        *scheme,
        "--dump-dom",
        (frame if width < _WINDOW_MIN else path).as_uri(),
    )
    title = re.search("<title>(.*?)</title>", dom)
    assert title is not None
    found = json.loads(title[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert isinstance(found, dict)
    return found


class _Outside(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.found += [value or "" for name, value in attrs if name in {"src", "srcset", "data", "action"}]
        self.found += [
            value or "" for name, value in attrs if name.endswith("href") and not (value or "").startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(page: str) -> _Outside:
    """The page as an HTML parser sees it."""
    parser = _Outside()
    parser.feed(page)
    return parser


@pytest.mark.parametrize("records", [cut(FLEET), cut(FLEET, in_doubt="main/tools"), healed(), []], ids=str)
def test_a_page_needs_nothing_else(records: list[object]) -> None:
    """It fetches nothing, and forbids the browser to."""
    page = run_page("step-40", records)  # type: ignore[arg-type]  # an empty list among lists of records
    assert read(page).found == []
    assert "default-src 'none'" in page
    assert "url(" not in page
    assert "@import" not in page


def test_the_page_says_what_was_recorded() -> None:
    """State, participants, roles, who was waited for, and every record."""
    records = cut(FLEET, slow="main/agent")
    page = run_page("step-40", records, roles={"main/agent": "agent"}, note="a note")
    words = " ".join(" ".join(read(page).texts).split())
    assert "resumed after 6.5 s, 3 participants" in words
    assert "main/agent, 4.9 s" in words
    assert "a note" in words
    listed = re.search('<script type="application/json" id="records">(.*?)</script>', page)
    assert listed is not None
    rows = json.loads(listed[1])
    assert len(rows) == len(records)
    assert rows[0][2:5] == ["transaction", "", "idle → begin → preflight"]


def test_without_dot_there_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the program is missing, the page says so, has the diagram as Mermaid, and the steps as a table."""
    monkeypatch.setenv("PATH", "/nowhere")
    page = run_page("step-40", cut(FLEET))
    assert "graphviz" in page
    assert "stateDiagram-v2" in page
    step = ("from", "preflight"), ("event", "all_inspected"), ("to", "draining")
    assert "".join(f'<td data-label="{head}">{text}</td>' for head, text in step) in page


@needs(DOT)
def test_the_way_through_the_states_is_marked() -> None:
    """In the state diagram the states that the run went through are marked, and only these."""
    page = run_page("step-40", cut(FLEET))
    marked = re.findall('class="node[^"]* visited">\n<title>(\\w+)</title>', page)
    assert {name for name in marked if not name.isdecimal()} == {
        "idle",
        "preflight",
        "draining",
        "paused",
        "committing",
        "committed",
        "publishing",
        "published",
        "resuming",
        "resumed",
    }


@needs(DOT)
@pytest.mark.parametrize("records", [cut(FLEET), cut(FLEET, in_doubt="main/agent"), healed()])
def test_the_arrows_that_were_taken_are_marked(records: list[RunRecord]) -> None:
    """Each step to another state has its arrow marked, from its own box or from one that gathers it; no other has."""
    steps = [one.trace for one in records if one.trace.machine == TRANSACTION.name]
    page = run_page("step-40", records)
    marked = re.findall('class="edge[^"]* visited">\n<title>([^<]+)</title>', page)
    heads = dict(title.split("&#45;&gt;") for title in marked if not title.split("&#45;&gt;")[0].isdecimal())
    tails = dict(title.split("&#45;&gt;")[::-1] for title in marked if title.split("&#45;&gt;")[0].isdecimal())
    labels = re.findall('class="node label[^"]* visited">\n<title>(\\d+)</title>', page)
    moves = {(step.source, step.target) for step in steps if step.source != step.target}
    assert len(labels) == len(moves) == len(marked) // 2
    assert set(tails) == {target for _, target in moves}
    assert {source for source in heads if not source.startswith("any")} <= {source for source, _ in moves}


@needs(CHROMIUM)
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False), (360, True)])
def test_a_browser_shows_it(tmp_path: Path, width: int, dark: bool) -> None:  # noqa: FBT001 - a table
    """Wide or as narrow as a phone, light or dark, nothing stands out of the window and the search works."""
    found = probed(
        run_page("step-40", cut(FLEET)), tmp_path, width=width, dark=dark, search="main/tools exported", lane="agent"
    )
    assert found["wide"] == found["window"] == width
    assert found["page"] == ("rgb(27, 28, 31)" if dark else "rgb(255, 255, 255)")
    assert (found["lanes"], found["seen"]) == (3, 1)
    assert found["torn"] == 0
    records = len(cut(FLEET))
    assert (found["all"], found["count"]) == (records, f"{found['some']} of {found['some']} records")
    assert 0 < int(str(found["some"])) < records


@needs(CHROMIUM)
@pytest.mark.parametrize(("width", "is_narrow"), [(1200, False), (390, True)])
def test_every_value_has_its_head(tmp_path: Path, width: int, is_narrow: bool) -> None:  # noqa: FBT001 - a table
    """Tables have heads in a wide window; on a phone, where they are cards, each value has its head before it."""
    found = probed(run_page("step-40", cut(FLEET)), tmp_path, width=width)
    assert found["heads"] == (0 if is_narrow else 3)
    assert found["aslant"] == 0
    silent, told = ("unnamed", "named") if is_narrow else ("named", "unnamed")
    assert found[silent] == 0
    assert int(str(found[told])) > 100


@needs(CHROMIUM)
def test_a_thousand_participants_fit_a_phone(tmp_path: Path) -> None:
    """Every participant has its lane, the journal is shown in parts, and the window is not overflown."""
    subjects = [f"main/agent_{number:04}" for number in range(1000)]
    page = run_page("step-40", cut(subjects, in_doubt="main/agent_0500"))
    found = probed(page, tmp_path, width=360, search="", lane="agent_0500")
    assert (found["lanes"], found["seen"]) == (1000, 1)
    assert found["wide"] == found["window"] == 360
    assert found["all"] == 200
    # whoever was left closed stands first
    assert re.findall('data-name="([^"]*)"', page)[0] == "main/agent_0500"
    assert len(page) < 4_000_000


@needs(CHROMIUM)
def test_on_paper_nobody_is_left_out(tmp_path: Path) -> None:
    """What is scrolled on a screen is printed whole: three hundred lanes take more pages than three."""
    pages = []
    for count in (3, 300):
        path, printed = tmp_path / "page.html", tmp_path / f"{count}.pdf"
        lanes = [f"main/agent_{number:04}" for number in range(count)]
        path.write_text(run_page("step-40", cut(lanes)), encoding="utf-8")
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        run_program(CHROMIUM, *HEADLESS[:-1], profile, f"--print-to-pdf={printed}", path.as_uri())
        pages.append(len(re.findall(rb"/Type /Page\b", printed.read_bytes())))
    few, many = pages
    assert few > 0
    assert many - few > 5


@needs(CHROMIUM)
def test_what_a_record_says_is_never_run(tmp_path: Path) -> None:
    """Names with markup in them are shown as text, wherever they stand."""
    evil = (
        'main/<img src=x onerror="window.alerted=1">',
        "main/</script><script>window.alerted=1</script>",
        "main/'\"&",
    )
    page = run_page(evil[0], cut(evil), roles={evil[1]: evil[1]}, note=evil[1])
    found = probed(page, tmp_path, width=1200)
    assert (found["alerts"], found["lanes"]) == (0, 3)
    assert read(page).found == []
