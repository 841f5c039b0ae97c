"""Running something without the tracer that measures coverage, where tracing takes longer than the thing itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["untraced"]


@contextmanager
def untraced() -> Iterator[None]:
    """No tracing inside. What is run here must be covered by other tests as well."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
