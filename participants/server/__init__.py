"""The kit that makes a server a participant: fence, admission gate, ledgers and control routes."""

from __future__ import annotations

__all__: list[str] = []
