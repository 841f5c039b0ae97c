"""Interpolations of a resolved NeMo Gym configuration, which stay in it as text.

``${a.b}`` names a value of the same document and is followed, in chains and inside longer texts. ``${oc.env:X}`` means
the environment of Gym's own process and ``${oc.select:...}`` is OmegaConf's: neither can be known here. So a value is
resolved only where it is needed, and what cannot be resolved says why, without repeating a value or a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.excerpts import escaped
from quiesce.participants.gym_config_scalars import Opaque
from quiesce.participants.gym_config_yaml import Document, Node

__all__ = ["MISSING", "Interpolations", "Unresolved", "is_interpolated"]

MISSING: Final = "???"
"""OmegaConf's mark of a value that must still be filled in."""
STEPS_MAX: Final = 64
"""Interpolations that are followed for one value."""
CHAIN_MAX: Final = 16
CHARS_MAX: Final = 4096

_SECRET_WORDS: Final = frozenset(
    {"apikey", "credential", "credentials", "key", "keys", "passwd", "password", "secret", "secrets", "token", "tokens"}
)
_PATH: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[[A-Za-z0-9_-]+\])*")
_INDEX: Final = re.compile(r"[0-9]{1,6}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class Unresolved(QuiesceError):
    """A value cannot be known from the document alone; the message continues a sentence about it."""


def is_interpolated(node: Node) -> bool:
    """Whether ``node`` is text that holds an interpolation."""
    return isinstance(node, str) and "${" in node


class Interpolations:
    """Resolves values of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def value(self, node: Node) -> Node:
        """``node`` with its interpolations followed; what is inside a mapping or a list is left as it is.

        Raises:
            Unresolved: it names nothing, needs what only Gym's process has, leads in a circle or too far, leads to
                what by its name is a secret, or ends in ``???``.
        """
        return _Following(self._document).value(node, 0)


class _Following:
    """One value on its way; counts the steps."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._steps = 0

    def value(self, node: Node, chained: int) -> Node:
        if node == MISSING:
            raise Unresolved(f"is {MISSING!r}, which was never filled in")
        if not isinstance(node, str) or "${" not in node:
            return node
        if chained > CHAIN_MAX:
            raise Unresolved(f"follows more than {CHAIN_MAX} interpolations, perhaps in a circle")
        pieces = _split(node)
        if len(pieces) == 1 and isinstance(pieces[0], _Reference):
            return self._looked_up(pieces[0], chained)
        return self._joined(pieces, chained)

    def _joined(self, pieces: list[str | _Reference], chained: int) -> str:
        text = ""
        for piece in pieces:
            text += piece if isinstance(piece, str) else _text(self._looked_up(piece, chained), piece)
            if len(text) > CHARS_MAX:
                raise Unresolved(f"grows longer than {CHARS_MAX} characters")
        return text

    def _looked_up(self, reference: _Reference, chained: int) -> Node:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise Unresolved(f"needs more than {STEPS_MAX} interpolations, perhaps in a circle")
        node: Node = self._document
        for key in reference.keys:
            node = self._child(self.value(node, chained + 1), key, reference)
        return self.value(node, chained + 1)

    def _child(self, node: Node, key: str, reference: _Reference) -> Node:
        if isinstance(node, Mapping) and key in node:
            return node[key]
        if isinstance(node, Sequence) and not isinstance(node, str):
            index = int(key) if _INDEX.fullmatch(key) else len(node)
            if index < len(node):
                return node[index]
        raise Unresolved(f"names {reference}, which is not in the document")


class _Reference:
    """``${a.b}``, checked."""

    def __init__(self, body: str) -> None:
        resolver, colon, argument = body.partition(":")
        if colon:
            raise Unresolved(_needs(resolver.strip(), argument.strip()))
        self._path = body.strip()
        if not _PATH.fullmatch(self._path):
            raise Unresolved("holds an interpolation that is neither ${a.b} nor ${resolver:...}")
        words = re.split(r"[^a-z0-9]+", self._path.lower())
        if not _SECRET_WORDS.isdisjoint(words):
            raise Unresolved(f"leads to {self}, which by its name is a secret and is not read")

    @property
    def keys(self) -> list[str]:
        """The keys that lead to the value."""
        return re.split(r"[.\[]", self._path.replace("]", ""))

    def __str__(self) -> str:
        return f"${{{escaped(self._path)[1:-1]}}}"


def _split(text: str) -> list[str | _Reference]:
    """The parts of ``text``: plain ones, and what its interpolations name."""
    pieces: list[str | _Reference] = []
    rest = text
    while "${" in rest:
        before, _, after = rest.partition("${")
        body, closing, rest = after.partition("}")
        if not closing or "${" in body or before.endswith("\\"):
            raise Unresolved("holds an interpolation that is nested, escaped or not closed")
        pieces += [before] if before else []
        pieces.append(_Reference(body))
        if len(pieces) > STEPS_MAX:
            raise Unresolved(f"holds more than {STEPS_MAX} interpolations")
    return [*pieces, rest] if rest else pieces


def _needs(resolver: str, argument: str) -> str:
    """What a resolver needs. Of its arguments only a name is repeated: a default may be a secret."""
    name = argument.partition(",")[0].strip()
    if resolver == "oc.env" and _NAME.fullmatch(name):
        return f"needs the variable {escaped(name)} of the environment of Gym's own process"
    if resolver == "oc.select" and _NAME.fullmatch(name):
        return f"needs OmegaConf's resolver oc.select for {escaped(name)}"
    if _NAME.fullmatch(resolver):
        return f"needs OmegaConf's resolver {escaped(resolver)}"
    return "needs a resolver of OmegaConf"


def _text(node: Node, reference: _Reference) -> str:
    if isinstance(node, Opaque):
        return node.text
    if isinstance(node, bool) or not isinstance(node, str | int):
        raise Unresolved(f"puts {reference} into a text, though it is none")
    return str(node)
