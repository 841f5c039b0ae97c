"""Found cases, kept: what the servers of each fence answer to a few steps is what the scenario files say.

``pytest tests/fuzz/test_scenarios.py --rewrite-scenarios`` writes them anew; the difference is then reviewed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.scenarios import SCENARIOS, ScenarioInvalid, parse, read

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fuzz.steps import Operation, render_step

FILES = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_servers_answer_as_recorded(path: Path, request: pytest.FixtureRequest) -> None:
    """Every status, every body, every phase, every broken rule."""
    text = read(path).text()
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_strict_server_keeps_every_rule(path: Path) -> None:
    """Nobody rewrites a fault of the kit into a recording without seeing this fail."""
    strict = path.read_text(encoding="utf-8").partition(f"== {FenceVariant.STRICT.value}\n")[2].partition("\n== ")[0]
    assert strict.splitlines()[-1] == "= keeps every rule"


def test_what_recorded_servers_break_is_known_by_name() -> None:
    """And a good part of the known deviations is shown by some scenario."""
    broken = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines() if "= breaks" in line]
    assert [line for line in broken if ", known as " not in line] == []
    assert len({line.partition("known as ")[2].partition(":")[0] for line in broken}) >= 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "s.txt:1: it ends before a line 'role ROLE'"),
        ("# a word\n\n", "s.txt:3: it ends before a line"),
        ("== strict", "s.txt:1: it ends before"),
        ("prepare a", "s.txt:1: a scenario begins with 'role ROLE'"),
        ("role", "s.txt:1: a scenario begins"),
        ("# a\nrole king\nprepare a", "s.txt:2: a scenario begins"),
        ("role agent owing\nprepare a", "s.txt:1: agent owes no restore"),
        ("role agent\n== strict", "s.txt:1: no step follows"),
        ("role agent\n\nprepare a\ndance a", "s.txt:4: 'dance a' is no step: it begins with none of"),
        ("role agent\nprepare a long_poll=perhaps", "s.txt:2: .* is no step"),
        ("role policy\nstatus a long_poll=perhaps", "s.txt:2: .* is no step: long_poll"),
    ],
)
def test_what_is_no_scenario_is_refused_with_its_line(text: str, says: str) -> None:
    """The error names file and line, and what would do."""
    with pytest.raises(ScenarioInvalid, match=says):
        parse(text, "s.txt")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8."""
    path = tmp_path / "s.txt"
    path.write_bytes(b"role agent\n\xff")
    with pytest.raises(ScenarioInvalid, match=r"s\.txt:1: it is not UTF-8"):
        read(path)


WORDS = st.sampled_from([*Operation, "role", "agent", "owing", "work", "wait", "begin", "a", "z", "p", "==", "#", "="])
ODD = st.text(st.characters(codec="utf-8"), max_size=8)
LINES = st.lists(WORDS | ODD | st.builds("{}={}".format, WORDS | ODD, ODD), max_size=5).map(" ".join)
TEXTS = st.lists(LINES, max_size=6).map("\n".join)


@given(TEXTS | TEXTS.map("role policy\n{}".format))
@example("role policy\nstatus a long_poll=yes")
def test_no_text_raises_anything_but_our_error(text: str) -> None:
    """Whatever stands in a file, it is a scenario or it is refused; what is read says the same again."""
    try:
        found = parse(text, "s.txt")
    except ScenarioInvalid:
        return
    again = "\n".join([f"role {found.role}{' owing' * found.owes_restore}", *map(render_step, found.steps)])
    assert parse(again, "s.txt").steps == found.steps
