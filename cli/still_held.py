"""What exit code 1 claims, proven: that everybody accepts work, by the journals under the root that a command acts on.

A command that fails before it takes its root, or is refused there, has not looked after what another one left. Here it
is looked at, once for every such command; only the journals are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quiesce.cli.failures import exit_code_of
from quiesce.cli.journals import Look, looked_at
from quiesce.cli.left_at_once import sentences_about
from quiesce.cli.left_open import NotKnown, Unsettled
from quiesce.cli.output import ExitCode
from quiesce.controller.recovery import Account
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.transaction import TransactionState

__all__ = ["naming_held"]

_WAITS: Final = frozenset(
    {TransactionState.RESTORE_FAILED, TransactionState.IN_DOUBT_PUBLISHED, TransactionState.IN_DOUBT_UNPUBLISHED}
)
"""Where a transaction of a live controller may stand for ever; every other one goes on by itself."""


def naming_held(
    error: QuiesceError | ExceptionGroup[Exception], root: Path
) -> QuiesceError | ExceptionGroup[Exception]:
    """What ends a command over ``root``: ``error``, with whoever may be held besides, where it says of nobody so.

    What a live controller is at work on ends by itself, and is not named.
    """
    if exit_code_of(error) is not ExitCode.FAILED:
        return error
    try:
        left_open = [*_held(asyncio.run(looked_at(root)))]
    except NotKnown as unknown:
        left_open = [str(unknown)]
    return Unsettled(error, left_open) if left_open else error


def _held(look: Look) -> Iterator[str]:
    for account in look.journals.unfinished:
        if not _goes_on(look, account):
            yield from sentences_about(account)
    for unread in look.journals.unread:
        if not unread.never_began:
            yield f"{unread.sentence}; `quiesce recover` asks whether that id holds somebody"


def _goes_on(look: Look, account: Account) -> bool:
    return look.is_live(account) and account.stood not in _WAITS
