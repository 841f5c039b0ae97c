"""What must hold in every state of the composed system, and what some state must have.

Most are decided from the controller and one site at a time, so that a verdict is found once for each pair that occurs.
Six are seen only in a step, since they tie sites to each other or a site to its past; their names are here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from quiesce.fsm import messages as m
from quiesce.fsm.explore_answers import reading
from quiesce.fsm.explore_controller import Controller
from quiesce.fsm.explore_site import Flight, Site, is_unsettled, mixes_ids
from quiesce.fsm.explore_tables import Turn
from quiesce.fsm.tables.fence import FenceEvent
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.release import ReleaseState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.transaction import Plan, State, is_owed
from quiesce.fsm.vocabulary import Outcome, Phase, Role, Verb

__all__ = [
    "ALWAYS",
    "PUBLISHED_WHOLE",
    "QUIESCED_BEFORE_EXPORT",
    "SOMETIMES",
    "USED_UP_IDS_STAY_SO",
    "Claim",
    "broken_by_controller",
    "broken_by_site",
    "is_over",
    "seen_in",
    "turns",
]


class Claim(NamedTuple):
    """A named property and what it means."""

    name: str
    meaning: str


ALWAYS: Final = (
    Claim("quiesced_before_export", "an export begins only while every participant of the cut is closed and drained"),
    Claim("published_whole", "what is published has everyone's export, and everyone is still quiesced"),
    Claim("used_up_ids_stay_so", "an id that was used up never closes a participant again"),
    Claim("closed_in_order", "policies, then agents, then resources close for a cut: each once everybody before has"),
    Claim("exported_in_order", "agents, then policies, then resources export: each begins once everybody before has"),
    Claim("imported_in_order", "policies, then agents, then resources are restored: each once everybody before is"),
    Claim("never_published_and_aborted", "a snapshot that stands is never undone"),
    Claim("taken_is_published", "a cut that goes on or ends as taken has a snapshot that stands"),
    Claim("restored_whole", "a restore that goes on or ends as done has been imported at everybody who takes part"),
    Claim(
        "left_as_it_ended", "whoever is left resumed is part of what stands, whoever is left aborted of what does not"
    ),
    Claim("restore_undone_by_request", "what was imported is opened by its release or by an explicit abort alone"),
    Claim("doubt_has_a_name", "in doubt names somebody, and a finished transaction owes nobody anything"),
    Claim("one_id_at_a_time", "no other id is used at a participant while a call of ours can still act there"),
    Claim("closed_is_known", "whoever is closed on our account is known to be possibly closed"),
    Claim("settled_is_open", "whoever is reported open is open"),
    Claim("settled_takes_next_cut", "whoever is reported open has a fence that the next cut can take"),
    Claim("settled_is_quiet", "nothing of ours that could close runs, or is on its way, at whoever is reported open"),
    Claim(
        "restored_is_held",
        "what is restored stays closed, while its process lives, until it is released or an abort is asked for",
    ),
    Claim("published_verified", "what is published was checked against what each participant said, and none differed"),
    Claim(
        "recorded_before_done",
        "a first call, a publication and the opening of a restore are asked for behind a durable record",
    ),
    Claim(
        "reopened_in_order", "resources, policies, agents are reopened in this order, but for who lags or is given up"
    ),
    Claim("frozen_after_parked", "resources are frozen for a cut only when every agent stands at it"),
    Claim("held_by_its_holder", "nobody is opened or taken over under an id that does not hold them"),
    Claim("bystanders_left_alone", "an auxiliary model is read and nothing else"),
)
"""What must hold in every state, by place."""

SOMETIMES: Final = (
    Claim("resumed", "a cut or restore ends with everybody resumed"),
    Claim("aborted", "one ends undone after everybody was called for it, with everybody accepting work"),
    Claim("restored", "everybody is restored and held"),
    Claim("restore_failed", "half a restore is held closed"),
    Claim("in_doubt", "somebody could not be proven open in time"),
    Claim("publish_unknown", "the rename's outcome could not be read"),
    Claim("open_though_unknown", "everybody accepts work although the rename's outcome still cannot be read"),
    Claim("healed", "a resume refused from idle was healed by a pause, and everybody accepts work"),
    Claim("fresh_id", "a fresh id was used up, and everybody accepts work"),
    Claim("held_by_other", "another controller's id holds a participant, and it is left alone"),
    Claim("recovered", "a controller that took over brings everybody to accept work"),
    Claim("waited", "an outstanding call was waited for before a participant was called open"),
)
"""What some state must have, by place."""

_BIT: Final[Mapping[str, int]] = {claim.name: 1 << place for place, claim in enumerate(ALWAYS)}
QUIESCED_BEFORE_EXPORT: Final = _BIT["quiesced_before_export"]
PUBLISHED_WHOLE: Final = _BIT["published_whole"]
USED_UP_IDS_STAY_SO: Final = _BIT["used_up_ids_stay_so"]
_POLICIES_FIRST: Final = (Role.POLICY, Role.AGENT, Role.RESOURCES)
_AGENTS_FIRST: Final = (Role.AGENT, Role.POLICY, Role.RESOURCES)
_ORDERS: Final = (
    (Phase.PREPARE, "closed", _POLICIES_FIRST, _BIT["closed_in_order"]),
    (Phase.COMMIT, "exported", _AGENTS_FIRST, _BIT["exported_in_order"]),
    (Phase.RESTORE, "imported", _POLICIES_FIRST, _BIT["imported_in_order"]),
)
"""Whose turn is when (wire-protocol 5); told here once more, since PHASES is what is held against it."""

_S = TransactionState
_SETTLED: Final = frozenset({ParticipantState.RESUMED, ParticipantState.ABORTED})
_OVER: Final = frozenset({_S.RESUMED, _S.ABORTED})
_UNDONE: Final = frozenset({_S.ABORTING, _S.ABORTED, _S.IN_DOUBT_UNPUBLISHED})
_RELEASED: Final = frozenset({_S.RESUMING, _S.RESUMED, _S.IN_DOUBT_PUBLISHED})
_TAKEN: Final = _RELEASED | {_S.PUBLISHED}
_RESTORED: Final = _RELEASED | {_S.RESTORED}
_DOUBT: Final = frozenset({_S.IN_DOUBT_PUBLISHED, _S.IN_DOUBT_UNPUBLISHED})
_HOLDING: Final = frozenset({_S.RESTORING, _S.RESTORED, _S.RESTORE_FAILED})
_TURN: Final = {Role.RESOURCES: 0, Role.POLICY: 1, Role.AGENT: 2}
"""Who is reopened when (wire-protocol 5.6); told here once more, since PHASES is what is held against it."""
_GIVEN_UP: Final = frozenset({ReleaseState.UNPROVEN, ReleaseState.OWES_RESTORE})
_CONVERSING: Final = (
    frozenset(ReleaseState)
    - _GIVEN_UP
    - {
        ReleaseState.NOT_DUE,
        ReleaseState.RELEASED,
        ReleaseState.HELD_BY_OTHER,
    }
)
_WAITING: Final = frozenset({ReleaseState.AWAITING_OUTSTANDING, ReleaseState.SETTLING})


def turns(plan: Plan) -> tuple[Turn, ...]:
    """The order of closing, exporting and importing, for the participants of a plan."""
    drained = plan.drain is DrainMode.POLICIES_FIRST
    return tuple(
        Turn(phase, "drained" if drained and mark == "closed" else mark, bit, _earlier(plan, phase, order))
        for phase, mark, order, bit in _ORDERS
    )


def _earlier(plan: Plan, phase: Phase, order: tuple[Role, ...]) -> tuple[tuple[int, ...], ...]:
    taking_part = [(place, spec.role) for place, spec in enumerate(plan.members) if phase in spec.phases]
    return tuple(
        tuple(place for place, role in taking_part if spec.role in order and role in order[: order.index(spec.role)])
        for spec in plan.members
    )


def is_over(controller: Controller) -> bool:
    """Whether the transaction has ended for good."""
    return controller.core.transaction in _OVER


def broken_by_controller(controller: Controller) -> int:
    """Bits of the properties of ``ALWAYS`` that the controller's own state breaks."""
    core = controller.core
    state = core.transaction
    named = core.in_doubt()
    bits = 0
    if controller.published and state in _UNDONE:
        bits |= _BIT["never_published_and_aborted"]
    if state in _TAKEN and not (controller.published or core.plan.is_restore):
        bits |= _BIT["taken_is_published"]
    if not _are_left_as_it_ended(controller):
        bits |= _BIT["left_as_it_ended"]
    if core.plan.is_restore and _opens_unasked(controller):
        touched = any(member.state is not ParticipantState.IDLE for member in core.members)
        bits |= _BIT["restore_undone_by_request"] if touched else 0
    if controller.published and (controller.contradicted or _is_unchecked(controller)):
        bits |= _BIT["published_verified"]
    if controller.hasty:
        bits |= _BIT["recorded_before_done"]
    if not _is_in_order(core):
        bits |= _BIT["reopened_in_order"]
    if (state in _OVER and named) or (state in _DOUBT and not named):
        bits |= _BIT["doubt_has_a_name"]
    return bits


