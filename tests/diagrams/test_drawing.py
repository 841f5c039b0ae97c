"""What is drawn, before any format: paths, landmarks, boxes for several states, differences, neighbourhoods."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import AnyTable, ring, tables

from quiesce.diagrams import Annotations, Focus, Landmark, PathKind, UnknownState, check_annotations, draw, sheets
from quiesce.diagrams.annotated import annotations_of
from quiesce.diagrams.compose import GATHERED_MIN
from quiesce.diagrams.drawing import Arrow, Change, Drawing
from quiesce.diagrams.escape import display_name
from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.tables.fence import FENCE, FenceVariant
from quiesce.fsm.tables.release import RELEASE, ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TRANSACTION
from quiesce.fsm.vocabulary import Role

PLAIN = st.from_regex(r"[a-z]{1,4}(_[a-z]{1,4})?", fullmatch=True)
MACHINES = [sheet for sheet in sheets() if sheet.table is not None and sheet.against is None]


class _State(StrEnum):
    OPEN = "open"
    STUCK = "stuck"
    SHUT = "shut"
    NOWHERE = "nowhere"


class _Event(StrEnum):
    PUSH = "push"
    JAM = "jam"
    OIL = "oil"
    STOP = "stop"
    NOBODY = "nobody"


def arrows_of(drawing: Drawing, path: PathKind) -> list[Arrow]:
    """The arrows on one path."""
    return [arrow for arrow in drawing.arrows if arrow.path is path]


@pytest.mark.parametrize("sheet", MACHINES, ids=lambda sheet: sheet.name)
def test_annotations_fit_their_tables(sheet: object) -> None:
    """What is said of our machines names steps, events and states that they have."""
    table = next(found.table for found in sheets() if found is sheet)
    assert table is not None
    check_annotations(table, annotations_of(table))


@pytest.mark.parametrize(
    "annotations",
    [
        Annotations(steps={(_State.OPEN, _Event.OIL, _State.SHUT): PathKind.HAPPY}),
        Annotations(events={_Event.NOBODY: PathKind.HAPPY}),
        Annotations(targets={_State.NOWHERE: PathKind.HAPPY}),
        Annotations(inner={_State.NOWHERE: ("something",)}),
        Annotations(landmarks=(Landmark("a way", ((_State.OPEN, _Event.OIL, _State.SHUT),)),)),
    ],
)
def test_annotations_that_name_nothing_are_an_error(annotations: Annotations[_State, _Event]) -> None:
    """A step, event, target, state or landmark that the table does not have is refused, and the table is named."""
    with pytest.raises(DefinitionError, match="annotations of DOOR"):
        check_annotations(_door(), annotations)


def test_the_happy_path_goes_through_the_transaction() -> None:
    """Along the happy arrows from the start one passes every milestone of a cut and of a restore, and ends well."""
    happy = arrows_of(draw(TRANSACTION), PathKind.HAPPY)
    reached, frontier = {"idle"}, ["idle"]
    while frontier:
        source = frontier.pop()
        onward = {arrow.target for arrow in happy if arrow.source == source} - reached
        reached |= onward
        frontier += onward
    assert reached == {
        "idle",
        "preflight",
        "draining",
        "paused",
        "committing",
        "committed",
        "publishing",
        "published",
        "restoring",
        "restored",
        "resuming",
        "resumed",
    }


def test_every_failure_of_the_transaction_is_told_apart() -> None:
    """No arrow into aborting, in doubt or held closed is on the happy path, and none back out of there is a failure."""
    bad = {"aborting", "restore_failed", "in_doubt_published", "in_doubt_unpublished", "publish_unknown"}
    for arrow in draw(TRANSACTION).arrows:
        if arrow.target in bad:
            assert arrow.path is not PathKind.HAPPY
        if arrow.source in {"in_doubt_published", "in_doubt_unpublished"}:
            assert arrow.path is PathKind.RECOVERY


def test_the_idle_resume_is_a_landmark_in_three_steps() -> None:
    """Its steps are arrows of their own, numbered, and the transaction says inside its states where they are."""
    found = {arrow.landmark: (arrow.source, arrow.target) for arrow in draw(RELEASE).arrows if "IDLE" in arrow.landmark}
    assert found == {
        "the IDLE resume 1/3": ("releasing", "inspecting"),
        "the IDLE resume 2/3": ("inspecting", "closing"),
        "the IDLE resume 3/3": ("closing", "releasing"),
    }
    says = {node.name: node.inner for node in draw(TRANSACTION).nodes if node.inner}
    assert set(says) == {"resuming", "aborting", "publish_unknown"}
    assert set(says.values()) == {
        (
            "runs release for everyone; the IDLE resume there:",
            "1. wrong_phase / call_inspect",
            "2. read_open / call_healing_close",
            "3. closed / call_release",
        )
    }


def test_a_table_of_ones_own_is_classified_by_what_it_says() -> None:
    """Into a resting state is a failure, out of it a recovery, and so is the abort event; the rest is plain."""
    notes = annotations_of(_door())
    assert [notes.path_of(row) for row in _door().rows] == [
        PathKind.PLAIN,
        PathKind.FAILURE,
        PathKind.RECOVERY,
        PathKind.FAILURE,
    ]


@given(tables(names=PLAIN))
def test_a_box_stands_for_the_steps_of_its_states(table: AnyTable) -> None:
    """With every box taken for its states, each step from state to state is drawn exactly once."""
    drawing = draw(table)
    states = [node for node in drawing.nodes if not node.gathers]
    drawn = Counter[tuple[str, str, str]]()
    for arrow in drawing.arrows:
        for source in _sources(drawing, arrow.source, [node.title for node in states]):
            target = next(node.title for node in states if node.name == arrow.target)
            drawn.update((source, event, target) for label in arrow.labels for event in label.events)
    moving = [row for row in table.rows if row.source is not row.target]
    assert drawn == Counter((row.source.value, row.event.value, row.target.value) for row in moving)


def _sources(drawing: Drawing, name: str, states: list[str]) -> list[str]:
    node = next(node for node in drawing.nodes if node.name == name)
    if not node.gathers:
        return [node.title]
    assert len(states) >= GATHERED_MIN
    if node.title == "any state":
        return states
    return [title for title in states if (title in node.gathers) is (node.title == "any of")]


def test_a_failure_from_everywhere_is_drawn_once() -> None:
    """The aborts of a cut, possible from five states, are one arrow from one box that lists them."""
    drawing = draw(TRANSACTION)
    box = next(node for node in drawing.nodes if "draining" in node.gathers)
    assert box.gathers == (
        "preflight",
        "draining",
        "paused",
        "committing",
        "committed",
    )
    assert [(arrow.target, arrow.labels[0].events) for arrow in drawing.arrows if arrow.source == box.name] == [
        ("aborting", ("participant_failed", "record_failed", "abort_requested", "cancelled"))
    ]


def test_a_neighbourhood_has_what_touches_the_state() -> None:
    """One step away from closing: every state that it leads to or comes from, and only arrows that touch it."""
    drawing = draw(RELEASE, focus=Focus("closing"))
    rows = [row for row in RELEASE.rows if ReleaseState.CLOSING in (row.source, row.target)]
    assert {node.name for node in drawing.nodes} == {state.value for row in rows for state in (row.source, row.target)}
    assert {arrow.source for arrow in drawing.arrows if arrow.target != "closing"} == {"closing"}
    assert drawing.arrows
    assert all(node.hidden for node in drawing.nodes if node.name != "closing")


def test_a_wide_neighbourhood_is_the_whole() -> None:
    """With as many steps as there are states everything is drawn, nothing is hidden; with none only the state."""
    names = {state.value for state in TRANSACTION.used_states()}
    wide = draw(TRANSACTION, focus=Focus("publishing", 18))
    assert {node.name for node in wide.nodes} == names
    assert {node.hidden for node in wide.nodes} == {0}
    (alone,) = draw(TRANSACTION, focus=Focus("publishing", 0)).nodes
    assert alone.name == "publishing"


@pytest.mark.parametrize(
    ("text", "state", "steps"),
    [
        ("closing", "closing", 1),
        ("closing:3", "closing", 3),
        ("a:b", "a:b", 1),
        ("a:1:2", "a:1", 2),
        (":2", ":2", 1),
        ("x:99999999999", "x", 999999),
    ],
)
def test_a_focus_is_read(text: str, state: str, steps: int) -> None:
    """``STATE`` and ``STATE:N``, also where the state's own name has a colon."""
    assert Focus.parse(text) == Focus(state, steps)


