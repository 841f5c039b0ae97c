"""What a command leaves that is ended at once, by a second Ctrl-C: who is not settled by the journals, and what to run.

Whoever may be closed is written down before the first call to it leaves, so the journals name everybody; they may also
name somebody who is open already, since what was not yet synced is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quiesce.cli.output import ExitCode
from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import LocalFiles
from quiesce.controller.recovery import Account, read_journals
from quiesce.controller.root_layout import RootLayout

__all__ = ["LeftAtOnce", "advice_about", "left_at_once", "sentences_about"]


@dataclass(frozen=True, slots=True)
class LeftAtOnce:
    """How things are after a command was left without its end.

    Attributes:
        text: that in words, with what is to be run.
        exit_code: 3 where somebody may be closed, or that is not known.
        unsettled: each transaction that is not settled: its id and kind, whom it may hold, who must be restarted.
    """

    text: str
    exit_code: ExitCode = ExitCode.IN_DOUBT
    unsettled: tuple[dict[str, object], ...] = field(default=())


def left_at_once(root: Path) -> LeftAtOnce:
    """What the journals under a root say now, just after a command over it was left."""
    try:
        journals = read_journals(LocalFiles(), RootLayout(root))
    except StorageFailed as error:
        return LeftAtOnce(f"left at once; who is closed is not known, `quiesce recover` finds it out: {error}")
    unsettled = [one for one in journals.unfinished if one.touched or one.half_restored]
    lines = [sentence for one in unsettled for sentence in sentences_about(one)]
    lines += [f"{one.sentence}; `quiesce recover` asks whether that id holds somebody" for one in journals.unread]
    if not lines:
        text = "left at once; by the journals nobody is held, so everybody accepts work"
        return LeftAtOnce(text, ExitCode.FAILED)
    found = tuple(
        {key: one.to_json()[key] for key in ("wire_id", "kind", "touched", "to_restart")} for one in unsettled
    )
    return LeftAtOnce("\n".join(["left at once, and not settled:", *(f"  {line}" for line in lines)]), unsettled=found)


def sentences_about(account: Account) -> Iterator[str]:
    """Whom a transaction may hold, or who must be restarted on its account, and what to do about it."""
    name = f"{account.kind or 'transaction'} {account.wire_id}"
    if account.touched:
        who = ", ".join(map(str, sorted(account.touched)))
        yield f"{name} stood at {account.stood} and may hold {who} closed: {advice_about(account)}"
    if account.half_restored:
        who = ", ".join(map(str, sorted(account.half_restored)))
        yield f"{name} was aborted, and {who} must be restarted: no cut begins before"


def advice_about(account: Account) -> str:
    """What ends a transaction that may hold somebody: a restore that was being neither released nor aborted waits."""
    if not account.is_restore:
        return "`quiesce recover` reopens them"
    if account.released:
        return "everybody was restored and it was being released; `quiesce recover` finishes that"
    if account.aborted:
        return "it was being aborted; `quiesce recover` finishes that"
    return (
        "it stays closed until it is gone on with (`quiesce recover --retry`) or given up "
        f"(`quiesce abort {account.wire_id}`)"
    )
