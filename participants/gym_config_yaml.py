"""The text of a resolved NeMo Gym configuration, read within bounds; no error repeats any of it.

Such a text holds API keys in clear, and one that is written wrongly has them where a key of a mapping is expected. An
error therefore names the line alone and quotes nothing that stands there, no key, anchor or tag either; the errors of
the YAML library, which quote and keep the text, are not handed on.

Nothing is built from a tag, an alias is counted with all that it stands for, and a key that stands twice is refused:
one of the two would be ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

import yaml

from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import escaped
from quiesce.participants.gym_config_scalars import Opaque, scalar_value

__all__ = [
    "ALIASES_MAX",
    "DEPTH_MAX",
    "NODES_MAX",
    "TEXT_BYTES_MAX",
    "Document",
    "Node",
    "key_path",
    "parse_document",
    "text_in_json",
]

TEXT_BYTES_MAX: Final = 4 << 20
NODES_MAX: Final = 100_000
"""Keys and values, each alias counted with all that it stands for."""
DEPTH_MAX: Final = 64
ALIASES_MAX: Final = 256

MASK: Final = "****"
MASKED_WORDS: Final = ("token", "key")
"""Gym's printouts show the mask in place of every value whose key holds one of these words."""
_MASKED: Final = (
    "holds '****' where Gym's printouts hide a value: a saved printout is no configuration; save what the head server "
    "serves, or name the head server (gym_head)"
)

PATH_KEYS_MAX: Final = 12
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


Node: TypeAlias = "Mapping[str, Node] | Sequence[Node] | str | int | bool | Opaque | None"
Document: TypeAlias = Mapping[str, Node]


def text_in_json(text: str) -> str | None:
    """The text inside, where all of ``text`` is one JSON string, as the head server serves it; else None."""
    if not text.lstrip().startswith('"'):
        return None
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def parse_document(text: str, *, source: str) -> Document:
    """The mapping that ``text`` holds; interpolations stay as they are written.

    Args:
        text: YAML, or one JSON string that holds YAML.
        source: what errors call it.

    Raises:
        ConfigurationError: over a limit, no YAML, no single mapping, or a key that stands twice.
    """
    inner = text_in_json(text)
    document, problem = _parsed(text if inner is None else inner)
    # raised here, where no error of the YAML library is being dealt with: those keep the whole text
    if problem:
        raise ConfigurationError(f"{source}: {problem}")
    return document


def key_path(keys: Iterable[str]) -> str:
    """Keys as a path for a sentence, at most 12 of them: ``policy_model.responses_api_models.vllm_model``."""
    shown = [key if _PLAIN_KEY.fullmatch(key) else escaped(key) for key in keys]
    return ".".join([*shown[:PATH_KEYS_MAX], *(["..."] if len(shown) > PATH_KEYS_MAX else [])])


def _parsed(text: str) -> tuple[Document, str]:
    """The document and an empty text, or an empty document and what is wrong."""
    problem = _unreadable(text)
    if problem:
        return {}, problem
    builder = _Builder()
    try:
        with closing(_events(text)) as events:
            for event in events:
                builder.take(event)
    except _Refused as refusal:
        return {}, str(refusal)
    except yaml.MarkedYAMLError as error:
        return {}, _masked_line(text) or _malformed(error)
    except (yaml.YAMLError, ValueError):
        return {}, "is not valid YAML: it holds a character that YAML does not allow"
    if not isinstance(builder.root, dict):
        return {}, "holds no mapping of server names and settings; is it a resolved configuration of NeMo Gym?"
    return builder.root, ""


def _events(text: str) -> Generator[yaml.Event, None, None]:
    yield from yaml.parse(text, Loader=_LOADER)


def _malformed(error: yaml.MarkedYAMLError) -> str:
    line = f" at line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
    return f"is not valid YAML{line} (the line is not repeated, since such a text holds keys)"


def _masked_line(text: str) -> str:
    """The refusal of a printout whose mask is not quoted, so that it is no YAML; else an empty text."""
    for number, line in enumerate(text.splitlines(), start=1):
        key, _, value = line.partition(":")
        if _is_masked(key, value.strip()):
            return f"line {number}: {_MASKED}"
    return ""


