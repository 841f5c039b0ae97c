"""Where the bearer token of the control routes is found; the same rule on both sides (wire-protocol 3.3)."""

from __future__ import annotations

from typing import Final

__all__ = ["TOKEN_VARIABLES"]

TOKEN_VARIABLES: Final = ("NEMO_GYM_CHECKPOINT_CONTROL_TOKEN", "NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN")
"""Environment variables that hold the token, first one first; an empty one counts as unset."""
