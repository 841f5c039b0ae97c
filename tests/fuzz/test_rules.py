"""The rules are complete over the tables, unambiguous, and documented as they are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from support.command import call
from support.house import ROOT

from quiesce.fsm.tables.fence import FENCE, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.bearers import RULE_OF_BEARER
from quiesce.fuzz.rulebook import RULE_BY_ID, RULES, rule_of_row, rules_markdown, rules_of
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.rules_fence import FENCE_RULES
from quiesce.fuzz.spoiled import spoilings_of
from quiesce.fuzz.steps import Bearer
from quiesce.fuzz.subject import routes_for

PAGE = Path("docs/conformance-rules.md")


def test_ids_are_unique_and_say_what_they_are_about() -> None:
    """No two rules share an id, and each id is a subject and a name."""
    assert [rule_id for rule_id, count in Counter(rule.id for rule in RULES).items() if count > 1] == []
    assert len(RULE_BY_ID) == len(RULES) > 60
    assert [rule.id for rule in RULES if not re.fullmatch(r"[a-z]+\.[a-z-]+", rule.id)] == []


@pytest.mark.parametrize("role", Role)
def test_every_row_of_a_strict_table_belongs_to_a_rule_of_its_role(role: Role) -> None:
    """What the table says is a rule, so that whoever breaks a row breaks a rule that can be named."""
    rows = FENCE[FenceVariant.STRICT, role].rows
    assert rows
    assert [str(row) for row in rows if role not in rule_of_row(role, row).roles] == []


def test_every_rule_of_the_fence_stands_for_some_row() -> None:
    """A rule that no row belongs to could never be broken."""
    standing = {rule_of_row(role, row).id for role in Role for row in FENCE[FenceVariant.STRICT, role].rows}
    assert [rule.id for rule in FENCE_RULES if rule.id not in standing] == []


def test_every_rule_says_what_must_hold_and_where_that_stands() -> None:
    """Each has a sentence that ends with a full stop, a section, and at least one role."""
    for rule in RULES:
        assert rule.sentence.endswith(".")
        assert rule.sentence[0].isupper()
        assert re.search(r"\d|^docs/", rule.section), rule.id
        assert rule.roles


def test_known_deviations_have_names_of_their_own() -> None:
    """A name of a known deviation means one thing."""
    names = [known.name for rule in RULES if (known := rule.known.get(Profile.GYM_A)) is not None]
    assert len(names) == len(set(names)) > 10


@pytest.mark.parametrize("role", Role)
def test_what_is_sent_malformed_is_about_rules_that_exist(role: Role) -> None:
    """Each spoiled request and each wrong bearer names a rule that binds the role."""
    binding = {rule.id for rule in rules_of(role)}
    named = {spoiling.rule_id for route in routes_for(role).values() for spoiling in spoilings_of(route)}
    assert len(named) > 5
    assert named | set(RULE_OF_BEARER.values()) <= binding
    assert set(RULE_OF_BEARER) == set(Bearer) - {Bearer.GOOD}


@pytest.mark.source
def test_the_page_lists_the_rules_as_they_are() -> None:
    """``docs/conformance-rules.md`` holds the table that the rules make; ``-`` lines of it are not written by hand."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert rules_markdown() in page


@pytest.mark.source
def test_the_recipe_for_continuous_integration_is_one() -> None:
    """It is YAML, and every option of ``quiesce fuzz`` in it is one that there is."""
    page = (ROOT / "docs/fuzzing.md").read_text(encoding="utf-8")
    recipe = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    commands = [step["run"] for step in recipe["jobs"]["fuzz"]["steps"] if "run" in step]
    options = set(re.findall(r"(--[a-z-]+)", next(text for text in commands if text.startswith("quiesce fuzz"))))
    assert len(options) >= 4
    assert options <= set(re.findall(r"(--[a-z-]+)", call("fuzz", "--help").output))
