"""A counterexample as a file: it says all that is replayed, and whatever is not as it was written is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.counterexamples import counterexample_of, row_bugs
from support.planted_bugs import setups

from quiesce.fsm import explore_changes
from quiesce.fsm.explore import Kind, explore
from quiesce.fsm.explore_model import System
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fuzz import counterexample as module
from quiesce.fuzz.counterexample import (
    Counterexample,
    counterexample_schema,
    counterexample_text,
    parse_counterexample,
)
from quiesce.fuzz.errors import ReplayInvalid
from quiesce.fuzz.json_place import line_of
from quiesce.fuzz.replay_tables import replay_on, still_shown
from quiesce.fuzz.telling import pytest_text, sequence_of_counterexample

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "counterexample-1.schema.json"
BUG = "a participant is not marked before its first call"
TEXT = counterexample_text(counterexample_of(BUG))


@pytest.mark.parametrize("name", row_bugs())
def test_what_the_search_found_is_replayed_from_the_file_on_both_engines(name: str) -> None:
    """Written, read and replayed, a counterexample shows its violation on the tables and on `transitions`."""
    found = counterexample_of(name)
    read = parse_counterexample(counterexample_text(found))
    replayed = replay_on(read)
    assert read == found
    assert not replayed.stopped
    assert replayed.shown
    assert [moment.action for moment in replayed.moments] == list(found.actions)
    assert replay_on(found, TransitionsEngine()) == replayed


def test_without_the_planted_bug_nothing_is_violated() -> None:
    """It is the change that breaks the property: the same actions on the sound tables lead elsewhere or nowhere."""
    sound = counterexample_of(BUG).model_copy(update={"changes": ()})
    assert still_shown(counterexample_text(sound)) is False


def test_a_witness_is_a_file_as_well() -> None:
    """What was reached can be written and replayed like what was violated."""
    setup = next(iter(setups().values()))
    verdict = next(verdict for verdict in explore(System(setup)).verdicts if verdict.name == "resumed")
    found = Counterexample.of(setup, verdict)
    assert found.is_witness
    assert replay_on(parse_counterexample(counterexample_text(found))).shown
    never = next(verdict for verdict in explore(System(setup)).verdicts if verdict.kind is Kind.ALWAYS)
    with pytest.raises(ValueError, match="no trace"):
        Counterexample.of(setup, never)


# what is refused


def _edited(*path: str | int, to: object) -> str:
    """The file with one value exchanged; its layout and digest stay."""
    content = json.loads(TEXT)
    place: Any = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1: no JSON"),
        (TEXT[:400], r"line \d+: no JSON"),
        ("[]", "line 1: it is no JSON object"),
        ('{"kind": 1, "kind": 2}', "stands twice"),
        (_edited("schema_version", to=2), "line 2: it has schema version 2, this Quiesce reads 1"),
        (_edited("schema_version", to=True), "line 2: schema_version"),
        (_edited("kind", to="quiesce.fuzz"), "line 3: kind"),
        (_edited("extra", to=1), r"line \d+: extra: Extra inputs are not permitted"),
        (_edited("tables", to="0" * 64), r"line \d+: the digest is that of another content"),
        (_edited("setup", "faults", "gremlins", to=1), r"line \d+: there is no class of faults 'gremlins'"),
        (_edited("setup", "faults", "abort", to=9), r"line \d+: setup.faults.abort"),
        (_edited("setup", "participants", 1, "fence", to="gym_a_coordinator"), r"line \d+: no fence 'gym_a"),
        (_edited("setup", "participants", 1, "name", to="../agent"), r"line 36: setup.participants.1.name"),
        (_edited("setup", "participants", 1, "name", to="policy"), r"line \d+: participants named twice"),
        (_edited("claim", "name", to="peace"), r"line \d+: no property is called 'peace'"),
        (_edited("changes", 0, "row", to="nowhere"), r"line \d+: table PARTICIPANT has no row 'nowhere'"),
        (_edited("actions", 2, to="policy: dances"), r"line \d+: the digest is that of another content"),
        (_edited("digest", to="0" * 64), r"line \d+: the digest is that of another content.*edited"),
    ],
)
def test_what_was_edited_or_is_of_another_version_is_refused_with_its_line(text: str, reason: str) -> None:
    """Every refusal names the line, the field and what to do; nothing is replayed."""
    with pytest.raises(ReplayInvalid, match=rf"mine\.json: .*{reason}"):
        parse_counterexample(text, "mine.json")


def test_a_file_of_far_too_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a bound on what is read."""
    monkeypatch.setattr(module, "TEXT_BYTES_MAX", 100)
    with pytest.raises(ReplayInvalid, match="longer than 100 bytes"):
        parse_counterexample(TEXT)


