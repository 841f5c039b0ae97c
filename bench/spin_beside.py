"""The explorer beside the Spin model checker, on the same models in the same run: CPU and memory of a state.

Spin searches what was emitted from the explorer's automata, in generated C (``gcc -O1``), without reduction and without
hash compaction; generating and compiling are not counted. The explorer's time includes that it enumerates its automata
from the real core and fences. Both must see the same states and give the same verdicts, or nothing is compared.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from pathlib import Path

from measured import Measured

from quiesce.cli.spin import differences, missing_programs, run_spin
from quiesce.fsm.explore import explore
from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_promela import emit_model
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.transaction import MemberSpec, Plan
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role

PAIR = (Role.POLICY, Role.AGENT)
TRIPLE = (*PAIR, Role.RESOURCES)
SEARCHES = (
    ("2 participants, a loss", PAIR, {Fault.LOSS: 1, Fault.ABORT: 1, Fault.RETRY: 1}),
    ("3 participants, 3 duplicates", TRIPLE, {Fault.DUPLICATE: 3}),
)
"""What is searched: a cut of strict participants, and the faults that may strike."""


def measure() -> list[Measured]:
    """Two rows for each search; none, with a message, where Spin is missing. They inform; no reach is set."""
    if missing := missing_programs():
        print(f"skipped: the explorer beside Spin ({' and '.join(missing)} missing)")
        return []
    return [row for what, roles, budgets in SEARCHES for row in _beside(what, roles, budgets)]


def _beside(what: str, roles: tuple[Role, ...], budgets: dict[Fault, int]) -> list[Measured]:
    began_s = time.process_time()
    system = _system(what, roles, budgets)
    found = explore(system)
    explored_s = time.process_time() - began_s
    with tempfile.TemporaryDirectory() as folder:
        run = run_spin(emit_model(system, found), Path(folder), flags=("-DWITNESS",), optimize="-O1")
    assert differences(found, run) == ()
    assert run.memory_bytes is not None
    where = f"({found.states:,} states: {what}), over Spin"
    cpu_us = (explored_s / found.states * 1e6, run.took_s / run.states * 1e6)
    memory = (_peak_bytes(what, roles, budgets) / found.states, run.memory_bytes / run.states)
    return [
        Measured(f"explorer, CPU a state {where}", *cpu_us, "µs", None),
        Measured(f"explorer, memory a state {where}", *memory, "B", None),
    ]


def _system(what: str, roles: tuple[Role, ...], budgets: dict[Fault, int]) -> System:
    """A system whose automata nobody has enumerated yet."""
    specs = tuple(MemberSpec(ParticipantKey("main", role.value), role, frozenset(Phase)) for role in roles)
    sites = tuple(SiteAutomaton(spec, FenceVariant.STRICT) for spec in specs)
    waives = {"settled_is_quiet": "a second delivery that the network made is known to nobody"}
    return System(Setup(what, ControllerAutomaton(Plan(specs)), sites, budgets, ("resumed",), waives))


def _peak_bytes(what: str, roles: tuple[Role, ...], budgets: dict[Fault, int]) -> int:
    """The most memory that a search has at once, its automata included."""
    tracemalloc.start()
    explore(_system(what, roles, budgets))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
