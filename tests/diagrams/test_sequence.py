"""Sequences: the order of a phase as PHASES has it, a run as it was, a counterexample as it is given."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import cut, healed
from support.tables import ODD_NAMES

from quiesce.diagrams import (
    SequenceStep,
    StepKind,
    find_sheet,
    phase_sequence,
    run_sequence,
    sequence_mermaid,
    sequence_of,
    sequence_svg,
)
from quiesce.diagrams.sequence import CONTROLLER, Sequence
from quiesce.fsm.tables.phases import PHASES, DrainMode, plan_for
from quiesce.fsm.vocabulary import Phase, Role

NAMES = st.text(max_size=12) | st.sampled_from(ODD_NAMES)
STEPS = st.lists(st.builds(SequenceStep, NAMES, NAMES, NAMES, st.sampled_from(StepKind)), max_size=8)
TOPOLOGY = {"p1": Role.POLICY, "p2": Role.POLICY, "judge": Role.AUXILIARY, "a": Role.AGENT, "r": Role.RESOURCES}
_LINE = re.compile(
    r"    (title .*|participant [a-z][a-z0-9_]* as .+|Note over [a-z0-9_]+(,[a-z0-9_]+)?: .+"
    r"|[a-z][a-z0-9_]*(->>|-->>|--x)[a-z][a-z0-9_]*: .+)"
)


def called(sequence: Sequence) -> list[tuple[str, str]]:
    """Who was called with what, in order."""
    return [(step.target, step.label) for step in sequence.steps if step.kind is StepKind.CALL]


@given(STEPS)
def test_names_cannot_be_taken_for_syntax(steps: list[SequenceStep]) -> None:
    """Whatever names and labels there are, each step is one line of the grammar with plain ends, in order."""
    text = sequence_mermaid(sequence_of("A title", steps))
    first, *lines = text.splitlines()
    assert first == "sequenceDiagram"
    assert [line for line in lines if not _LINE.fullmatch(line)] == []
    assert sum("participant" not in line[:16] and not line.startswith("    title") for line in lines) == len(steps)


@given(STEPS)
def test_every_label_can_be_read_in_the_picture(steps: list[SequenceStep]) -> None:
    """The SVG is well-formed, has every label as text, the same bytes each time, and nothing left of its edge."""
    sequence = sequence_of("A title", steps)
    svg = sequence_svg(sequence)
    assert svg == sequence_svg(sequence)
    root = ET.fromstring(svg)  # noqa: S314 - written by us a moment ago
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    shown = _letters("".join(one.text or "" for one in texts))
    assert [step.label for step in steps if _letters(step.label) not in shown] == []
    assert all(float(one.attrib["x"]) >= 0 for one in texts)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


@pytest.mark.parametrize("plan", PHASES, ids=lambda plan: f"{plan.phase.value}-{plan.drain}")
def test_a_phase_calls_whom_its_waves_name(plan: object) -> None:
    """Every member of a wave's roles is called once a wave, in the order of the waves, and nobody else is."""
    found = next(one for one in PHASES if one is plan)
    expected = [name for wave in found.waves for name, role in TOPOLOGY.items() if role in wave.roles]
    calls = called(phase_sequence(found, TOPOLOGY))
    assert [name for name, verb in calls if verb != "await cut"] == expected


def spoken(drain: DrainMode) -> list[tuple[str, str, str]]:
    """Who says what to whom while a cut is prepared."""
    steps = phase_sequence(plan_for(Phase.PREPARE, drain), TOPOLOGY).steps
    return [(step.source, step.target, step.label) for step in steps if step.kind is not StepKind.STAGE]


def test_agents_are_closed_while_policies_drain_in_one_variant_alone() -> None:
    """A policy says that it drains and its drain is awaited; only then agents follow, or only when it has ended."""
    over, first = spoken(DrainMode.OVERLAPPED), spoken(DrainMode.POLICIES_FIRST)
    for policy in ("p1", "p2"):
        for steps in (over, first):
            close, draining, wait, paused = (
                steps.index(step)
                for step in (
                    (CONTROLLER, policy, "close"),
                    (policy, CONTROLLER, "draining"),
                    (CONTROLLER, policy, "await cut"),
                    (policy, CONTROLLER, "paused"),
                )
            )
            agent = steps.index((CONTROLLER, "a", "close"))
            assert close < draining < wait < paused
            assert wait < agent
            assert (paused > agent) is (steps is over)


def test_resources_are_closed_last_and_opened_first() -> None:
    """As the design has it: nobody who is in use is closed, and an agent finds what it calls open."""
    closing = called(phase_sequence(plan_for(Phase.PREPARE, DrainMode.OVERLAPPED), TOPOLOGY))
    opening = called(phase_sequence(plan_for(Phase.RESUME, DrainMode.OVERLAPPED), TOPOLOGY))
    asked = [(name, verb) for name, verb in closing if verb != "await cut"]
    assert asked == [("p1", "close"), ("p2", "close"), ("a", "close"), ("r", "close")]
    assert opening == [("r", "release"), ("p1", "release"), ("p2", "release"), ("a", "release")]


