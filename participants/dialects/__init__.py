"""How the abstract verbs of the core become a wire generation's routes and models."""

from __future__ import annotations

__all__: list[str] = []
