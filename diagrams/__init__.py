"""Pictures and tables of the state machines, drawn from the declarations that run."""

from __future__ import annotations

__all__: list[str] = []
