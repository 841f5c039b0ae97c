"""What a search of the composed system begins with: its parts, the faults that may strike, what it must reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_packing import TIMES_MAX
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_properties import ALWAYS, SOMETIMES
from quiesce.fsm.explore_site import Fault

__all__ = ["Setup"]


@dataclass(frozen=True)
class Setup:
    """What is explored: a controller with its plan, participants with their fences, and how often faults may strike.

    ``expects`` are the *sometimes* properties that this search must reach; ``waives`` the *always* properties that are
    not claimed for it, with the reason. With ``fresh_processes`` resource servers start as those do that were told to
    expect a restore: closed, and refusing to be resumed.

    Raises:
        ValueError: a fault may strike more often than can be counted, or an unknown property is named.
    """

    name: str
    controller: ControllerAutomaton
    sites: tuple[SiteAutomaton, ...]
    budgets: Mapping[Fault, int] = field(default_factory=dict)
    expects: tuple[str, ...] = ()
    waives: Mapping[str, str] = field(default_factory=dict)
    fresh_processes: bool = False

    def __post_init__(self) -> None:
        if not all(0 <= times <= TIMES_MAX for times in self.budgets.values()):
            raise ValueError(f"{self.name}: a fault may strike 0 to {TIMES_MAX} times, not {dict(self.budgets)}")
        known = {claim.name for claim in (*ALWAYS, *SOMETIMES)}
        if unknown := {*self.expects, *self.waives} - known:
            raise ValueError(f"{self.name}: no property is called {sorted(unknown)}; there are {sorted(known)}")
