"""The protocol: rows and tables, the engines that step them, the transaction core, the trace record, the explorer."""

from __future__ import annotations

__all__: list[str] = []