def _opens_unasked(controller: Controller) -> bool:
    state = controller.core.transaction
    asked_to_abort, asked_to_release = controller.told_to_abort, controller.told_to_release
    return (state in _UNDONE and not asked_to_abort) or (state in _RELEASED and not asked_to_release)


def _are_left_as_it_ended(controller: Controller) -> bool:
    """Whether everybody who was proven open was so for what the transaction has come to.

    Nobody waits for a rename whose outcome cannot be read: whoever is proven open meanwhile is left as if nothing had
    happened, and stays so if the snapshot is found after all.
    """
    state = controller.core.transaction
    members = zip(controller.core.plan.members, controller.core.members, strict=True)
    undone = state in _UNDONE or state is _S.PUBLISH_UNKNOWN
    return all(
        (member.state is not ParticipantState.RESUMED or state in _TAKEN)
        and (member.state is not ParticipantState.ABORTED or undone or spec.key in controller.unread)
        for spec, member in members
    )


def broken_by_site(  # noqa: C901 - one branch a property, in the order of ALWAYS
    controller: Controller, place: int, site: Site
) -> int:
    """Bits of the properties of ``ALWAYS`` that one participant breaks together with what is known of it."""
    member, spec = controller.core.members[place], controller.core.plan.members[place]
    # a process that expects a restore began closed by itself; another controller's pause is not ours
    closed = site.fence.closed and not site.owes and not site.intruded
    bits = 0
    if site.trespassed:
        bits |= _BIT["held_by_its_holder"]
    if spec.role is Role.AUXILIARY and (site.fence.closed or any(_disturbs(flight) for flight in site.flights)):
        bits |= _BIT["bystanders_left_alone"]
    if spec.role is Role.RESOURCES and closed and controller.core.transaction is _S.DRAINING:
        bits |= 0 if _agents_stand(controller.core) else _BIT["frozen_after_parked"]
    if mixes_ids(spec, site):
        bits |= _BIT["one_id_at_a_time"]
    if closed and not is_owed(member):
        bits |= _BIT["closed_is_known"]
    if member.state in _SETTLED:
        if site.fence.closed and not site.intruded:
            bits |= _BIT["settled_is_open"]
        if reading(site.fence, member.id_index) is not Outcome.OPEN and not site.intruded:
            bits |= _BIT["settled_takes_next_cut"]
        if is_unsettled(spec, site):
            bits |= _BIT["settled_is_quiet"]
    gone = site.past is not None and site.past.restarted
    held = controller.core.transaction in _HOLDING and member.state is ParticipantState.RESTORED and not gone
    if held and not site.fence.closed:
        bits |= _BIT["restored_is_held"]
    if controller.core.plan.is_restore and Phase.RESTORE in spec.phases and not (gone or _holds_it(controller, site)):
        bits |= _BIT["restored_whole"]
    return bits


