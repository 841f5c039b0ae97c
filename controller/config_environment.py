"""``QUIESCE_<KEY>`` variables that override top-level settings of a configuration file.

A variable that is set but empty counts as unset. A variable whose name is nearly that of a setting is a typing error
and is refused; others that begin with ``QUIESCE_`` are left alone, since an orchestrator sets such names by itself
for a service called "quiesce".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from quiesce.participants.excerpts import escaped

__all__ = ["PREFIX", "SETTINGS", "Overrides", "read_overrides"]

PREFIX: Final = "QUIESCE_"
LIKENESS: Final = 0.85
"""From which likeness (difflib's ratio) on an unknown name is taken for a typing error."""


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{escaped(text)} is not a number") from None


def _count(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{escaped(text)} is not a whole number") from None


def _flag(text: str) -> object:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise ValueError(f"{escaped(text)} is neither true nor false")
    return words[text.lower()]


def _words(text: str) -> object:
    return tuple(word for word in text.replace(",", " ").split() if word)


def _path(text: str) -> object:
    return text if text.startswith("~") else str(Path(text).absolute())


SETTINGS: Final[Mapping[str, Callable[[str], object]]] = {
    "root": _path,
    "enabled": _flag,
    "reach_timeout_s": _number,
    "hold_timeout_s": _number,
    "control_timeout_s": _number,
    "release_timeout_s": _number,
    "drain": str,
    "straggler_policy": str,
    "straggler_after_s": _number,
    "last_cut_signals": _words,
    "grace_s": _number,
    "last_cut_label": str,
    "token_variable": str,
    "proxy": str,
    "keep_latest_k": _count,
    "hash_trainer_files": _flag,
}
"""Every setting that a variable can override, and how its text is read."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the environment says: values by setting, the variable that each came from, and what cannot be used."""

    values: Mapping[str, object]
    origins: Mapping[str, str]
    problems: tuple[str, ...]


def read_overrides(environment: Mapping[str, str], *, exempt: Collection[str] = ()) -> Overrides:
    """Read the overriding variables. ``exempt`` names variables that are something else (the token's)."""
    values: dict[str, object] = {}
    problems: list[str] = []
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or not text or variable in exempt:
            continue
        setting = variable.removeprefix(PREFIX).lower()
        if setting not in SETTINGS:
            problems += _misspelt(variable, setting)
            continue
        try:
            values[setting] = SETTINGS[setting](text)
        except ValueError as error:
            problems.append(f"environment variable {variable}: {error}")
    origins = {setting: f"environment variable {PREFIX}{setting.upper()}" for setting in values}
    return Overrides(values, origins, tuple(problems))


def _misspelt(variable: str, setting: str) -> list[str]:
    near = get_close_matches(setting, SETTINGS, n=1, cutoff=LIKENESS)
    if not near:
        return []
    meant = PREFIX + near[0].upper()
    return [f"environment variable {escaped(variable)}: no such setting; did you mean {meant}?"]
