"""The timeline says when each participant stood still, and whom the others waited for."""

from __future__ import annotations

import random
import unicodedata
from xml.etree import ElementTree as ET

import pytest
from support.runs import RunMaker, cut, healed

from quiesce.diagrams import RunRecord, Stage, run_page, timeline_of, timeline_svg, timeline_text
from quiesce.diagrams.run_record import seconds
from quiesce.diagrams.timeline_text import lane_times
from quiesce.fsm.tables.participant import PARTICIPANT

FLEET = ("main/policy", "main/agent", "main/tools")


def columns(line: str) -> int:
    """How many columns of a terminal a line takes."""
    shown = [char for char in line if not unicodedata.combining(char)]
    return len(shown) + sum(unicodedata.east_asian_width(char) in "WF" for char in shown)


def test_a_cut_goes_through_its_stages() -> None:
    """Each participant is asked, drains, is paused, committed, reopened and open again, without gaps.

    The made-up run takes no time between the pause and the commit.
    """
    timeline = timeline_of("step-40", cut(FLEET))
    assert (timeline.state, len(timeline.lanes)) == ("resumed", 3)
    for lane in timeline.lanes:
        stages = [span.stage for span in lane.spans if span.end_s > span.begin_s]
        assert stages == [Stage.DRAINING, Stage.COMMITTED]
        assert all(one.end_s == other.begin_s for one, other in zip(lane.spans, lane.spans[1:], strict=False))
        assert lane.state == "resumed"
        assert lane.open_again_s == pytest.approx(2.0)
        assert lane.calls == 5


def test_the_slow_one_is_named() -> None:
    """In the draining phase it is who all waited for, and for how long; in a text of one lane it is the one."""
    timeline = timeline_of("step-40", cut(FLEET, slow="main/agent"))
    draining = next(phase for phase in timeline.phases if phase.state == "draining")
    assert draining.held_by == "main/agent"
    assert draining.held_for_s == pytest.approx(4.9)
    text = timeline_text(timeline, lanes_max=1)
    assert "waited 4.9 s for main/agent" in text
    assert "main/tools" not in text.split("\n\n")[2]
    assert "2 participants that were faster are not shown" in text


def test_whoever_was_waited_for_need_not_be_the_last() -> None:
    """Resources are asked when the agent is parked and are quick: it is the agent that held the cut up."""
    run = RunMaker()
    run.transaction("begin")
    for subject in ("main/agent", "main/tools"):
        run.take(PARTICIPANT, subject, "inspect_due")
        run.take(PARTICIPANT, subject, "confirmed", call="inspect", reply="open")
    run.transaction("all_inspected")
    run.reach("main/agent", at_s=30.0)
    run.now_s = 30.0
    run.reach("main/tools", at_s=31.0)
    run.now_s = 31.0
    run.transaction("all_paused")
    draining = timeline_of("x", run.sorted()).phases[1]
    assert (draining.state, draining.held_by) == ("draining", "main/agent")
    assert draining.held_for_s == pytest.approx(30.0)


def test_whoever_was_not_there_is_named() -> None:
    """A phase that ended without somebody names them, and they are shown first."""
    subjects = [f"main/agent_{number}" for number in range(60)]
    timeline = timeline_of("step-40", cut(subjects, in_doubt="main/agent_7"))
    resuming = next(phase for phase in timeline.phases if phase.state == "resuming")
    assert resuming.missing == ("main/agent_7",)
    assert timeline.state == "in_doubt_published"
    (lane,) = timeline.slowest(1)
    assert (lane.subject, lane.state, lane.open_again_s) == ("main/agent_7", "in doubt", None)
    assert "not there: main/agent_7" in timeline_text(timeline)


def test_a_healed_participant_is_open_again() -> None:
    """The healing pause of the IDLE resume does not count as the cut: it is reopening until it is open."""
    (lane,) = timeline_of("x", healed()).lanes
    assert [span.stage for span in lane.spans] == [Stage.ASKED, Stage.REOPENING]
    assert lane.state == "aborted"
    assert lane.open_again_s == pytest.approx(3.0)


def test_who_was_only_looked_at_is_not_closed() -> None:
    """A participant without a part in the cut has a lane without stages."""
    run = RunMaker()
    run.transaction("begin")
    run.take(PARTICIPANT, "main/judge", "inspect_due")
    run.take(PARTICIPANT, "main/judge", "confirmed", call="inspect", reply="open")
    timeline = timeline_of("x", run.records)
    assert timeline.lanes[0].spans == ()
    assert "not closed" in timeline_text(timeline)


