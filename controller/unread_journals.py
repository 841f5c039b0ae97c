"""What has the name of a journal and says of nothing what it was about: whether somebody is held on its account.

A crash may leave a journal without a whole line, a storage may lose or spoil one, and people put things where they do
not belong. None of it says whom to call. But the participants say which id holds them: everybody of the configuration
is asked, nobody is touched, and the answer is told with what to do. ``quiesce abort ID`` reopens whoever is held, and
then moves the thing aside, under a name that says when; so does a recovery with what never began, if everybody
answers and nobody is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from quiesce.controller.discovery import Answered, ask_everybody
from quiesce.controller.epoch import Tenure
from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileSystem, storage_errors
from quiesce.controller.journal import DAMAGED_SUFFIX
from quiesce.controller.opening import Opening
from quiesce.controller.recovery import Unread
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.transport.logs import log_named

__all__ = ["LookedAfter", "look_after", "move_aside", "who_answers"]

_log: Final = log_named("quiesce.controller")


@dataclass(frozen=True, slots=True)
class LookedAfter:
    """What has the name of a journal, and who is held on its account.

    Attributes:
        unread: what stands there.
        held: who says that the id of its name holds it.
        silent: who does not say anything, with the reason; it may be held.
        moved_to: where it was moved, since it never began and nobody is held.
        problem: why it could not be moved; empty for nothing.
    """

    unread: Unread
    held: tuple[ParticipantKey, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    moved_to: Path | None = None
    problem: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether everybody of the configuration says that the id does not hold it."""
        return not self.held and not self.silent

    @property
    def sentence(self) -> str:
        """What it is, and what to do."""
        abort = f"`quiesce abort {self.unread.wire_id}`"
        if self.moved_to is not None:
            return f"{self.unread.sentence}; nobody is held by that id, and it was moved to {self.moved_to.name}"
        if self.held:
            then = f"that id holds {_named(self.held)}: {abort} reopens them and moves the file aside"
        elif self.silent:
            then = (
                f"whether that id holds {', '.join(self.silent)} is not known, since they do not answer: try "
                f"{abort} once they do, or take out of the configuration whoever is gone for good"
            )
        else:
            then = f"nobody of the configuration is held by that id: {abort} moves the file aside"
        return f"{self.unread.sentence}; {then}{f' ({self.problem})' if self.problem else ''}"

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "path": str(self.unread.path),
            "wire_id": self.unread.wire_id,
            "held": [str(key) for key in self.held],
            "silent": dict(self.silent),
            "moved_to": str(self.moved_to) if self.moved_to is not None else None,
            "settled": self.is_settled,
            "problem": self.sentence,
        }


async def who_answers(opening: Opening) -> Answered:
    """Ask everybody of the configuration which id holds it. Only reads."""
    return await ask_everybody(opening.config, opening.open_transport(), opening.clock)


async def look_after(unread: Sequence[Unread], opening: Opening) -> tuple[LookedAfter, ...]:
    """Ask whether somebody is held on account of any of these, and move aside what never began and holds nobody.

    Raises:
        Superseded: another controller has the root.
    """
    if not unread:
        return ()
    answered = await who_answers(opening)
    looked = tuple([await _looked_after(one, answered, opening) for one in unread])
    for one in looked:
        (_log.info if one.moved_to is not None else _log.error)("journal_unread", problem=one.sentence)
    return looked


async def _looked_after(unread: Unread, answered: Answered, opening: Opening) -> LookedAfter:
    held = answered.holding.get(unread.wire_id, ())
    if held or answered.silent or not unread.never_began:
        return LookedAfter(unread, held, answered.silent)
    try:
        now_ts = opening.clock.now_ts()
        moved_to = await asyncio.to_thread(move_aside, opening.files, unread.path, now_ts, opening.tenure)
    except StorageFailed as error:
        return LookedAfter(unread, problem=str(error))
    return LookedAfter(unread, moved_to=moved_to)


def move_aside(files: FileSystem, path: Path, now_ts: float, tenure: Tenure | None) -> Path:
    """Rename what is no journal to a name that says so and when; where it stands now.

    Raises:
        StorageFailed: it still stands.
        Superseded: another controller has the root.
    """
    if tenure is not None:
        tenure.check()
    with storage_errors("move aside", path):
        taken = {name.casefold() for name in files.names(path.parent)}
        at = datetime.fromtimestamp(now_ts, UTC).strftime("%Y%m%dT%H%M%SZ")
        names = (f"{path.name}.{at}{f'-{number}' if number else ''}{DAMAGED_SUFFIX}" for number in count())
        target = path.with_name(next(name for name in names if name.casefold() not in taken))
        files.rename(path, target)
        files.sync_directory(path.parent)
    return target


def _named(keys: Sequence[ParticipantKey]) -> str:
    return ", ".join(map(str, sorted(keys)))
