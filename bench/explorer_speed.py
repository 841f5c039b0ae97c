"""The explorer on the real core: CPU a state, over a bare breadth-first search with as many states and steps.

The baseline walks a graph of plain integers whose steps cost nothing: what remains of a search when the protocol is
taken away, its queue, its visited set and its look-ups.
"""

from __future__ import annotations

import time
from collections import deque

from measured import Measured

from quiesce.fsm.explore import explore
from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_suites import suite


def measure() -> list[Measured]:
    """The largest search of the strict suite. It informs; no reach is set for it yet."""
    largest = max((explore(System(setup)) for setup in suite("strict")), key=lambda found: found.states)
    setup = next(setup for setup in suite("strict") if System(setup).name == largest.name)
    began_s = time.process_time()
    found = explore(System(setup))
    explored_us = (time.process_time() - began_s) / found.states * 1e6
    bare_us = _bare_search_s(found.states, found.transitions // found.states) / found.states * 1e6
    what = f"explorer, CPU a state ({found.states:,} states: {found.name}), over a bare search"
    return [Measured(what, explored_us, bare_us, "µs", None)]


def _bare_search_s(states: int, branching: int) -> float:
    """CPU seconds of a search in which state n leads to the ``branching`` numbers after it."""
    began_s = time.process_time()
    seen = {0}
    frontier = deque([0])
    while frontier:
        state = frontier.popleft()
        for following in range(state + 1, min(states, state + 1 + branching)):
            if following not in seen:
                seen.add(following)
                frontier.append(following)
    return time.process_time() - began_s
