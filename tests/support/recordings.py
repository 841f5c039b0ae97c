"""The recorded exchanges of real participant servers, with their placeholders filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "data" / "wire_recordings"

Json = Any  # JSON has no shape that a type could hold

NOW = 1_800_000_000.0
AGE_S = 1.5
DIRECTORIES = {"<checkpoint_dir>": "/checkpoints/first", "<checkpoint_dir_2>": "/checkpoints/second"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its reply. ``place`` names it in test ids."""

    scenario: str
    number: int
    step: str
    component: str
    before: str
    method: str
    path: str
    headers_needed: tuple[str, ...]
    authorization: str | None
    query: dict[str, Json] | None
    json: Json
    status: int
    reply: Json
    reply_text: str | None

    @property
    def place(self) -> str:
        return f"{self.scenario}-{self.number}-{self.step}-{self.component}"

    @property
    def body(self) -> bytes:
        """The reply's body as it came over the wire."""
        text = json.dumps(self.reply) if self.reply_text is None else self.reply_text
        return text.encode()

    @property
    def headers(self) -> dict[str, str]:
        """The reply's headers; the recordings keep none, and only a JSON reply has a known type."""
        return {"content-type": "application/json" if self.reply_text is None else "text/plain"}


def filled(value: Json) -> Json:
    """``value`` with numbers and paths in place of placeholders."""
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if not isinstance(value, str):
        return value
    deadline = re.fullmatch(r"<deadline([+-][0-9.]+)s>", value)
    if deadline:
        return NOW + float(deadline.group(1))
    if value == "<age_seconds>":
        return AGE_S
    for placeholder, directory in DIRECTORIES.items():
        value = value.replace(placeholder, directory)
    return value


def scenarios() -> list[str]:
    """Names of all scenarios, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def exchanges_of(scenario: str) -> Iterator[Exchange]:
    """The exchanges of one scenario in the order of sending."""
    lines = (FOLDER / f"{scenario}.jsonl").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        recorded = json.loads(line)
        request, response = recorded["request"], recorded["response"]
        yield Exchange(
            scenario=scenario,
            number=number,
            step=recorded["step"],
            component=recorded["component"],
            before=recorded.get("before", ""),
            method=request["method"],
            path=request["path"],
            headers_needed=tuple(request["headers_needed"]),
            authorization=request["authorization"],
            query=filled(request.get("query")),
            json=filled(request["json"]),
            status=response["status"],
            reply=filled(response["json"]),
            reply_text=response.get("text"),
        )


def all_exchanges() -> list[Exchange]:
    """Every exchange of every scenario."""
    return [exchange for scenario in scenarios() for exchange in exchanges_of(scenario)]


def trees() -> dict[str, dict[str, bytes]]:
    """``scenario/placeholder`` to the files that were left there, by relative name."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(FOLDER.glob("*.tree.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        for placeholder in DIRECTORIES:
            if placeholder in recorded:
                files = recorded[placeholder]["files"]
                found[f"{recorded['scenario']}/{placeholder}"] = {
                    name: file["text"].encode() for name, file in files.items()
                }
    return found
