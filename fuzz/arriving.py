"""Arriving at a participant: who it is, whether it may be tested, and how long things take with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from quiesce.fuzz.line import Line
from quiesce.fuzz.options import Options
from quiesce.fuzz.own_clock import check_clock
from quiesce.fuzz.pace import measured, measured_by_work
from quiesce.fuzz.place import Place
from quiesce.fuzz.survey import Found, Survey
from quiesce.fuzz.wording import OWN_NAMES, Durations

__all__ = ["arrive"]

WAIT_FOR_OTHERS_S: Final = 3.0
"""How long a prepare waits at most for the work of others."""


async def arrive(url: str, line: Line, options: Options, *, by_work: bool = True) -> tuple[Found, Place | None]:
    """Find out who answers at ``url``, and make ready to test it; None where it is not to be tested.

    ``by_work``: its pace is measured by work as well, after which it may not be restored any more.
    """
    survey = Survey(
        url,
        line,
        (f"{OWN_NAMES}{options.nonce}-look-{number}" for number in range(1, 1000)),
        profile=options.profile,
        allow_live_work=options.allow_live_work,
        allow_restore=options.allow_restore,
        answer_s=options.answer_s,
    )
    found = await survey.look()
    if found.subject is None:
        return found, None
    place = Place(
        subject=found.subject,
        line=line,
        clock=line.clock,
        nonce=options.nonce,
        traffic=options.traffic,
        durations=options.durations or Durations(grace_s=options.grace_s, answer_s=options.answer_s),
        profile=options.profile,
        root=options.root,
        root_is_shared=options.root_is_shared,
        may_restore=options.allow_restore,
        alone=found.alone,
        sends_any_header=options.sends_any_header,
        owes_restore=found.owes_restore,
    )
    if options.mistakable is not None:
        await check_clock(place, options.mistakable)
    if options.durations is None:
        place.durations = await measured(place)
        if by_work:
            place.durations = await measured_by_work(place)
    if not place.alone:
        place.durations = replace(place.durations, far_s=min(place.durations.far_s, WAIT_FOR_OTHERS_S))
    return found, place