@pytest.mark.parametrize(("state", "offer"), [("clsing", "did you mean closing"), ("?", "there are: not_due")])
def test_a_focus_on_nothing_is_answered_with_an_offer(state: str, offer: str) -> None:
    """The error says which states there are, or which one was probably meant."""
    with pytest.raises(UnknownState, match=offer):
        draw(RELEASE, focus=Focus(state))


def test_a_state_is_found_however_it_is_written() -> None:
    """Value, name in the code, capitals and hyphens all mean the state."""
    for text in ("backing_off", "BACKING_OFF", "backing-off", "Backing_Off"):
        assert draw(RELEASE, focus=Focus(text, 0)).nodes[0].name == "backing_off"


@pytest.mark.parametrize("key", [key for key in FENCE if key[0] is not FenceVariant.STRICT], ids=str)
def test_a_difference_has_exactly_the_rows_that_differ(key: tuple[FenceVariant, Role]) -> None:
    """Every row of one side alone is marked for its side; what both have is grey and carries no words of its own."""
    table, strict = FENCE[key], FENCE[FenceVariant.STRICT, key[1]]
    drawing = draw(table, against=strict)
    labels = [label for arrow in drawing.arrows for label in arrow.labels]
    labels += [label for node in drawing.nodes for label in node.inside]
    references = {ref for label in labels for ref in label.references}
    here = [row for row in table.rows if _step(row) not in set(map(_step, strict.rows))]
    assert {row.source_ref for row in here if row.source_ref} <= references | {""}
    assert bool(here) == any(label.change is Change.HERE for label in labels)
    assert all(label.change is not Change.NONE for label in labels)
    assert not any(label.guards or label.effects for label in labels if label.change is Change.SAME)


