"""PHASES and JOINT as Markdown: which roles are called in which order, and what moves the transaction by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quiesce.diagrams.escape import markdown_cell, markdown_code
from quiesce.diagrams.markdown import markdown_grid
from quiesce.fsm.tables.joint import JointRule
from quiesce.fsm.tables.phases import PhasePlan, Wave

__all__ = ["render_joint", "render_phases"]

_PHASE_HEADER = ("phase", "drain", "wave", "roles", "becomes due", "sent when", "expects", "reason")
_JOINT_HEADER = ("#", "while the transaction is", "every member of", "meets", "then", "reason")


def render_phases(plans: Iterable[PhasePlan]) -> str:
    """One row a wave, in the order in which waves are sent."""
    cells = (
        (
            markdown_code(plan.phase.value),
            markdown_code(plan.drain.value if plan.drain else ""),
            str(number),
            *_wave(wave),
        )
        for plan in plans
        for number, wave in enumerate(plan.waves, start=1)
    )
    return f"## Waves\n\n{markdown_grid(_PHASE_HEADER, cells)}"


def render_joint(rules: Iterable[JointRule]) -> str:
    """One row a rule, in the order in which rules are tried."""
    cells = (
        (
            str(number),
            markdown_code(rule.state.value),
            markdown_code(rule.phase.value),
            markdown_code(rule.condition.value),
            markdown_code(rule.event.value),
            markdown_cell(rule.reason),
        )
        for number, rule in enumerate(rules, start=1)
    )
    return f"## Rules\n\n{markdown_grid(_JOINT_HEADER, cells)}"


def _wave(wave: Wave) -> Iterator[str]:
    yield ", ".join(markdown_code(role.value) for role in wave.roles)
    yield markdown_code(wave.event.value)
    stages: dict[str, list[str]] = {}
    for role, stage in wave.waits_for:
        stages.setdefault(stage.value, []).append(markdown_code(role.value))
    awaited = [f"every {', '.join(roles)} is {markdown_code(stage)}" for stage, roles in stages.items()]
    yield " and ".join(awaited) or "at once"
    yield markdown_code(wave.expects.value if wave.expects else "")
    yield markdown_cell(wave.reason)