def test_a_clock_that_was_set_back_stands_still() -> None:
    """No span is negative, whatever the wall clock did."""
    records = cut(FLEET)
    back = [
        RunRecord(one.time_ts - 3600 * (place > 20), one.trace, one.call, one.reply)
        for place, one in enumerate(records)
    ]
    timeline = timeline_of("x", back)
    assert all(span.end_s >= span.begin_s for lane in timeline.lanes for span in lane.spans)
    assert timeline.duration_s >= 0
    timeline_text(timeline)
    timeline_svg(timeline)


def test_nothing_is_a_run_too() -> None:
    """Without a record there is a timeline without lanes, which can be shown."""
    timeline = timeline_of("x", ())
    assert (timeline.state, timeline.lanes, timeline.duration_s) == ("idle", (), 0.0)
    assert timeline_text(timeline).startswith("x: idle after 0 ms, 0 participants")
    ET.fromstring(timeline_svg(timeline))  # noqa: S314 - written by us a moment ago


def test_nobody_is_called_paused_who_never_was() -> None:
    """A participant whose cut was aborted while it drained has not stood still, however long that took."""
    reached, never = timeline_of("x", cut(["main/policy"])), timeline_of("x", healed())
    assert [lane_times(lane) for lane in reached.lanes] == ["paused 900 ms after asked, open at 2 s"]
    assert [lane.stood_still for lane in never.lanes] == [None]
    (said,) = map(lane_times, never.lanes)
    assert said.startswith("not paused after ")
    for timeline, words in ((reached, "paused 900 ms after asked"), (never, said)):
        assert words in timeline_text(timeline)
        assert words in run_page("x", cut(["main/policy"]) if timeline is reached else healed())


@pytest.mark.parametrize("width", [20, 60, 80, 100, 240])
def test_the_text_keeps_its_width(width: int) -> None:
    """No line is wider than the terminal (but never narrower than sixty columns), whatever the names are."""
    subjects = ["main/policy", f"main/{'x' * 90}", "main/状態" * 12, "main/é́"]
    text = timeline_text(timeline_of("step-40", cut(subjects)), width=width)
    assert max(map(columns, text.splitlines())) <= max(width, 60)
    assert all(not line.endswith(" ") for line in text.splitlines())


def test_the_text_can_do_without_blocks() -> None:
    """For a terminal that knows ASCII alone there are letters."""
    text = timeline_text(timeline_of("step-40", cut(FLEET)), ascii_only=True)
    assert text.isascii()
    assert "d draining" in text


def test_a_thousand_participants_are_forty_lines() -> None:
    """Of many the slowest are shown, with how many more there are; the picture has them all."""
    subjects = [f"main/agent_{number:04}" for number in range(1000)]
    timeline = timeline_of("step-40", cut(subjects, slow="main/agent_0500"))
    text = timeline_text(timeline)
    assert sum(line.startswith("main/") for line in text.splitlines()) == 40
    assert "main/agent_0500" in text
    assert "960 participants that were faster" in text
    assert timeline_svg(timeline).count(">main/agent_") == 1000


def test_the_picture_is_whole_and_the_same_each_time() -> None:
    """Names are text, not markup; bars stand within the picture; drawing again gives the same bytes."""
    records = cut(('main/<b>&"', "main/agent"))
    svg = timeline_svg(timeline_of("<i>", records))
    assert svg == timeline_svg(timeline_of("<i>", records))
    root = ET.fromstring(svg)  # noqa: S314 - written by us a moment ago
    assert 'main/<b>&"' in "".join(root.itertext())
    width = float(root.attrib["width"])
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width + 2.01


def test_any_order_of_steps_is_drawn() -> None:
    """A journal in disorder, or with its head missing, is drawn without an error."""
    chance = random.Random(7)  # noqa: S311 - a shuffle, no secret
    for _ in range(30):
        records = cut(FLEET, in_doubt="main/tools") + healed()
        chance.shuffle(records)
        timeline = timeline_of("x", records[chance.randrange(20) :])
        timeline_text(timeline)
        timeline_svg(timeline)


@pytest.mark.parametrize(
    ("duration_s", "text"), [(0.9999, "1 s"), (0.99949, "999 ms"), (9.999, "10 s"), (99.96, "100 s"), (1000, "17 min")]
)
def test_durations_round_to_their_unit(duration_s: float, text: str) -> None:
    """No rounding gives a fourth figure or the wrong unit."""
    assert seconds(duration_s) == text
