"""A state of the composed system as one integer: controller, sites, what is left of the budgets, violations.

A step of one part changes few of these fields, and by amounts that do not depend on the others: taken as integers, it
is one addition. The fields are wide enough for any search that fits into memory; a larger part is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from quiesce.fsm.explore_site import Fault

__all__ = ["DIGIT_BITS", "TIMES_MAX", "VIOLATION_BITS", "Fields", "Packing", "price"]

DIGIT_BITS: Final = 2
TIMES_MAX: Final = (1 << DIGIT_BITS) - 1
"""How often a fault may strike at most."""

Fields = list[int]
"""Controller, one number for each site, budgets (two bits a class of faults, by its number), violations."""

VIOLATION_BITS: Final = 6
_TOO_MANY: Final = "a part of the system has more states than a search can number; take fewer participants or faults"
_SITE_BITS: Final = 20
_CONTROLLER_BITS: Final = 22


def price(fault: Fault | None) -> tuple[int, int]:
    """The bits of the fault's budget, and what one stroke takes from it."""
    return (0, 0) if fault is None else (TIMES_MAX << DIGIT_BITS * fault, 1 << DIGIT_BITS * fault)


class Packing:
    """Where the fields of a state stand. Classes of faults that have no budget take no room.

    Attributes:
        shifts: of the sites, by place.
        controller_shift: of the controller.
    """

    def __init__(self, sites: int, budgets: Mapping[Fault, int]) -> None:
        self._slots = tuple(
            (DIGIT_BITS * fault, VIOLATION_BITS + DIGIT_BITS * slot)
            for slot, fault in enumerate(sorted(fault for fault, times in budgets.items() if times))
        )
        low = VIOLATION_BITS + DIGIT_BITS * len(self._slots)
        self._budget_mask = (1 << low) - (1 << VIOLATION_BITS)
        self.shifts = tuple(low + _SITE_BITS * place for place in range(sites))
        self.controller_shift = low + _SITE_BITS * sites
        self.controller_mask = ((1 << _CONTROLLER_BITS) - 1) << self.controller_shift | self._budget_mask
        """Selects the controller and the budgets."""
        self._budgets: dict[int, int] = {}

    def site_mask(self, place: int) -> int:
        """Selects the controller, the budgets and one site."""
        return self.controller_mask | ((1 << _SITE_BITS) - 1) << self.shifts[place]

    def site(self, state: int, place: int) -> int:
        """The number of one site."""
        return state >> self.shifts[place] & (1 << _SITE_BITS) - 1

    def moved(self, place: int, before: int, after: int) -> int:
        """What a state gains when a site goes from one number to another."""
        if after >> _SITE_BITS:
            raise OverflowError(_TOO_MANY)
        return (after - before) << self.shifts[place]

    def controller_moved(self, before: int, after: int) -> int:
        """What a state gains when the controller goes from one number to another."""
        if after >> _CONTROLLER_BITS:
            raise OverflowError(_TOO_MANY)
        return (after - before) << self.controller_shift

    def budget(self, bits: int) -> int:
        """Bits of the budgets, two a class of faults by its number, where they stand in a state."""
        known = self._budgets.get(bits)
        if known is None:
            known = self._budgets[bits] = sum((bits >> old & TIMES_MAX) << new for old, new in self._slots)
        return known

    def controller(self, state: int) -> int:
        """The number of the controller."""
        return state >> self.controller_shift

    def violations(self, state: int) -> int:
        """The violations that were seen on the way."""
        return state & (1 << VIOLATION_BITS) - 1

    def pack(self, fields: Sequence[int]) -> int:
        """The state that has these fields.

        Raises:
            OverflowError: a part has more states than can be numbered.
        """
        controller, *sites, budget, violations = fields
        if controller >> _CONTROLLER_BITS or any(site >> _SITE_BITS for site in sites):
            raise OverflowError(_TOO_MANY)
        state = controller << self.controller_shift | violations
        for shift, site in zip(self.shifts, sites, strict=True):
            state |= site << shift
        return state | self.budget(budget)

    def unpack(self, state: int) -> Fields:
        """The fields of a state."""
        budget = sum((state >> target & TIMES_MAX) << source for source, target in self._slots)
        sites = (self.site(state, place) for place in range(len(self.shifts)))
        return [self.controller(state), *sites, budget, self.violations(state)]