def _holds_it(controller: Controller, site: Site) -> bool:
    """Whether what a participant was restored to is there, if the restore is past the point where it must be.

    Looked for at the fence: the import is recorded until the release uses up its id. Whose process died since has lost
    it, and nobody can know of that before it is called; what an unproven release did to it changes nothing here.
    """
    state = controller.core.transaction
    if state not in _RESTORED:
        return True
    used_up = state is not _S.RESTORED and 0 in site.fence.finished
    return used_up or site.fence.record(0, FenceEvent.RESTORE) is not None


def _is_unchecked(controller: Controller) -> bool:
    return any(isinstance(errand, m.Verify) for errand in controller.errands)


def _is_in_order(core: State) -> bool:
    """Whether nobody is being reopened before everybody whose turn is earlier."""
    asked = [
        _TURN.get(spec.role, 0)
        for spec, member in zip(core.plan.members, core.members, strict=True)
        if member.release in _CONVERSING
    ]
    last = max(asked, default=0)
    return all(
        _TURN.get(spec.role, last) >= last
        or not is_owed(member)
        or member.release in _GIVEN_UP
        or _TURN[spec.role] < core.lagging
        for spec, member in zip(core.plan.members, core.members, strict=True)
    )


def _disturbs(flight: Flight) -> bool:
    return flight.verb is not Verb.INSPECT


def _agents_stand(core: State) -> bool:
    return all(
        member.state is ParticipantState.PAUSED
        for spec, member in zip(core.plan.members, core.members, strict=True)
        if spec.role is Role.AGENT and Phase.PREPARE in spec.phases
    )


def _was_called_for(core: State) -> bool:
    """Whether everybody who takes part was possibly closed; an abort before the first call undoes nothing."""
    begun = Phase.RESTORE if core.plan.is_restore else Phase.PREPARE
    return all(
        member.state is not ParticipantState.IDLE
        for spec, member in zip(core.plan.members, core.members, strict=True)
        if begun in spec.phases
    )


def seen_in(controller: Controller) -> frozenset[str]:
    """Names of the properties of ``SOMETIMES`` that the controller's state has."""
    core = controller.core
    seen = {core.transaction.value}
    if not _was_called_for(core):
        seen.discard(_S.ABORTED.value)
    if core.transaction in _DOUBT:
        seen.add("in_doubt")
    if core.transaction in _OVER:
        if any(member.release is ReleaseState.HELD_BY_OTHER for member in core.members):
            seen.add("held_by_other")
        seen |= {"recovered"} if controller.recovered else set()
        seen |= {"healed"} if any(member.heals for member in core.members) else set()
        seen |= {"fresh_id"} if any(member.id_index for member in core.members) else set()
    if core.transaction is _S.PUBLISH_UNKNOWN and not any(is_owed(member) for member in core.members):
        seen.add("open_though_unknown")
    if any(member.release in _WAITING for member in core.members):
        seen.add("waited")
    return frozenset(seen & {claim.name for claim in SOMETIMES})
