"""All rules together: look-up by id, and which rule a row of a strict table belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.tables.fence import FENCE, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.rules import Profile, Rule
from quiesce.fuzz.rules_fence import FENCE_RULES
from quiesce.fuzz.rules_wire import WIRE_RULES
from quiesce.fuzz.worlds import FenceRow

__all__ = ["RULES", "RULE_BY_ID", "rule_of_row", "rules_markdown", "rules_of"]

RULES: Final[tuple[Rule, ...]] = (*FENCE_RULES, *WIRE_RULES)
"""Every rule, in the order of the documents."""

RULE_BY_ID: Final[Mapping[str, Rule]] = MappingProxyType({rule.id: rule for rule in RULES})


def rules_of(role: Role) -> tuple[Rule, ...]:
    """The rules that bind a participant of this role."""
    return tuple(rule for rule in RULES if role in rule.roles)


def _claims() -> dict[tuple[Role, FenceRow], Rule]:
    claimed: dict[tuple[Role, FenceRow], Rule] = {}
    for role in Role:
        for row in FENCE[FenceVariant.STRICT, role].rows:
            rule = next((rule for rule in FENCE_RULES if rule.stands_for(role, row)), None)
            if rule is None:
                raise DefinitionError(f"no rule stands for the row of {role.value} '{row}'; add it to FENCE_RULES")
            claimed[role, row] = rule
    return claimed


_RULE_OF_ROW: Final[Mapping[tuple[Role, FenceRow], Rule]] = MappingProxyType(_claims())


def rule_of_row(role: Role, row: FenceRow) -> Rule:
    """The rule that a row of this role's strict table belongs to."""
    return _RULE_OF_ROW[role, row]


def rules_markdown(rules: Iterable[Rule] = RULES) -> str:
    """The table of ``docs/conformance-rules.md``."""
    lines = ["| rule | what must hold | section | severity | roles | needs |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [
        f"| `{rule.id}` | {rule.sentence} | {rule.section} | {rule.severity.value} | {_roles(rule)} | {_needs(rule)} |"
        for rule in rules
    ]
    lines += ["", "| known deviation | rule | what recorded servers do |", "| --- | --- | --- |"]
    lines += [
        f"| `{known.name}` | `{rule.id}` | {known.sentence} |"
        for rule in rules
        if (known := rule.known.get(Profile.GYM_A)) is not None
    ]
    return "\n".join(lines) + "\n"


def _roles(rule: Rule) -> str:
    return "all" if rule.roles == frozenset(Role) else ", ".join(role.value for role in Role if role in rule.roles)


def _needs(rule: Rule) -> str:
    return ", ".join(sorted(need.value for need in rule.needs)) or "–"