def test_a_wave_says_what_it_waits_for() -> None:
    """The sheet of a phase shows when each wave begins and why."""
    text = find_sheet("sequence-prepare-policies-first").mermaid().replace("<br/>", " ")
    assert "when every policy is paused" in text
    assert "agents use resources until they are parked" in text


def test_a_run_has_each_call_and_answer() -> None:
    """A recorded cut shows its states, each call with its answer, and what happened at the controller."""
    sequence = run_sequence("step-40", cut(("main/policy", "main/agent")))
    kinds = {step.kind for step in sequence.steps}
    assert kinds == {StepKind.CALL, StepKind.REPLY, StepKind.NOTE, StepKind.STAGE}
    assert [step.label.split(" ")[0] for step in sequence.steps if step.kind is StepKind.STAGE] == [
        "preflight",
        "draining",
        "paused",
        "committing",
        "committed",
        "publishing",
        "published",
        "resuming",
        "resumed",
    ]
    labels = [label for name, label in called(sequence) if name.startswith("main/policy")]
    assert labels == ["inspect", "close", "await cut", "export", "release"]


def test_a_healed_run_shows_the_idle_resume() -> None:
    """The refused resume, the reading, the healing pause and the second resume stand in their order."""
    sequence = run_sequence("x", healed())
    assert called(sequence)[-4:] == [
        ("main/policy", "release"),
        ("main/policy", "inspect"),
        ("main/policy", "close (healing)"),
        ("main/policy", "release"),
    ]
    assert [step.kind for step in sequence.steps if "lost" in step.label] == [StepKind.LOST]


def test_a_thousand_that_did_the_same_share_a_lifeline() -> None:
    """A run over a thousand servers is a page: one lifeline for those alike, one for the one that was not."""
    subjects = [f"main/agent_{number:04}" for number in range(1000)]
    sequence = run_sequence("step-40", cut(subjects, in_doubt="main/agent_0007"))
    assert sorted(sequence.lifelines) == sorted((CONTROLLER, "main/agent_0000 and 998 more", "main/agent_0007"))
    assert len(sequence.steps) < 60


def test_what_is_left_out_is_said() -> None:
    """With fewer lifelines or steps than there are, the picture says how many are missing."""
    records = cut(("main/a", "main/b", "main/c"), in_doubt="main/b")
    assert any("2 more participants are" in step.label for step in run_sequence("x", records, lifelines_max=1).steps)
    short = run_sequence("x", records, steps_max=5).steps
    assert len(short) == 6
    assert "more steps are not drawn" in short[-1].label


def test_a_counterexample_is_drawn_as_it_is_given() -> None:
    """Neutral steps keep their order, their names and their kinds."""
    steps = (
        SequenceStep("controller", "policy", "close"),
        SequenceStep("policy", "policy", "restarts", StepKind.NOTE),
        SequenceStep("policy", "controller", "paused", StepKind.LOST),
        SequenceStep("controller", "controller", "the property fails here", StepKind.STAGE),
    )
    sequence = sequence_of("Counterexample", steps)
    assert sequence.lifelines == ("controller", "policy")
    assert sequence_mermaid(sequence).splitlines()[4:] == [
        "    controller->>policy: close",
        "    Note over policy: restarts",
        "    policy--xcontroller: paused",
        "    Note over controller,policy: the property fails here",
    ]


def test_what_stands_over_all_lifelines_is_folded() -> None:
    """Mermaid moves lifelines apart for a long line that stands over all of them, and folds none by itself."""
    for plan in PHASES:
        text = sequence_mermaid(phase_sequence(plan, TOPOLOGY))
        notes = re.findall("Note over [^:]+: (.+)", text)
        assert notes
        assert max(len(line) for note in notes for line in note.split("<br/>")) < 60


@given(STEPS, st.text(min_size=49, max_size=400))
def test_a_long_title_is_folded(steps: list[SequenceStep], title: str) -> None:
    """Mermaid folds no title and cuts off its end: a long one stands over all lifelines, in lines that are short."""
    words = " ".join(title[at : at + 12] for at in range(0, len(title), 12))
    text = sequence_mermaid(sequence_of(words, steps))
    shown = re.findall("^    title (.*)$", text, re.MULTILINE)
    assert max(map(len, map(_unescaped, shown)), default=0) <= 48
    if not shown:
        heading = next(line for line in text.splitlines() if line.startswith("    Note over"))
        lines = heading.split(": ", 1)[1].split("<br/>")
        assert max(map(len, map(_unescaped, lines))) <= 48
        assert _letters(_unescaped("".join(lines))) == _letters(words)


def _unescaped(text: str) -> str:
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), text)
