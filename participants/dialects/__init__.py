"""Dialects: one for each wire generation. It maps verbs to routes and replies to outcomes."""

from __future__ import annotations

from quiesce.participants.dialects.base import CallSpec, Dialect, Reading, WireCall

__all__ = ["CallSpec", "Dialect", "Reading", "WireCall"]
