"""What pydantic found wrong, in one short line that names the field's path; and keeping that small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import BaseModel, Field, ValidationError

from quiesce.participants.excerpts import escaped, printable

__all__ = ["Listed", "first_problems", "missing_fields"]

PROBLEMS_MAX: Final = 3
T = TypeVar("T")

Listed: TypeAlias = Annotated[tuple[T, ...], Field(fail_fast=True)]
"""A list of any length, of which the first wrong entry is reported and no other.

An error for each would take some hundred times the memory of the text.
"""


def first_problems(error: ValidationError) -> str:
    """At most three problems, each with the field's path, what it should be and what was found (F-47)."""
    found = error.errors(include_url=False, include_context=False)
    lines = []
    for problem in found[:PROBLEMS_MAX]:
        path = ".".join(printable(str(part), 40) for part in problem["loc"]) or "the whole"
        got = "" if problem["type"] == "missing" else f" (found {escaped(problem['input'], 60)})"
        said = printable(problem["msg"].removeprefix("Value error, "))
        lines.append(f"{path}: {said}{got}")
    return _listed(lines, len(found))


def missing_fields(model: type[BaseModel], value: Mapping[str, object]) -> str:
    """Which required fields a JSON object lacks, as :func:`first_problems` says it; empty when it lacks none.

    To be asked first where others wrote the text: pydantic puts a copy of the whole object into the error for each.
    """
    lacking = [name for name, field in model.model_fields.items() if field.is_required() and name not in value]
    return _listed([f"{name}: Field required" for name in lacking[:PROBLEMS_MAX]], len(lacking))


def _listed(lines: list[str], count: int) -> str:
    more = count - PROBLEMS_MAX
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")
