"""A refused configuration in words: where each problem is, what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ValidationError

from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import escaped

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["ConfigurationProblems", "describe_problems"]

PROBLEMS_MAX: Final = 50


class ConfigurationProblems(ConfigurationError):
    """A configuration cannot be used. Nothing was done.

    Attributes:
        problems: every problem that was found (at most 50), each a sentence with place and remedy.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        problems = tuple(dict.fromkeys(problems))  # several values of one list may be wrong in the same way
        self.problems = problems[:PROBLEMS_MAX]
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
            return
        numbered = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(self.problems, start=1))
        super().__init__(f"the configuration has {len(problems)} problems:\n{numbered}")


def describe_problems(
    error: ValidationError,
    *,
    source: str,
    models: Mapping[int, type[BaseModel]],
    origins: Mapping[str, str],
) -> list[str]:
    """One sentence for each problem of a validation error. No sentence repeats a value that was refused.

    Args:
        error: what pydantic found.
        source: the name of the file.
        models: which model's keys stand at which depth of the file (1 is the top).
        origins: top-level keys whose value did not come from the file, and where it came from.
    """
    return [_sentence(found, source, models, origins) for found in error.errors(include_url=False, include_input=False)]


def _sentence(
    found: ErrorDetails, source: str, models: Mapping[int, type[BaseModel]], origins: Mapping[str, str]
) -> str:
    location = found["loc"]
    model = models.get(len(location))
    origin = origins.get(str(location[0])) if location else None
    where = origin or ": ".join(part for part in (source, _path(location)) if part)
    if found["type"] == "extra_forbidden" and model is not None:
        return f"{where}: unknown key; {_nearest(str(location[-1]), model)}"
    if found["type"] == "missing" and model is not None:
        return f"{where}: is missing; it is {_meaning(str(location[-1]), model)}"
    if found["type"] == "model_type":
        return f"{where}: must be a table of keys and values"
    message = found["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    meaning = _meaning(str(location[-1]), model) if location and model is not None else ""
    return f"{where}: {message}" + (f" ({meaning})" if meaning and found["type"] != "value_error" else "")


def _path(location: Sequence[int | str]) -> str:
    """A location as it is written in TOML: ``deployment.main.participants[2].url``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"{'.' if text else ''}{part if part.isidentifier() else escaped(part)}"
    return text


def _nearest(key: str, model: type[BaseModel]) -> str:
    near = get_close_matches(key, model.model_fields, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else f"the keys here are {', '.join(model.model_fields)}"


def _meaning(key: str, model: type[BaseModel]) -> str:
    field = model.model_fields.get(key)
    return (field.description or "") if field is not None else ""
