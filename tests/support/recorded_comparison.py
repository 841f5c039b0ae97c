"""What a recorded reply and one of the kit's have in common, and a line that says where they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from support.asgi import Caller, Json
from support.recordings import Exchange

IGNORED: Final = frozenset({"generation_cut_proof", "generation_cut_receipt"})
"""Members of later servers that the kit does not have."""

VARYING: Final = frozenset({"age_seconds"})
"""Members whose number differs on every run; only that it is a number is compared."""

TIMED_MANIFESTS: Final = "resources"
"""The component whose files hold the time of their making, so that their digest differs on every run."""

STATUS_ONLY: Final = frozenset({422, 500})
"""Replies whose body is the web framework's own."""

_ABSENT: Final = object()


def differences(exchange: Exchange, call: Caller, reply: Json) -> tuple[str, str] | None:
    """What was recorded and what the kit said, as two short texts; None when they agree.

    ``reply`` is the recorded reply with this run's values in place of its placeholders.
    """
    recorded_code = _code(reply)
    recorded, ours = str(exchange.status), str(call.status)
    recorded += f" {recorded_code}" if recorded_code else ""
    ours += f" {call.code}" if call.code else ""
    if recorded != ours:
        return recorded, ours
    if exchange.status in STATUS_ONLY:
        return None
    timed = exchange.component == TIMED_MANIFESTS
    members = [found for found in _members(reply, call.json, "") if not (timed and _both_digests(*found))]
    if not members:
        return None
    return (
        ", ".join([recorded, *(f"{path} {_short(was)}" for path, was, _ in members)]),
        ", ".join([ours, *(f"{path} {_short(now)}" for path, _, now in members)]),
    )


def _code(reply: Json) -> str | None:
    error = reply.get("error") if isinstance(reply, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def _members(was: Json, now: Json, path: str) -> Iterator[tuple[str, Json, Json]]:
    """Members that differ: where, the recorded value, ours."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted((was.keys() | now.keys()) - IGNORED):
            place = f"{path}.{name}" if path else name
            yield from _member(name, was.get(name, _ABSENT), now.get(name, _ABSENT), place)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (left, right) in enumerate(zip(was, now, strict=True)):
            yield from _members(left, right, f"{path}[{number}]")
    elif was != now:
        yield path, was, now


def _member(name: str, was: Json, now: Json, place: str) -> Iterator[tuple[str, Json, Json]]:
    if name == "detail" and isinstance(was, str) and isinstance(now, str):
        return  # texts for people may change
    if name in VARYING and isinstance(was, int | float) and isinstance(now, int | float):
        return
    if name == "features" and isinstance(now, list) and set(was) <= set(now):
        return  # the recorded ones were set by the harness; more is allowed
    yield from _members(was, now, place)


def _both_digests(path: str, was: Json, now: Json) -> bool:
    return path == "manifest_digest" and all(isinstance(value, str) and len(value) == 64 for value in (was, now))


def _short(value: Json) -> str:
    if value is _ABSENT:
        return "absent"
    return value if isinstance(value, str) else json.dumps(value)
