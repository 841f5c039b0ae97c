"""Valid content, spoiled in every way that hypothesis can think of: bytes torn and flipped, JSON with other parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

Json = Any  # JSON has no shape that a type could hold

ODD: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "../escape", "/etc/passwd", "x\n", "\x00", "\ud800", 10**400, -1, 1e308, "a" * 200]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
"""Any JSON value, and some that are known to hurt."""


def places(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a JSON value, the whole first."""
    yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


def replaced(value: Json, path: tuple[str | int, ...], new: Json) -> Json:
    """The value with another one at a place."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {name: replaced(item, rest, new) if name == first else item for name, item in value.items()}
    return [replaced(item, rest, new) if number == first else item for number, item in enumerate(value)]


@st.composite
def spoiled_json(draw: st.DrawFn, value: Json) -> bytes:
    """A JSON value of which some parts were exchanged, as text."""
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(value))))
        value = replaced(value, path, draw(ODD))
    return json.dumps(value).encode("utf-8", errors="surrogatepass")


@st.composite
def spoiled_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Content that was cut, doubled in part, or in which some bytes were exchanged."""
    damaged = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(damaged))))
        kind = draw(st.sampled_from(["cut", "insert", "flip", "double"]))
        if kind == "cut":
            del damaged[at:]
        elif kind == "insert":
            damaged[at:at] = draw(st.binary(max_size=12))
        elif kind == "double":
            damaged[at:at] = damaged[max(0, at - 40) : at]
        elif at < len(damaged):
            damaged[at] ^= draw(st.integers(1, 255))
    return bytes(damaged)


def spoiled(content: bytes) -> st.SearchStrategy[bytes]:
    """Anything that a file or reply of this content may have become."""
    try:
        value = json.loads(content)
    except ValueError:
        return spoiled_bytes(content) | st.binary(max_size=200)
    return spoiled_json(value) | spoiled_bytes(content) | st.binary(max_size=200)


_LISTS: Final = (b"features", b"executions", b"files", b"steps", b"actions")
"""Lists in what our parsers read."""


def heavy(size_bytes: int) -> dict[str, bytes]:
    """Bodies of about a size that cost a careless parser far more than that."""
    half = size_bytes // 2
    wrong = b"[" + b"1," * (half // len(_LISTS)) + b"1]"
    return {
        "deep arrays": b"[" * size_bytes,
        "deep objects": b'{"a":' * (size_bytes // 5),
        "many numbers": b"[" + b"1," * half + b"1]",
        "many names": b"{" + b",".join(b'"%d":1' % number for number in range(size_bytes // 10)) + b"}",
        "one name twice": b"{" + b",".join(b'"%d":1' % number for number in range(size_bytes // 10)) + b',"0":1}',
        "many wrong entries": b'{"kind":"quiesce.fuzz","schema_version":1,'
        + b",".join(b'"%s":%s' % (name, wrong) for name in _LISTS)
        + b"}",
        "one long text": b'{"state":"' + b"a" * size_bytes + b'"}',
        "one long number": b"1" * size_bytes,
        "blanks": b" " * size_bytes,
        "no text at all": b"\x00\xff" * half,
    }
