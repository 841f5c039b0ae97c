"""What ``quiesce recover --dry-run`` reads: journals that have not ended, and whether their controller is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import typer

from quiesce.cli.left_at_once import advice_about
from quiesce.cli.left_open import end, knowing
from quiesce.controller.clock import SystemClock
from quiesce.controller.epoch import Holder, live_tenure
from quiesce.controller.files import LocalFiles
from quiesce.controller.recovery import Account, Journals, read_journals
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.standing import half_restored
from quiesce.fsm.errors import QuiesceError

__all__ = ["Look", "looked_at", "show_journals"]


@dataclass(frozen=True, slots=True)
class Look:
    """What the journals under a root say, and who holds it, if anybody alive does, with the number of its tenure.

    ``gone`` says of each restore whose snapshot cannot be restored why that is so, by wire id.
    """

    journals: Journals
    holder: tuple[int, Holder] | None
    gone: Mapping[str, str] = field(default_factory=dict)

    def is_live(self, account: Account) -> bool:
        """Whether the controller that went on with a transaction last is alive."""
        return self.holder is not None and account.epoch == self.holder[0]


async def looked_at(root: Path) -> Look:
    """Read the journals, and watch whether somebody alive holds the root; that takes 3 s where nobody gave it back.

    Raises:
        NotKnown: the root cannot be read.
    """
    files, layout = LocalFiles(), RootLayout(root)
    with knowing():
        journals = await asyncio.to_thread(read_journals, files, layout)
        is_any = bool(journals.unfinished or journals.unread)
        holder = await live_tenure(files, layout, SystemClock()) if is_any else None
        return Look(journals, holder, await asyncio.to_thread(_gone, SnapshotStore(root), journals))


def _gone(store: SnapshotStore, journals: Journals) -> dict[str, str]:
    gone: dict[str, str] = {}
    for account in journals.unfinished:
        if account.opened is not None and account.opened.source_wire_id is not None:
            try:
                store.resolve(account.opened.source_wire_id)
            except QuiesceError as error:
                gone[account.wire_id] = str(error)
    return gone


def show_journals(look: Look, *, as_json: bool) -> NoReturn:
    """Tell what a recovery would find, and end the command: with 3 while somebody may be held."""
    journals = look.journals
    for line in () if as_json else _lines(look):
        typer.echo(line)
    held = [account for account in journals.unfinished if account.touched]
    left_open = [f"{', '.join(map(str, sorted(account.touched)))} may be held by {account.wire_id}" for account in held]
    left_open += [str(half_restored(account)) for account in journals.unfinished if account.half_restored]
    left_open += [
        f"{unread.sentence}; whether that id holds somebody, `quiesce recover` asks the participants"
        for unread in journals.unread
    ]
    result = {
        "dry_run": True,
        "transactions": [{**account.to_json(), "live": look.is_live(account)} for account in journals.unfinished],
        "unread": [{"path": str(one.path), "wire_id": one.wire_id, "problem": one.sentence} for one in journals.unread],
    }
    end(result, left_open=left_open, as_json=as_json)


def _lines(look: Look) -> Iterator[str]:
    for account in look.journals.unfinished:
        who = ", ".join(map(str, sorted(account.touched))) or "nobody"
        kind = account.kind or "transaction"
        if account.half_restored and not account.touched:
            to_restart = ", ".join(map(str, sorted(account.half_restored)))
            yield f"{kind} {account.wire_id} was aborted; to be restarted, unless they were: {to_restart}"
            continue
        yield f"{kind} {account.wire_id} stands at {account.stood}; may be paused: {who}; {_whose(look, account)}"
        if account.damage:
            yield f"  its journal is damaged: {account.damage}"
    if not (look.journals.unfinished or look.journals.unread):
        yield "nothing was left unfinished"


def _whose(look: Look, account: Account) -> str:
    if look.holder is None:
        return f"its controller is gone, and {_what_ends(look, account)}"
    who = f"{look.holder[1].host}, process {look.holder[1].pid}"
    if look.is_live(account):
        return f"its controller is alive ({who}) and goes on with it; `quiesce abort` asks it to end"
    return f"another controller is alive on the root ({who}) and takes it up"


def _what_ends(look: Look, account: Account) -> str:
    if not account.is_restore or account.released or account.aborted or not account.touched:
        return "`quiesce recover` finishes it"
    if (problem := look.gone.get(account.wire_id)) is not None:
        return f"it cannot be retried, only given up (`quiesce abort {account.wire_id}`): {problem}"
    return advice_about(account)
