"""The main job on embedded servers: what ``quiesce demo`` runs."""

from __future__ import annotations

__all__: list[str] = []