def test_what_is_not_possible_any_more_ends_the_replay() -> None:
    """The actions before it are taken, it is named with what is possible there, and nothing is shown."""
    found = counterexample_of(BUG)
    actions = (*found.actions[:2], "policy: dances", *found.actions[2:])
    replayed = replay_on(found.model_copy(update={"actions": actions}))
    assert [moment.action for moment in replayed.moments] == list(actions[:2])
    assert replayed.shown is False
    assert re.match(r"action 3, 'policy: dances', is not possible there; possible are: .*open", replayed.stopped)


def test_what_is_violated_on_the_way_is_shown_though_the_way_ends_elsewhere() -> None:
    """With other tables it may come earlier than it came: every state of the way counts."""
    found = counterexample_of(BUG)
    longer = found.model_copy(update={"actions": (*found.actions, "nobody knows this")})
    replayed = replay_on(longer)
    assert replayed.shown
    assert replayed.stopped


def test_a_file_of_other_tables_is_read_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be replayed on those that are there now, as long as they have what it names."""
    assert counterexample_of(BUG).is_of_these_tables
    monkeypatch.setattr(explore_changes, "_declarations", lambda: iter(["something else"]))
    assert not parse_counterexample(TEXT).is_of_these_tables
    assert still_shown(TEXT)
    with pytest.raises(ReplayInvalid, match=r"is called 'peace' \(it was found with other tables, Quiesce "):
        parse_counterexample(_edited("claim", "name", to="peace"))


def test_lines_are_found_in_any_layout() -> None:
    """The line of a value does not depend on how the text is laid out; what is absent is where it should stand."""
    text = '{"a": [1,\n {"b":\n "x\\n{"}], "c"\n: 2}'
    paths: list[list[str | int]] = [["a"], ["a", 1], ["a", 1, "b"], ["c"], ["d"], ["a", 7, "z"]]
    assert [line_of(text, path) for path in paths] == [1, 2, 3, 4, 1, 1]


@pytest.mark.source
def test_the_published_schema_is_that_of_the_code() -> None:
    """``docs/schemas`` holds the JSON Schema of this version; it forbids unknown fields everywhere."""
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == counterexample_schema()
    definitions = counterexample_schema()["$defs"]
    assert isinstance(definitions, dict)
    objects = [item for item in (*definitions.values(), counterexample_schema()) if item.get("type") == "object"]
    assert len(objects) >= 5
    assert all(item["additionalProperties"] is False for item in objects)


# for people


def test_the_picture_has_every_action_and_the_end() -> None:
    """One step for each action between the controller and the participants, and the violation as the last."""
    found = counterexample_of(BUG)
    sequence = sequence_of_counterexample(found)
    assert sequence.lifelines == ("controller", "policy", "agent")
    assert len(sequence.steps) == len(found.actions) + 1
    assert "closed_is_known" in sequence.steps[-1].label
    assert [step.kind.value for step in sequence.steps[:3]] == ["note", "call", "reply"]


def test_the_printed_test_fails_and_passes_without_the_bug(tmp_path: Path) -> None:
    """The module that is printed is a test that fails when pytest runs it; with sound tables the same one passes."""
    found = counterexample_of(BUG)
    (tmp_path / "test_broken.py").write_text(pytest_text(found), encoding="utf-8")
    sound = found.model_copy(update={"changes": ()})
    (tmp_path / "test_sound.py").write_text(pytest_text(sound), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    assert "test_broken.py::test_closed_is_known" in ran.stdout
