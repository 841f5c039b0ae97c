"""What an error means to a command: its exit code, its text, and its form in ``--json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from quiesce.cli.asked import AskedInVain
from quiesce.cli.left_open import NotKnown, Unsettled
from quiesce.cli.output import ExitCode
from quiesce.controller.discovery import DiscoveryFailed
from quiesce.controller.errors import (
    HalfRestored,
    InDoubt,
    NothingOwed,
    PublishUncertain,
    RestoreFailed,
    TransactionRunning,
    Unacknowledged,
    UnexpectedFence,
)
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.fuzz.errors import StillClosed
from quiesce.participants.errors import ConfigurationError, ControlRequestError, TopologyError

__all__ = ["asked_json", "described", "exit_code_of", "notes_of", "text_of"]

_UNPROVEN = (HalfRestored, InDoubt, RestoreFailed, PublishUncertain, StillClosed)
_TO_BE_CONFIGURED = frozenset({401, 403, 404})
"""A token that is refused, or routes that a server without token does not have (wire-protocol 3.3)."""


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code of a command that ended with ``error``; of several errors the gravest."""
    if isinstance(error, BaseExceptionGroup):
        in_discovery = isinstance(error, DiscoveryFailed)
        codes = [_code_in_discovery(one) if in_discovery else exit_code_of(one) for one in error.exceptions]
        return next(code for code in (ExitCode.IN_DOUBT, ExitCode.FAILED, ExitCode.USAGE) if code in codes)
    if isinstance(error, _UNPROVEN) or (isinstance(error, UnexpectedFence) and error.is_left_closed):
        return ExitCode.IN_DOUBT
    if isinstance(error, NothingOwed) and error.owed:
        return ExitCode.IN_DOUBT
    if isinstance(error, TransactionRunning):
        return ExitCode.FAILED
    if isinstance(error, ConfigurationError | TopologyError):
        return ExitCode.USAGE
    return error.exit_code if isinstance(error, AskedInVain | NotKnown | Unsettled) else ExitCode.FAILED


def text_of(error: BaseException) -> str:
    """The error for a person; several are numbered."""
    if isinstance(error, Unsettled):
        return text_of(error.error)
    if isinstance(error, DiscoveryFailed):
        return error.message.strip()
    if isinstance(error, BaseExceptionGroup):
        numbered = [f"  {number}. {text_of(one)}" for number, one in enumerate(error.exceptions, start=1)]
        return "\n".join([f"{error.message}:", *numbered])
    return str(error) or type(error).__name__


def notes_of(error: BaseException) -> list[str]:
    """What was noticed on the way, for the error and for those that it consists of."""
    if isinstance(error, Unsettled):
        besides = (f"besides, {sentence}" for sentence in error.left_open)
        return list(dict.fromkeys([*notes_of(error.error), *besides]))
    own = list(getattr(error, "__notes__", ()))
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return list(dict.fromkeys([*own, *(note for one in inner for note in notes_of(one))]))


def described(error: BaseException) -> dict[str, object]:
    """The error as members of a JSON object: its type, and what a program may want to act upon."""
    if isinstance(error, Unsettled):
        return {**described(error.error), "unsettled": list(error.left_open)}
    return _described(error)


def asked_json(asked: Iterable[tuple[ParticipantKey, str]]) -> list[dict[str, str]]:
    """Who was asked, and where."""
    return [{"deployment": key.deployment, "name": key.name, "url": url} for key, url in asked]


def _described(error: BaseException) -> dict[str, object]:
    found: dict[str, object] = {"type": type(error).__name__}
    match error:
        case DiscoveryFailed() | TopologyError():
            found["problems"] = list(error.problems)
            found["asked"] = asked_json(error.asked)
        case BaseExceptionGroup():
            found["errors"] = [{"error": text_of(one), **described(one)} for one in error.exceptions]
        case AskedInVain():
            found["errors"] = [{"type": kind, "error": text} for kind, text in error.answer.errors]
        case HalfRestored():
            found |= {"wire_id": error.wire_id, "to_restart": _keys(error.participants)}
        case InDoubt():
            found |= {"wire_id": error.wire_id, "published": error.published, "owed": _named(error.owed)}
        case UnexpectedFence():
            found |= {"participant": error.participant, "phase": error.phase, "holder": error.holder}
        case RestoreFailed():
            found |= {"wire_id": error.wire_id, "failed": _named(error.failed)}
            found |= {"restored": _keys(error.restored), "untouched": _keys(error.untouched)}
        case Unacknowledged():
            found["unacknowledged"] = [{"agent": str(one.agent), **one.attempt._asdict()} for one in error.results]
        case ControlRequestError():
            found |= {"participant": error.participant, "status": error.status, "error_code": error.error_code}
    return found


def _code_in_discovery(error: BaseException) -> ExitCode:
    if isinstance(error, ControlRequestError) and error.status in _TO_BE_CONFIGURED:
        return ExitCode.USAGE
    return exit_code_of(error)


def _named(reasons: Mapping[ParticipantKey, str]) -> dict[str, str]:
    return {str(key): reason for key, reason in reasons.items()}


def _keys(keys: Sequence[ParticipantKey]) -> list[str]:
    return [str(key) for key in keys]
