"""Every state machine of Quiesce, declared. There is no transition anywhere else."""

from __future__ import annotations

__all__: list[str] = []
