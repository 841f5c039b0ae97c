"""What training code embeds: discovery, the runner of a transaction, snapshots."""

from __future__ import annotations

__all__: list[str] = []
