"""How a control call travels: the port, HTTP, in-process, and a faulty one for tests."""

from __future__ import annotations

__all__: list[str] = []
