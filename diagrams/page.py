"""A run as one HTML page that needs nothing else: state diagram, timeline, sequence and journal.

It works offline, in a phone-wide window, on light and dark pages, and with a thousand participants. Whatever a record
says is shown as text and never read as markup.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from quiesce.diagrams.compose import draw
from quiesce.diagrams.dot import dot_of
from quiesce.diagrams.escape import one_line, xml_text
from quiesce.diagrams.graphviz import draw_svg, has_dot
from quiesce.diagrams.mermaid import render_mermaid
from quiesce.diagrams.page_assets import SCRIPT, STYLE
from quiesce.diagrams.run_record import RunRecord, seconds, since_begin
from quiesce.diagrams.run_sequence import run_sequence
from quiesce.diagrams.sequence_svg import sequence_svg
from quiesce.diagrams.timeline import Lane, PhaseSpan, Stage, Timeline, timeline_of
from quiesce.diagrams.timeline_svg import STAGE_COLORS
from quiesce.diagrams.timeline_text import lane_times
from quiesce.diagrams.way import with_way
from quiesce.fsm.tables.transaction import TRANSACTION
from quiesce.fsm.trace import TraceRecord

__all__ = ["run_page"]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_JOURNAL: Final = ("#", "time", "machine", "participant", "step", "effects", "call", "reason")
_NUMBERS: Final = 2
"""How many columns of the journal are numbers; the page's script knows it too."""
_MISSING_MAX: Final = 5


def run_page(name: str, records: Iterable[RunRecord], *, roles: Mapping[str, str] | None = None, note: str = "") -> str:
    """The page of one run.

    Args:
        name: what it is called, usually its id on the wire.
        records: its steps in the order in which they were taken.
        roles: each participant's role, by ``deployment/name``, as far as they are known.
        note: something to be said at the top, for example that the journal is damaged at its end.

    Raises:
        DotFailed: the state diagram could not be drawn; without the program the page has a table instead.
    """
    kept = tuple(records)
    timeline = timeline_of(name, kept, roles=roles)
    parts = (
        *_head(timeline, note),
        *_section("timeline", "Who was paused when", _lanes(timeline)),
        *_section("phases", "What the time went to", _phases(timeline)),
        *_section("states", "The way through the states", _states(kept)),
        *_section("sequence", "Who was called when", _sequence(name, kept, roles or {})),
        *_section("records", "Journal", _journal(kept), anchor="journal-section"),
    )
    title = xml_text(f"{one_line(name)}: {timeline.state}")
    lines = (
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>\n{STYLE}</style></head><body>",
        *parts,
        f"<script>\n{SCRIPT}</script>",
        "</body></html>",
        "",
    )
    return "\n".join(lines)


def _head(timeline: Timeline, note: str) -> Iterator[str]:
    begin = datetime.fromtimestamp(timeline.begin_ts, UTC).isoformat(" ", "seconds")
    count = len(timeline.lanes)
    yield f"<h1>{xml_text(one_line(timeline.name))}</h1>"
    who = f"{count} participant{'' if count == 1 else 's'}"
    yield f"<p>{xml_text(timeline.state)} after {seconds(timeline.duration_s)}, {who}, begun {xml_text(begin)}</p>"
    if note:
        yield f"<p><strong>{xml_text(note)}</strong></p>"
    yield (
        '<nav><a href="#timeline">timeline</a><a href="#phases">phases</a><a href="#states">states</a>'
        '<a href="#sequence">sequence</a><a href="#journal-section">journal</a></nav>'
    )


def _section(name: str, title: str, inside: Iterable[str], *, anchor: str = "") -> Iterator[str]:
    yield f'<section id="{anchor or name}"><h2>{title}</h2>'
    yield from inside
    yield "</section>"


def _lanes(timeline: Timeline) -> Iterator[str]:
    used = {span.stage for lane in timeline.lanes for span in lane.spans}
    keys = [f'<span><i class="{STAGE_COLORS[s]}"></i>{s.value}</span>' for s in Stage if s in used]
    yield f'<p class="legend">{"".join(keys)}</p>'
    yield '<p><input id="lane" placeholder="find a participant" aria-label="find a participant"></p>'
    yield '<div class="lanes">'
    # whoever was left closed must not be looked for among a thousand
    for lane in sorted(timeline.lanes, key=lambda lane: not lane.is_closed):
        yield _lane(lane, timeline.duration_s)
    yield "</div>"


