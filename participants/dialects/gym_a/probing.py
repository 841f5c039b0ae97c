"""Whether the routes of a phase exist, asked before anybody is paused (wire-protocol F23).

A POST of ``{}`` is refused with 422 where the route exists, since validation comes first, and with 404 where it does
not; neither has an effect. A GET without its query is refused in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from quiesce.fsm.vocabulary import Phase, Role, Verb
from quiesce.participants.dialects.base import WireCall
from quiesce.participants.dialects.gym_a.refusals import error_code_and_detail
from quiesce.participants.dialects.gym_a.routes import MODEL_SERVER_ROUTES, ROUTE_OF
from quiesce.participants.errors import ControlRequestError, ProtocolViolation, QuiesceError
from quiesce.participants.excerpts import body_excerpt, printable

__all__ = ["build_probes", "read_probe_reply"]

_VERBS: Final[Mapping[Phase, tuple[Verb, ...]]] = {
    Phase.PREPARE: (Verb.CLOSE, Verb.AWAIT_CUT, Verb.RELEASE),
    Phase.COMMIT: (Verb.EXPORT,),
    Phase.RESTORE: (Verb.IMPORT, Verb.RELEASE),
    Phase.RESUME: (Verb.RELEASE,),
    Phase.ABORT: (Verb.RELEASE,),
    Phase.ROLLBACK: (Verb.RELEASE,),
}
MISSING: Final = frozenset({404, 405, 501})
UNAUTHORIZED: Final = frozenset({401, 403})
INVALID: Final = 422
_ELSEWHERE: Final = frozenset(route.path for route in MODEL_SERVER_ROUTES if route.verb in {Verb.EXPORT, Verb.IMPORT})
"""Routes that another process may serve: the model server beside a coordinator (4.4)."""


def build_probes(role: Role, phases: Sequence[Phase]) -> tuple[WireCall, ...]:
    """One call for each route that the phases need, in the order of the verbs, each once."""
    verbs = dict.fromkeys(verb for phase in phases for verb in _VERBS.get(phase, ()))
    found = [ROUTE_OF[(verb, role)] for verb in verbs if (verb, role) in ROUTE_OF]
    return tuple(
        WireCall(route.method, route.path, json={} if route.method == "POST" else None)
        for route in dict.fromkeys(found)
    )


def read_probe_reply(
    probe: WireCall, status: int, headers: Mapping[str, str], body: bytes, participant: str
) -> QuiesceError | None:
    """None where the route answered that the probe is invalid; otherwise why the participant cannot be used."""
    if status == INVALID:
        return None
    code, said = error_code_and_detail(headers, body)
    if status in MISSING:
        advice = "it lacks this route although it declares to support it: nobody was paused; upgrade or exclude it"
        if probe.path in _ELSEWHERE:
            advice += (
                "; where another process serves commit and restore, as the model server beside a coordinator does, the "
                "configuration names that one: checkpoint_url of this participant"
            )
    elif status in UNAUTHORIZED:
        advice = "check the control token on both sides"
    else:
        return ProtocolViolation(
            participant=participant,
            call=str(probe),
            reason="an empty request should be refused with 422",
            status=status,
            content_type=printable(headers.get("content-type", ""), 80),
            excerpt=body_excerpt(body),
        )
    return ControlRequestError(
        participant=participant, call=str(probe), status=status, error_code=code, detail=f"{said}; {advice}"
    )
