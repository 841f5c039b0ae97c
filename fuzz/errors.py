"""What a fuzzing run itself can fail with. What a participant does wrong is a finding, not an error.

QuiesceError (quiesce.fsm.errors)
├── ReplayInvalid      a replay file cannot be used
├── Nonconforming      ``assert_conforms``: the server breaks rules (also an AssertionError)
├── NoCounterpart      the real stack has nothing for an action of a counterexample
├── MissingExtra       the in-process kit needs an extra that is not installed
└── StillClosed        a run was interrupted, and the participant could not be opened again
"""

from __future__ import annotations

from quiesce.fsm.errors import QuiesceError

__all__ = ["MissingExtra", "NoCounterpart", "Nonconforming", "ReplayInvalid", "StillClosed"]


class ReplayInvalid(QuiesceError):
    """A replay file cannot be used: torn, of another shape, of a newer version, or of an unknown kind.

    Attributes:
        source: where it came from.
        reason: what is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class Nonconforming(QuiesceError, AssertionError):
    """A server under test breaks rules of the protocol; the text lists them with their minimal call sequences."""


class NoCounterpart(QuiesceError):
    """The real stack has nothing for an action where it stands; the text says what is missing."""


class MissingExtra(QuiesceError):
    """Something of the server kit was asked for, and what it needs is not installed."""

    def __init__(self, what: str, missing: str) -> None:
        super().__init__(f"{what} needs {missing}: pip install 'quiesce[server]'")


class StillClosed(QuiesceError):
    """A run was interrupted, and it could not be proven that the participant accepts work again."""
