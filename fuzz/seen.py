"""A reply as the fuzzer looks at it: status, error code, and the body as a value, whatever that may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.participants.dialects.gym_a.refusals import error_code_and_detail
from quiesce.participants.excerpts import body_excerpt
from quiesce.participants.strict_json import NotStrictJson, parse
from quiesce.transport.port import ControlReply

__all__ = ["CONFLICT", "OK", "Seen"]

OK: Final = 200
CONFLICT: Final = 409


@dataclass(frozen=True, slots=True)
class Seen:
    """One reply. ``json`` is None where the body is no JSON; ``code`` is ``error.code``, None where it has none."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    json: object
    code: str | None
    detail: str

    @classmethod
    def of(cls, reply: ControlReply) -> Seen:
        """A transport's reply."""
        try:
            json: object = parse(reply.body)
        except NotStrictJson:
            json = None
        code, detail = error_code_and_detail(reply.headers, reply.body)
        return cls(reply.status, reply.headers, reply.body, json, code, detail)

    @property
    def fields(self) -> Mapping[str, object]:
        """The members of the body, none where it is no object."""
        return self.json if isinstance(self.json, dict) else {}

    def __str__(self) -> str:
        """The reply in a few words."""
        if self.code:
            return f"{self.status} {self.code}"
        return str(self.status) if self.status == OK else f"{self.status} {body_excerpt(self.body, 80)}".strip()
