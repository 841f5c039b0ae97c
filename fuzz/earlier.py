"""An id that was used up before a run began: from an earlier run, or, where there was none, used up right now."""

from __future__ import annotations

from typing import Final

from quiesce.fuzz.own_calls import post
from quiesce.fuzz.place import Place
from quiesce.fuzz.seen import OK
from quiesce.fuzz.steps import Operation

__all__ = ["earlier_id"]

OTHERS: Final = 16
"""How many ids are used up behind one that is to be an earlier one, where no run was before."""


async def earlier_id(place: Place) -> str:
    """An id that the participant said to have finished; empty where it finishes none.

    Raises:
        Unreachable: it does not answer.
    """
    if not place.used_up:
        for _ in range(OTHERS + 1):
            checkpoint_id = place.own_id()
            if (await post(place, Operation.RESUME, checkpoint_id)).status == OK:
                place.used_up.append(checkpoint_id)
    if not place.used_up:
        return ""
    place.used_up.rotate(-1)
    return place.used_up[-1]