def test_a_table_does_not_differ_from_itself() -> None:
    """Compared with itself everything is the same, and nothing stands inside the boxes."""
    drawing = draw(RELEASE, against=RELEASE)
    assert {arrow.change for arrow in drawing.arrows} == {Change.SAME}
    assert not any(node.inside for node in drawing.nodes)


@pytest.mark.parametrize("sheet", MACHINES, ids=lambda sheet: sheet.name)
def test_an_arrow_leaves_the_boxes_of_those_states_alone_that_have_its_step(sheet: object) -> None:
    """A box that stands for several states, or for all but some, stands for those from which its arrow leads."""
    table = next(one.table for one in MACHINES if one is sheet)
    assert table is not None
    drawing = draw(table)
    nodes = {node.name: node for node in drawing.nodes}
    drawn = {
        (display_name(state), arrow.target)
        for arrow in drawing.arrows
        for state in table.used_states()
        if nodes[arrow.source].stands_for(display_name(state))
    }
    moving = [row for row in table.rows if row.source is not row.target]
    names = {node.title: node.name for node in drawing.nodes if not node.gathers}
    assert drawn == {(display_name(row.source), names[display_name(row.target)]) for row in moving}


def test_five_hundred_states_are_drawn_whole() -> None:
    """A ring of five hundred states has as many arrows, each from its own state."""
    drawing = draw(ring(tuple(f"state_{number}" for number in range(500))))
    assert len(drawing.nodes) == len(drawing.arrows) == 500
    assert len({arrow.source for arrow in drawing.arrows}) == 500


def _step(row: Row) -> object:  # type: ignore[type-arg]  # of any table
    return (row.source, row.event, frozenset(row.guards), row.target, row.effects, row.deadline, row.refusal)


def _door() -> Table[_State, _Event]:
    state, event = _State, _Event
    return Table(
        "DOOR",
        "A door",
        state,
        event,
        state.OPEN,
        (),
        (),
        (
            Row(state.OPEN, event.PUSH, (), state.SHUT, (), "shuts"),
            Row(state.OPEN, event.JAM, (), state.STUCK, (), "sticks"),
            Row(state.STUCK, event.OIL, (), state.OPEN, (), "works again"),
            Row(state.OPEN, event.STOP, (), state.SHUT, (), "is stopped"),
        ),
        final=frozenset({state.SHUT}),
        resting=frozenset({state.STUCK}),
        abort_event=event.STOP,
        abortable_from=frozenset({state.OPEN}),
        unused_states=frozenset({state.NOWHERE}),
    )


def test_the_release_table_still_heals_by_pausing() -> None:
    """The second step of the landmark is the row that pauses under the same id."""
    row = next(r for r in RELEASE.rows if (r.source, r.target) == (ReleaseState.INSPECTING, ReleaseState.CLOSING))
    assert row.event is ReleaseEvent.READ_OPEN
    assert "call_healing_close" in row.effects