def _is_masked(key: str, value: Node) -> bool:
    return value == MASK and any(word in key.lower() for word in MASKED_WORDS)


def _unreadable(text: str) -> str:
    if len(text) > TEXT_BYTES_MAX:
        return f"is larger than {TEXT_BYTES_MAX >> 20} MiB; is it the right one?"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "holds half a character (a lone surrogate)"
    return "" if text.strip() else "is empty"


class _Refused(Exception):
    """The text may not be used; the message repeats no value of it."""


@dataclass(slots=True)
class _Open:
    """A collection that is being read."""

    node: dict[str, Node] | list[Node]
    line: int
    anchor: str | None
    counted_before: int
    key: str | None = None
    height: int = 1


@dataclass(frozen=True, slots=True)
class _Anchored:
    """A finished node that an alias may name: how many nodes it has, how deep it is."""

    node: Node
    count: int
    height: int


class _Builder:
    """Builds the tree from the parser's events, on a stack of its own: no depth of nesting can exhaust Python's."""

    def __init__(self) -> None:
        self.root: Node = None
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._count = 0
        self._aliases = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """The next event.

        Raises:
            _Refused: a limit is exceeded, or the text says what a configuration cannot say.
        """
        match event:
            case yaml.AliasEvent():
                self._take_alias(event)
            case yaml.ScalarEvent():
                self._take_scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _Refused(f"line {_line(event)}: a second document begins; only one can be used")
            case _:
                pass

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        self._add_to_count(1)
        frame = self._open[-1] if self._open else None
        if frame is not None and isinstance(frame.node, dict) and frame.key is None:
            self._take_key(frame, event)
            return
        node: Node = scalar_value(event)
        if frame is not None and _is_masked(frame.key or "", node):
            raise _Refused(f"line {_line(event)}: {_MASKED}")
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(node, 1, 0)
        self._place(node, 0)

    def _take_key(self, frame: _Open, event: yaml.ScalarEvent) -> None:
        key: str = event.value
        if key == "<<" and event.implicit[0]:
            raise _Refused(f"line {_line(event)}: '<<' merges mappings; a resolved configuration has none")
        if key in frame.node:
            raise _Refused(f"line {_line(event)}: its key stands twice in one mapping (it is not repeated); remove one")
        frame.key = key

    def _take_alias(self, event: yaml.AliasEvent) -> None:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            raise _Refused(f"line {_line(event)}: an alias names nothing that stands before it, or what it is part of")
        self._aliases += 1
        if self._aliases > ALIASES_MAX:
            raise _Refused(f"line {_line(event)}: has more than {ALIASES_MAX} aliases; write the values out")
        self._refuse_no_key(event)
        self._add_to_count(anchored.count)
        self._check_depth(anchored.height, event)
        self._place(anchored.node, anchored.height)

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._refuse_no_key(event)
        self._check_depth(1, event)
        if event.anchor:
            self._anchors[event.anchor] = None
        node: dict[str, Node] | list[Node] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(node, _line(event), event.anchor, self._count))
        self._add_to_count(1)

    def _end(self) -> None:
        frame = self._open.pop()
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchored(frame.node, self._count - frame.counted_before, frame.height)
        self._place(frame.node, frame.height)

    def _place(self, node: Node, height: int) -> None:
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.node, list):
            frame.node.append(node)
        elif frame.key is not None:
            frame.node[frame.key] = node
            frame.key = None

    def _refuse_no_key(self, event: yaml.Event) -> None:
        if self._open and isinstance(self._open[-1].node, dict) and self._open[-1].key is None:
            raise _Refused(f"line {_line(event)}: a key is no text, number or truth value")

    def _check_depth(self, height: int, event: yaml.Event) -> None:
        if len(self._open) + height > DEPTH_MAX:
            raise _Refused(f"line {_line(event)}: is nested more than {DEPTH_MAX} deep")

    def _add_to_count(self, count: int) -> None:
        self._count += count
        if self._count > NODES_MAX:
            raise _Refused(f"has more than {NODES_MAX} keys and values, each alias counted with what it stands for")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0
