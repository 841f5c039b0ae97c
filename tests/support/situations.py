"""A fleet in every state in which a transaction can rest or wait: where the tests of what is possible there begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from support.scripted_fleet import SILENT, Fleet, agent, policy, resources

from quiesce.fsm import messages as m
from quiesce.fsm.engine import Engine
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Outcome, Verb

__all__ = ["SITUATIONS", "TRANSIENT", "cut", "restore"]

_S = TransactionState

TRANSIENT: Final = frozenset({TransactionState.PUBLISHED})
"""States that are passed within one step and never seen between two."""


def cut(engine: Engine | None = None) -> Fleet:
    """A cut over one policy, one agent and one resource server that has not begun."""
    return Fleet(policy(), agent(), resources(), engine=engine)


def restore(engine: Engine | None = None) -> Fleet:
    """A restore over the same."""
    return Fleet(policy(), agent(), resources(), engine=engine, is_restore=True)


def _preflight(engine: Engine | None) -> Fleet:
    return cut(engine).begin()


def _draining(engine: Engine | None) -> Fleet:
    return cut(engine).script("policy", Verb.CLOSE, SILENT).begin().run()


def _committing(engine: Engine | None) -> Fleet:
    return cut(engine).to(_S.PAUSED).ask(m.CommitRequested())


def _publishing(engine: Engine | None) -> Fleet:
    return cut(engine).to(_S.COMMITTED).ask(m.PublishRequested())


def _publish_unknown(engine: Engine | None) -> Fleet:
    return _publishing(engine).ask(m.Publication.UNKNOWN)


def _resuming(engine: Engine | None) -> Fleet:
    return _publishing(engine).ask(m.Publication.PUBLISHED)


def _aborting(engine: Engine | None) -> Fleet:
    return cut(engine).to(_S.PAUSED).ask(m.AbortRequested())


def _restoring(engine: Engine | None) -> Fleet:
    return restore(engine).script("policy", Verb.IMPORT, SILENT).begin().run()


def _restore_failed(engine: Engine | None) -> Fleet:
    return restore(engine).script("agent", Verb.IMPORT, Outcome.REFUSED).begin().run()


SITUATIONS: Final[Mapping[TransactionState, Callable[[Engine | None], Fleet]]] = {
    _S.IDLE: cut,
    _S.PREFLIGHT: _preflight,
    _S.DRAINING: _draining,
    _S.PAUSED: lambda engine: cut(engine).to(_S.PAUSED),
    _S.COMMITTING: _committing,
    _S.COMMITTED: lambda engine: cut(engine).to(_S.COMMITTED),
    _S.PUBLISHING: _publishing,
    _S.PUBLISH_UNKNOWN: _publish_unknown,
    _S.RESTORING: _restoring,
    _S.RESTORED: lambda engine: restore(engine).to(_S.RESTORED),
    _S.RESTORE_FAILED: _restore_failed,
    _S.RESUMING: _resuming,
    _S.RESUMED: lambda engine: _resuming(engine).run(),
    _S.ABORTING: _aborting,
    _S.ABORTED: lambda engine: _aborting(engine).run(),
    _S.IN_DOUBT_PUBLISHED: lambda engine: _resuming(engine).fire(m.Timer.RELEASE),
    _S.IN_DOUBT_UNPUBLISHED: lambda engine: _aborting(engine).fire(m.Timer.RELEASE),
}
"""State to a way into it, on any engine."""
