"""What every run on one participant shares."""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from quiesce.controller.clock import Clock
from quiesce.fuzz.line import Line
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.steps import Operation
from quiesce.fuzz.subject import Subject
from quiesce.fuzz.traffic import Traffic, no_traffic
from quiesce.fuzz.wording import OWN_NAMES, Bindings, Durations

__all__ = ["Place"]


@dataclass(slots=True)
class Place:
    """A participant, the line to it, and the conditions under which it is tested.

    Attributes:
        subject, line, clock, traffic, durations, profile: as their types say.
        nonce: makes the names of this campaign its own.
        root: where exports may be written, None for nowhere.
        root_is_shared: whether the participant surely sees ``root`` as well.
        may_restore: whether restores may be sent.
        alone: whether nobody else uses the participant.
        sends_any_header: whether the transport can carry a header that is not ASCII.
        owes_restore: what is known of whether it owes a restore.
        has_restored: whether a restore was sent to it.
        silent: how often calls of an operation were not answered in time.
        used_up: ids that were used up in earlier runs, those first that were not asked about for longest.
    """

    subject: Subject
    line: Line
    clock: Clock
    nonce: str
    traffic: Traffic = no_traffic
    durations: Durations = field(default_factory=Durations)
    profile: Profile = Profile.STRICT
    root: Path | None = None
    root_is_shared: bool = True
    may_restore: bool = False
    alone: bool = True
    sends_any_header: bool = False
    owes_restore: tuple[bool, ...] = (False,)
    has_restored: bool = False
    silent: dict[Operation, int] = field(default_factory=dict)
    used_up: deque[str] = field(default_factory=deque)
    _runs: int = 0
    _own_ids: int = 0

    def new_bindings(self) -> Bindings:
        """Names for one more run."""
        self._runs += 1
        return Bindings(f"{OWN_NAMES}{self.nonce}-{self._runs}", self.root)

    def is_ours(self, checkpoint_id: str) -> bool:
        """Whether an id can be one of this campaign."""
        return checkpoint_id.startswith(f"{OWN_NAMES}{self.nonce}-")

    def own_id(self) -> str:
        """A fresh id for what the fuzzer does for itself."""
        self._own_ids += 1
        return f"{OWN_NAMES}{self.nonce}-own-{self._own_ids}"

    def clear_away(self) -> str:
        """Remove everything that was exported. What is left and why; empty when nothing is."""
        if self.root is None:
            return ""
        try:
            for folder in self.root.glob(f"{OWN_NAMES}{self.nonce}-*"):
                shutil.rmtree(folder)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            return f"folders {OWN_NAMES}{self.nonce}-... are left in {self.root}: {reason}; remove them by hand"
        return ""
