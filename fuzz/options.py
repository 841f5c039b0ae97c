"""How a participant is tested: by which measure, with what, and within which bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.controller.clock import Clock
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.traffic import Traffic, no_traffic
from quiesce.fuzz.wording import ANSWER_S, Durations

__all__ = ["CALLS_MAX", "IDS_MAX", "RATE", "Options"]

CALLS_MAX: Final = 4000
IDS_MAX: Final = 1500
RATE: Final = 200.0


@dataclass(frozen=True, slots=True)
class Options:
    """How a participant is tested.

    Attributes:
        profile: by which measure.
        seed: decides the random sequences.
        nonce: makes the ids of this campaign its own; two campaigns on one server must not share it.
        traffic: drives the data plane.
        root: a directory that this process and the participant both see, for exports; None for no commits.
        root_is_shared: whether the participant surely sees it; otherwise its commits may fail.
        allow_restore: restores may be sent. They fence attempts and install state.
        allow_live_work: it is tested although it has live work.
        stop_after: how many rules of severity error may be found broken before it stops; None: it goes on.
        calls_max, ids_max: bounds; shrinking and leaving open may exceed the first by a little.
        rate: calls a second at most, None for no bound.
        durations: how long things take; None: measured.
        grace_s: how long after its deadline an incomplete prepare may be held at most; None: not waited for.
        answer_s: how long a call that does not wait may take to be answered, where ``durations`` do not say it.
        mistakable: another clock that the application may go by in error; None: nobody looks.
        sends_any_header: whether the transport can carry a header that is not ASCII; ``HttpTransport`` cannot.
    """

    nonce: str
    profile: Profile = Profile.STRICT
    seed: int = 0
    traffic: Traffic = no_traffic
    root: Path | None = None
    root_is_shared: bool = True
    allow_restore: bool = False
    allow_live_work: bool = False
    stop_after: int | None = None
    calls_max: int = CALLS_MAX
    ids_max: int = IDS_MAX
    rate: float | None = RATE
    durations: Durations | None = None
    grace_s: float | None = None
    answer_s: float = ANSWER_S
    mistakable: Clock | None = None
    sends_any_header: bool = False
