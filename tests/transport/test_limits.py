"""The accumulator of reply bodies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.transport.limits import CappedBody, OverCap

CHUNKS = st.lists(st.binary(max_size=50) | st.integers(0, 2_500_000).map(lambda size: b"z" * size), max_size=6)


@given(chunks=CHUNKS, cap=st.integers(1, 5_000_000))
def test_a_body_is_its_chunks_or_too_large(chunks: list[bytes], cap: int) -> None:
    """Up to the cap the body is exactly what was added; the first chunk beyond it is refused."""
    body, whole = CappedBody(cap), b""
    for chunk in chunks:
        whole += chunk
        if len(whole) > cap:
            with pytest.raises(OverCap):
                body.add(chunk)
            assert body.complete() == b""
            return
        body.add(chunk)
    assert body.size == len(whole)
    assert body.complete() == whole


@pytest.mark.parametrize(
    ("declared", "refused"), [("", False), ("10", False), ("11", True), ("99999999999999999999", True), ("ten", False)]
)
def test_a_declared_length_is_believed_when_it_is_too_large(declared: str, refused: bool) -> None:  # noqa: FBT001 - a table
    """A length beyond the cap needs no reading; one that is no number is left to the reading."""
    body = CappedBody(10)
    if refused:
        with pytest.raises(OverCap):
            body.expect(declared)
    else:
        body.expect(declared)
