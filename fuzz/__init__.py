"""Hypothesis state machines over the tables, and conformance fuzzing of live participants."""

from __future__ import annotations

__all__: list[str] = []
