"""The quiesce command: thin, one module a command."""

from __future__ import annotations

__all__: list[str] = []
