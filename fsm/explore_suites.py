"""What ``quiesce check`` explores: every fence variant with two participants, one class of faults at a time.

A suite is a list of set-ups. Each has an abort and a retry at any moment beside its own class of faults. What cannot be
claimed for a class is waived by name, with the reason, and is not counted as holding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_model import Setup
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.transaction import MemberSpec, Plan
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role

__all__ = ["SUITES", "suite"]

_V = FenceVariant
_ALL_PHASES: Final = frozenset(Phase)
_PHASES: Final = {Role.AUXILIARY: frozenset({Phase.PREFLIGHT})}
_DRAIN_ONLY: Final = _ALL_PHASES - {Phase.COMMIT, Phase.RESTORE}


@dataclass(frozen=True, slots=True)
class _Class:
    """One class of faults: what it is called, what strikes, and what the searches with it must reach."""

    name: str
    fault: Fault | None = None
    cut_reaches: tuple[str, ...] = ()
    restore_reaches: tuple[str, ...] = ()
    waives: Mapping[str, str] = field(default_factory=dict)
    waives_recorded: Mapping[str, str] = field(default_factory=dict)


_UNKNOWABLE: Final = "a second delivery that the network made is known to nobody"

_CLASSES: Final = (
    _Class("no fault"),
    _Class("loss", Fault.LOSS, ("waited",)),
    _Class("abandoned", Fault.ABANDONED, ("waited",)),
    _Class(
        "duplicate",
        Fault.DUPLICATE,
        waives={"settled_is_quiet": _UNKNOWABLE},
        waives_recorded={"settled_takes_next_cut": f"{_UNKNOWABLE}, and leaves an orphan fence there (F16)"},
    ),
    _Class("failure", Fault.FAILURE, (), ("restore_failed",)),
    _Class("deadline", Fault.DEADLINE, ("in_doubt",), ("in_doubt", "restore_failed")),
    _Class("store", Fault.STORE, ("publish_unknown",), ("restore_failed",)),
    _Class("intruder", Fault.INTRUDER, ("held_by_other",), ("held_by_other",)),
    _Class("restart", Fault.RESTART),
    _Class("controller", Fault.CONTROLLER, ("recovered",), ("recovered", "restore_failed")),
)

_Pair = tuple[tuple[Role, FenceVariant], tuple[Role, FenceVariant]]

SUITES: Final[Mapping[str, tuple[_Pair, ...]]] = {
    "strict": (
        ((Role.POLICY, _V.STRICT), (Role.AGENT, _V.STRICT)),
        ((Role.POLICY, _V.STRICT), (Role.RESOURCES, _V.STRICT)),
        ((Role.POLICY, _V.STRICT), (Role.AUXILIARY, _V.STRICT)),
    ),
    "gym_a_single": (
        ((Role.POLICY, _V.GYM_A_SINGLE), (Role.AGENT, _V.GYM_A_SINGLE)),
        ((Role.POLICY, _V.GYM_A_SINGLE), (Role.RESOURCES, _V.GYM_A_SINGLE)),
    ),
    "gym_a_coordinator": (
        ((Role.POLICY, _V.GYM_A_COORDINATOR), (Role.AGENT, _V.GYM_A_SINGLE)),
        ((Role.POLICY, _V.GYM_A_COORDINATOR), (Role.RESOURCES, _V.GYM_A_SINGLE)),
    ),
    "mixed": (
        ((Role.POLICY, _V.STRICT), (Role.AGENT, _V.GYM_A_SINGLE)),
        ((Role.POLICY, _V.GYM_A_COORDINATOR), (Role.AGENT, _V.STRICT)),
        ((Role.AGENT, _V.STRICT), (Role.RESOURCES, _V.GYM_A_SINGLE)),
    ),
}
"""Suite name to the pairs of participants that it explores."""


def suite(name: str, times: int = 1) -> tuple[Setup, ...]:
    """The set-ups of a suite, in which each class of faults may strike ``times`` times.

    Raises:
        KeyError: there is no such suite.
        ValueError: ``times`` is more than can be counted.
    """
    return tuple(setup for pair in SUITES[name] for setup in _setups(name, pair, times))


def _setups(name: str, pair: _Pair, times: int) -> Iterator[Setup]:
    """Everything about one pair; the automata are shared, so that they are enumerated once."""
    specs = tuple(_spec(role, variant) for role, variant in pair)
    sites: dict[Fault | None, tuple[SiteAutomaton, ...]] = {
        fault: _sites(pair, specs, fault) for fault in (None, Fault.FAILURE, Fault.RESTART)
    }
    for is_restore in (False, True):
        if is_restore and any(variant is _V.GYM_A_COORDINATOR for _, variant in pair):
            continue  # a coordinator's control application has no restore (F23)
        plain = ControllerAutomaton(Plan(specs, is_restore))
        watching = ControllerAutomaton(Plan(specs, is_restore, watches_stragglers=True, restarts_stragglers=True))
        dying = ControllerAutomaton(Plan(specs, is_restore), dies=True)
        controllers: dict[Fault | None, ControllerAutomaton] = {Fault.DEADLINE: watching, Fault.CONTROLLER: dying}
        for faults in _CLASSES:
            own = {} if faults.fault is None else {faults.fault: times}
            yield Setup(
                name=f"{name}: {_title(pair)}, {'restore' if is_restore else 'cut'}, {faults.name}",
                controller=controllers.get(faults.fault, plain),
                sites=sites.get(faults.fault, sites[None]),
                budgets={Fault.ABORT: 1, Fault.RETRY: 1, **own},
                expects=_expected(pair, faults, is_restore=is_restore),
                waives={**faults.waives, **(faults.waives_recorded if _has_recorded_agent(pair) else {})},
                fresh_processes=is_restore,
            )


def _sites(pair: _Pair, specs: tuple[MemberSpec, ...], fault: Fault | None) -> tuple[SiteAutomaton, ...]:
    keeps_results, restarts = fault is Fault.FAILURE, fault is Fault.RESTART
    return tuple(
        SiteAutomaton(spec, variant, keeps_results and spec.role is Role.AGENT, restarts)
        for spec, (_, variant) in zip(specs, pair, strict=True)
    )


def _spec(role: Role, variant: FenceVariant) -> MemberSpec:
    coordinator = variant is _V.GYM_A_COORDINATOR
    phases = _DRAIN_ONLY if coordinator else _PHASES.get(role, _ALL_PHASES)
    return MemberSpec(ParticipantKey("main", role.value), role, phases, refuses_idle_resume=coordinator)


def _title(pair: _Pair) -> str:
    return " + ".join(f"{role} ({variant})" for role, variant in pair)


def _has_recorded_agent(pair: _Pair) -> bool:
    return any(role is Role.AGENT and variant is not _V.STRICT for role, variant in pair)


def _expected(pair: _Pair, faults: _Class, *, is_restore: bool) -> tuple[str, ...]:
    if is_restore:
        return ("resumed", "aborted", "restored", *faults.restore_reaches)
    heals = any(variant is _V.GYM_A_COORDINATOR for _, variant in pair) and faults.fault is Fault.FAILURE
    orphans = _has_recorded_agent(pair) and faults.fault is None
    return (
        "resumed",
        "aborted",
        *faults.cut_reaches,
        *(("healed",) if heals else ()),
        *(("fresh_id",) if orphans else ()),
    )