def _lane(lane: Lane, duration_s: float) -> str:
    name = xml_text(one_line(lane.subject))
    role = f' <span class="faint">{xml_text(lane.role)}</span>' if lane.role else ""
    bars = "".join(
        f'<i class="{STAGE_COLORS[span.stage]}" style="left:{_share(span.begin_s, duration_s)};'
        f'width:{_share(span.end_s - span.begin_s, duration_s)}" '
        f'title="{span.stage.value}: {seconds(span.begin_s)} to {seconds(span.end_s)}"></i>'
        for span in lane.spans
    )
    inside = f'<div>{name}{role}</div><div class="bar">{bars}</div><div class="when">{xml_text(lane_times(lane))}</div>'
    return f'<div class="lane" data-name="{name}">{inside}</div>'


def _share(part_s: float, whole_s: float) -> str:
    return f"{part_s / whole_s * 100 if whole_s else 100:.3f}%"


def _phases(timeline: Timeline) -> Iterator[str]:
    yield from _cards(
        ("state", "at", "for", "waited for"),
        ((phase.state, seconds(phase.begin_s), seconds(phase.duration_s), _waited(phase)) for phase in timeline.phases),
        numbers=(1, 2),
    )


def _cards(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int]) -> Iterator[str]:
    """A table that becomes cards in a narrow window, where each value has its column's head before it."""
    kinds = [' class="number"' if place in numbers else "" for place in range(len(heads))]
    first = "".join(f"<th{kind}>{head}</th>" for kind, head in zip(kinds, heads, strict=True))
    yield f'<div class="scroll"><table class="cards"><tr>{first}</tr>'
    for row in rows:
        cells = (
            f'<td{kind} data-label="{head}">{xml_text(one_line(text))}</td>'
            for kind, head, text in zip(kinds, heads, row, strict=True)
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table></div>"


def _waited(phase: PhaseSpan) -> str:
    if phase.missing:
        more = len(phase.missing) - _MISSING_MAX
        named = ", ".join(map(one_line, phase.missing[:_MISSING_MAX]))
        return f"not there: {named}{f' and {more} more' if more > 0 else ''}"
    return f"{one_line(phase.held_by)}, {seconds(phase.held_for_s)}" if phase.held_by else ""


def _states(records: Sequence[RunRecord]) -> Iterator[str]:
    steps = [(now_s, one.trace) for now_s, one in since_begin(records) if one.trace.machine == TRANSACTION.name]
    if has_dot():
        drawing, taken = draw(TRANSACTION), [trace for _, trace in steps]
        yield '<input type="checkbox" class="zoom" id="zoom"> <label for="zoom">full size</label>'
        yield f'<div class="scroll" tabindex="0">{with_way(draw_svg(dot_of(drawing)), drawing, taken)}</div>'
    else:
        yield '<p class="faint">The picture is drawn by the program dot (graphviz), which was not installed.</p>'
        yield f"<details><summary>As Mermaid</summary><pre>{xml_text(render_mermaid(TRANSACTION))}</pre></details>"
    yield "<details open><summary>Step by step</summary>"
    said = ((seconds(now_s), *_said(trace)) for now_s, trace in steps)
    yield from _cards(("at", "from", "event", "to", "reason"), said, numbers=(0,))
    yield "</details>"


def _said(trace: TraceRecord) -> tuple[str, ...]:
    return trace.source, trace.event, trace.target, trace.reason


def _sequence(name: str, records: Sequence[RunRecord], roles: Mapping[str, str]) -> Iterator[str]:
    yield f'<div class="scroll" tabindex="0">{sequence_svg(run_sequence(name, records, roles=roles))}</div>'


def _journal(records: Sequence[RunRecord]) -> Iterator[str]:
    rows = [_journal_row(number, now_s, one) for number, (now_s, one) in enumerate(since_begin(records), start=1)]
    # a script's text ends at the first </script, whatever it stands in
    listed = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    find = '<input id="find" placeholder="find in the journal" aria-label="find in the journal">'
    yield f'<p>{find} <span id="count" class="faint"></span></p>'
    numbers = "".join(f'<th class="number">{head}</th>' for head in _JOURNAL[:_NUMBERS])
    heads = numbers + "".join(f"<th>{head}</th>" for head in _JOURNAL[_NUMBERS:])
    grid = f'<table id="journal" class="cards"><thead><tr>{heads}</tr></thead><tbody></tbody></table>'
    yield f'<div class="scroll">{grid}</div>'
    yield '<p><button id="more" hidden>more</button></p>'
    yield "<noscript><p>The journal is shown by a script, which is switched off.</p></noscript>"
    yield f'<script type="application/json" id="records">{listed}</script>'


def _journal_row(number: int, now_s: float, record: RunRecord) -> list[str]:
    trace = record.trace
    exchange = f"{record.call}: {record.reply}" if record.call else ""
    cells = (
        str(number),
        seconds(now_s),
        trace.machine.lower(),
        trace.subject,
        f"{trace.source} → {trace.event} → {trace.target}",
        ", ".join(trace.effects),
        exchange,
        trace.reason,
    )
    return [one_line(cell) for cell in cells]
