"""The root of Quiesce's errors and those that a table can raise.

QuiesceError
├── DefinitionError       a table is wrong; raised when it is built
├── IllegalTransition     no row for this event in this state
├── GuardRefused          rows exist, but no row's guards hold
└── ...                   wire errors: quiesce.participants.errors; running errors: quiesce.controller.errors

The two middle ones are ours: we asked for what the table forbids. What a participant did wrong has other types.
"""

from __future__ import annotations

__all__ = ["DefinitionError", "GuardRefused", "IllegalTransition", "QuiesceError"]


class QuiesceError(Exception):
    """Root of every error that Quiesce raises. Its text says what happened, to whom, and what to do."""


class DefinitionError(QuiesceError):
    """A table contradicts itself or names what its vocabulary lacks. Nothing was built."""


class IllegalTransition(QuiesceError):
    """The table has no row for this event in this state. The state is unchanged.

    Attributes:
        machine: name of the table.
        state: the state that stays.
        event: the event that was refused.
    """

    def __init__(self, machine: str, state: str, event: str, reason: str) -> None:
        super().__init__(reason)
        self.machine = machine
        self.state = state
        self.event = event


class GuardRefused(IllegalTransition):
    """Rows exist for this event in this state, but none of them has all its guards. The state is unchanged.

    Attributes:
        failed: names of the guards whose verdict kept every row from being taken.
    """

    def __init__(self, machine: str, state: str, event: str, reason: str, failed: tuple[str, ...]) -> None:
        super().__init__(machine, state, event, reason)
        self.failed = failed
