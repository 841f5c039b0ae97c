"""What ``quiesce check`` explores: every fence variant, with one class of faults at a time or with two.

A suite is a list of set-ups. Each has an abort and a retry at any moment beside its own classes of faults. What cannot
be claimed for a class is waived by name, with the reason, and is not counted as holding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_setup import Setup
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.transaction import MemberSpec, Plan
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role

__all__ = ["PARTICIPANTS_MAX", "SUITES", "suite"]

_V = FenceVariant
_ALL_PHASES: Final = frozenset(Phase)
_PHASES: Final = {Role.AUXILIARY: frozenset({Phase.PREFLIGHT})}
_DRAIN_ONLY: Final = _ALL_PHASES - {Phase.COMMIT, Phase.RESTORE}


@dataclass(frozen=True, slots=True)
class _Class:
    """One class of faults: what it is called, what strikes, and what the searches with it must reach."""

    name: str
    faults: frozenset[Fault] = frozenset()
    cut_reaches: tuple[str, ...] = ()
    restore_reaches: tuple[str, ...] = ()


def _only(fault: Fault) -> frozenset[Fault]:
    return frozenset({fault})


_UNKNOWABLE: Final = "a second delivery that the network made is known to nobody"

_CLASSES: Final = (
    _Class("no fault"),
    _Class("loss", _only(Fault.LOSS), ("waited",)),
    _Class("abandoned", _only(Fault.ABANDONED), ("waited",)),
    _Class("duplicate", _only(Fault.DUPLICATE)),
    _Class("failure", _only(Fault.FAILURE), (), ("restore_failed",)),
    _Class("deadline", _only(Fault.DEADLINE), ("in_doubt",), ("in_doubt", "restore_failed")),
    _Class("store", _only(Fault.STORE), ("publish_unknown", "open_though_unknown"), ("restore_failed",)),
    _Class("intruder", _only(Fault.INTRUDER), ("held_by_other",), ("held_by_other",)),
    _Class("restart", _only(Fault.RESTART)),
    _Class("controller", _only(Fault.CONTROLLER), ("recovered",), ("recovered", "restore_failed")),
)

_Fleet = tuple[tuple[Role, FenceVariant], ...]


@dataclass(frozen=True, slots=True)
class _Waiver:
    """Properties that cannot be claimed where these classes of faults may strike, and why."""

    names: tuple[str, ...]
    faults: frozenset[Fault]
    reason: str
    needs_recorded_agent: bool = False
    needs_coordinator: bool = False
    needs_restore: bool = False

    def of(self, fleet: _Fleet, *, is_restore: bool) -> bool:
        """Whether it concerns such a fleet."""
        return (
            (not self.needs_recorded_agent or _has_recorded_agent(fleet))
            and (not self.needs_coordinator or _has_coordinator(fleet))
            and (not self.needs_restore or is_restore)
        )


_WAIVERS: Final = (
    _Waiver(("settled_is_quiet",), _only(Fault.DUPLICATE), _UNKNOWABLE),
    _Waiver(
        ("settled_takes_next_cut",),
        _only(Fault.DUPLICATE),
        f"{_UNKNOWABLE}, and leaves an orphan fence at a recorded agent (F16)",
        needs_recorded_agent=True,
    ),
    _Waiver(
        ("closed_is_known", "settled_is_open"),
        frozenset({Fault.DUPLICATE, Fault.INTRUDER}),
        f"{_UNKNOWABLE}: it closes whoever was left alone, since another controller held it, once that one lets go",
    ),
    _Waiver(
        ("closed_is_known", "settled_is_open", "settled_takes_next_cut"),
        frozenset({Fault.DUPLICATE, Fault.FAILURE}),
        f"{_UNKNOWABLE}: it closes a coordinator at which the id could not be used up, since no pause succeeded (F18)",
        needs_coordinator=True,
    ),
    _Waiver(
        ("restored_is_held", "restored_whole", "imported_in_order"),
        frozenset({Fault.STORE, Fault.CONTROLLER}),
        "whoever takes over cannot know of a release or abort whose record failed, and a late call of it still opens",
        needs_restore=True,
    ),
    _Waiver(
        ("imported_in_order",),
        frozenset({Fault.RESTART, Fault.CONTROLLER}),
        "an import of the controller that died arrives after a process whose turn was before has been replaced",
        needs_restore=True,
    ),
)

_POLICY: Final = (Role.POLICY, _V.STRICT)
_JUDGE: Final = (Role.AUXILIARY, _V.STRICT)
_AGENT: Final = (Role.AGENT, _V.STRICT)
_TOOLS: Final = (Role.RESOURCES, _V.STRICT)
_POLICY_A: Final = (Role.POLICY, _V.GYM_A_SINGLE)
_AGENT_A: Final = (Role.AGENT, _V.GYM_A_SINGLE)
_TOOLS_A: Final = (Role.RESOURCES, _V.GYM_A_SINGLE)
_COORDINATOR: Final = (Role.POLICY, _V.GYM_A_COORDINATOR)

SUITES: Final[Mapping[str, Mapping[int, tuple[_Fleet, ...]]]] = {
    "strict": {
        2: ((_POLICY, _AGENT), (_POLICY, _TOOLS), (_POLICY, _JUDGE)),
        3: ((_POLICY, _AGENT, _AGENT), (_POLICY, _POLICY, _AGENT), (_POLICY, _AGENT, _TOOLS)),
        4: ((_POLICY, _AGENT, _AGENT, _AGENT), (_POLICY, _POLICY, _AGENT, _AGENT), (_POLICY, _AGENT, _AGENT, _TOOLS)),
    },
    "gym_a_single": {
        2: ((_POLICY_A, _AGENT_A), (_POLICY_A, _TOOLS_A)),
        3: ((_POLICY_A, _AGENT_A, _AGENT_A), (_POLICY_A, _AGENT_A, _TOOLS_A)),
        4: ((_POLICY_A, _AGENT_A, _AGENT_A, _AGENT_A),),
    },
    "gym_a_coordinator": {
        2: ((_COORDINATOR, _AGENT_A), (_COORDINATOR, _TOOLS_A)),
        3: ((_COORDINATOR, _AGENT_A, _AGENT_A), (_COORDINATOR, _AGENT_A, _TOOLS_A)),
        4: ((_COORDINATOR, _AGENT_A, _AGENT_A, _AGENT_A),),
    },
    "mixed": {
        2: ((_POLICY, _AGENT_A), (_COORDINATOR, _AGENT), (_AGENT, _TOOLS_A)),
        3: ((_POLICY, _AGENT, _AGENT_A), (_COORDINATOR, _AGENT, _TOOLS), (_AGENT, _AGENT, _TOOLS_A)),
        4: ((_POLICY, _AGENT, _AGENT, _TOOLS_A),),
    },
}
"""Suite name to the fleets that it explores, by how many participants they have."""
PARTICIPANTS_MAX: Final = 4
"""How many participants the largest fleets of every suite have."""


def suite(name: str, times: int = 1, *, participants: int = 2, pairs: bool = False) -> tuple[Setup, ...]:
    """The set-ups of a suite, in which each class of faults may strike ``times`` times.

    With ``pairs`` every two classes may strike in one search, in place of one class.

    Raises:
        KeyError: there is no such suite, or none with so many participants.
        ValueError: ``times`` is more than can be counted.
    """
    struck = tuple(_both(one, other) for one, other in combinations(_CLASSES[1:], 2)) if pairs else _CLASSES
    return tuple(setup for fleet in SUITES[name][participants] for setup in _setups(name, fleet, struck, times))


def _setups(name: str, fleet: _Fleet, struck: Iterable[_Class], times: int) -> Iterator[Setup]:
    """Everything about one fleet; the automata are shared, so that they are enumerated once."""
    specs = _specs(fleet)
    automata = _Automata(fleet, specs)
    for is_restore in (False, True):
        if is_restore and any(variant is _V.GYM_A_COORDINATOR for _, variant in fleet):
            continue  # a coordinator's control application has no restore (F23)
        for faults in struck:
            yield Setup(
                name=f"{name}: {_title(fleet)}, {'restore' if is_restore else 'cut'}, {faults.name}",
                controller=automata.controller(faults.faults, is_restore=is_restore),
                sites=automata.sites(faults.faults),
                budgets={Fault.ABORT: 1, Fault.RETRY: 1, **dict.fromkeys(faults.faults, times)},
                expects=_expected(fleet, faults, is_restore=is_restore),
                waives=_waived(fleet, faults, is_restore=is_restore),
                fresh_processes=is_restore,
            )


class _Automata:
    """The automata of one fleet, by what the classes of faults make of them."""

    def __init__(self, fleet: _Fleet, specs: tuple[MemberSpec, ...]) -> None:
        self._fleet = fleet
        self._specs = specs
        self._controllers: dict[tuple[bool, bool, bool], ControllerAutomaton] = {}
        self._sites: dict[tuple[bool, bool], tuple[SiteAutomaton, ...]] = {}

    def controller(self, faults: frozenset[Fault], *, is_restore: bool) -> ControllerAutomaton:
        """One that watches stragglers where time passes, and that may die where controllers do."""
        watches, dies = Fault.DEADLINE in faults, Fault.CONTROLLER in faults
        plan = Plan(self._specs, is_restore, watches_stragglers=watches, restarts_stragglers=watches)
        return self._controllers.setdefault((is_restore, watches, dies), ControllerAutomaton(plan, dies=dies))

    def sites(self, faults: frozenset[Fault]) -> tuple[SiteAutomaton, ...]:
        """Agents that keep results where a trainer may fail to own them, processes that restart where they may."""
        keeps, restarts = Fault.FAILURE in faults, Fault.RESTART in faults
        built = tuple(
            SiteAutomaton(spec, variant, keeps and spec.role is Role.AGENT, restarts)
            for spec, (_, variant) in zip(self._specs, self._fleet, strict=True)
        )
        return self._sites.setdefault((keeps, restarts), built)


def _specs(fleet: _Fleet) -> tuple[MemberSpec, ...]:
    """The participants, named by their roles; by number as well where a role comes more than once."""
    roles = [role for role, _ in fleet]
    names = [
        role.value if roles.count(role) == 1 else f"{role}{roles[: place + 1].count(role)}"
        for place, role in enumerate(roles)
    ]
    return tuple(_spec(name, *taking) for name, taking in zip(names, fleet, strict=True))


def _spec(name: str, role: Role, variant: FenceVariant) -> MemberSpec:
    coordinator = variant is _V.GYM_A_COORDINATOR
    phases = _DRAIN_ONLY if coordinator else _PHASES.get(role, _ALL_PHASES)
    return MemberSpec(ParticipantKey("main", name), role, phases, refuses_idle_resume=coordinator)


def _title(fleet: _Fleet) -> str:
    return " + ".join(f"{role} ({variant})" for role, variant in fleet)


def _has_recorded_agent(fleet: _Fleet) -> bool:
    return any(role is Role.AGENT and variant is not _V.STRICT for role, variant in fleet)


def _has_coordinator(fleet: _Fleet) -> bool:
    return any(variant is _V.GYM_A_COORDINATOR for _, variant in fleet)


def _waived(fleet: _Fleet, faults: _Class, *, is_restore: bool) -> Mapping[str, str]:
    return {
        name: waiver.reason
        for waiver in _WAIVERS
        if waiver.faults <= faults.faults and waiver.of(fleet, is_restore=is_restore)
        for name in waiver.names
    }


def _expected(fleet: _Fleet, faults: _Class, *, is_restore: bool) -> tuple[str, ...]:
    if is_restore:
        return ("resumed", "aborted", "restored", *faults.restore_reaches)
    heals = _has_coordinator(fleet) and Fault.FAILURE in faults.faults
    orphans = _has_recorded_agent(fleet) and not faults.faults
    return (
        "resumed",
        "aborted",
        *faults.cut_reaches,
        *(("healed",) if heals else ()),
        *(("fresh_id",) if orphans else ()),
    )


def _both(one: _Class, other: _Class) -> _Class:
    """Two classes of faults in one search."""
    return _Class(
        f"{one.name} + {other.name}",
        one.faults | other.faults,
        tuple(dict.fromkeys((*one.cut_reaches, *other.cut_reaches))),
        tuple(dict.fromkeys((*one.restore_reaches, *other.restore_reaches))),
    )
