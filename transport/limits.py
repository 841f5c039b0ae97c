"""Every limit of the transports in one place, and the accumulator that enforces the one on reply bodies."""

from __future__ import annotations

import mmap
from typing import Final

__all__ = [
    "CONNECT_TIMEOUT_S",
    "KEEPALIVE_S",
    "LOCATION_LENGTH_MAX",
    "REPLY_BODY_CAP",
    "REQUEST_BODY_MAX",
    "REQUEST_SLICE_SIZE",
    "CappedBody",
    "OverCap",
]

REPLY_BODY_CAP: Final = 16 * 2**20
"""Bytes of a reply body that are read when the request names no other cap."""

REQUEST_BODY_MAX: Final = 64 * 2**20
"""Bytes that a request body may have."""

REQUEST_SLICE_SIZE: Final = 256 * 2**10
"""Bytes of a large request body that are written at once, so that one call does not hold up the loop."""

CONNECT_TIMEOUT_S: Final = 10.0
"""Seconds for one attempt to connect, TLS handshake included; never more than the call has left."""

KEEPALIVE_S: Final = 1.5
"""Seconds that an idle connection is kept: less than uvicorn's 5 and gunicorn's 2.

Were it longer, a POST could meet a connection that its server is just closing, and nobody could say whether it
was applied.
"""

LOCATION_LENGTH_MAX: Final = 200
"""Characters of a redirect's target that are handed on."""


_SEGMENT_SIZE: Final = 2**20


class OverCap(Exception):
    """A body has more bytes than it may have; the rest was not read. Never leaves this package."""


class CappedBody:
    """Collects a reply body chunk by chunk and refuses the chunk that would exceed the cap.

    The usual reply is one chunk and is never copied. A longer one lies in anonymous mappings: unlike memory of the
    allocator, they go back to the system at once, so that a huge reply leaves the process as small as it was.
    """

    __slots__ = ("_cap", "_first", "_segments", "size")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._first = b""
        self._segments: list[mmap.mmap] = []
        self.size = 0

    def expect(self, declared: str) -> None:
        """Look at a ``content-length`` before anything is read; one that is no number says nothing.

        Raises:
            OverCap: the body will not fit.
        """
        if declared.isdecimal() and int(declared) > self._cap:
            raise OverCap

    def add(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            OverCap: it does not fit. What was collected is dropped.
        """
        self.size += len(chunk)
        if self.size > self._cap:
            self._drop()
            raise OverCap
        if not self._first and not self._segments:
            self._first = bytes(chunk)
            return
        if not self._segments:
            self._write(self._first)
            self._first = b""
        self._write(chunk)

    def complete(self) -> bytes:
        """Everything that was added. Nothing can be added afterwards."""
        if not self._segments:
            return self._first
        body = b"".join(segment[: segment.tell()] for segment in self._segments)
        self._drop()
        return body

    def _write(self, chunk: bytes) -> None:
        left = memoryview(chunk)
        while left:
            if not self._segments or self._segments[-1].tell() == _SEGMENT_SIZE:
                self._segments.append(mmap.mmap(-1, _SEGMENT_SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            segment = self._segments[-1]
            written = segment.write(left[: _SEGMENT_SIZE - segment.tell()])
            left = left[written:]

    def _drop(self) -> None:
        self._first = b""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
