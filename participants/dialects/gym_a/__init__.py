"""Generation A of the wire: role-specific routes and their models (wire-protocol part one)."""

from __future__ import annotations

__all__: list[str] = []
