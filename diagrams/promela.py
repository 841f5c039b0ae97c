"""A table as Promela, the language of the model checker Spin: to be checked, or to be put into a larger model.

The table is an ``inline``: it takes an event and steps by what the guards say, which are booleans that the model sets.
Effects are macros that do nothing until they are defined. With it comes a process that sends every event with every
verdict for which a row holds, so that Spin reaches exactly the states of the table; a model with processes of its own
defines ``OWN_ENVIRONMENT`` and calls the ``inline``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, TypeVar

from quiesce.diagrams.escape import identifiers, one_line
from quiesce.fsm.promela_text import comment
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["render_promela"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def render_promela(table: Table[S, E]) -> str:
    """The machine as a model that Spin takes, ending in a line break; the same table gives the same bytes."""
    return "".join(f"{line}\n" for line in _Model(table).lines())


_HEAD: Final = """
Every event, with every verdict of the guards for which a row holds:
  spin -a MODEL.pml && gcc -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
Spin stores {states} states: those of the table. In a model of your own #define OWN_ENVIRONMENT, #include this,
set the guards (G_{name}_...) and call STEP_{name}(E_{name}_...). AT_{name} is the state.
A step that no row allows does REFUSED_{name}, effects are DO_{name}_...: they do nothing
unless they are defined before."""


@dataclass(frozen=True)
class _Model:
    """One table on its way to text. Capital letters before every name keep it from being a keyword."""

    table: Table[Any, Any]

    @cached_property
    def name(self) -> str:
        return next(iter(identifiers([one_line(self.table.name).lower() or "table"]).values()))

    @cached_property
    def states(self) -> Mapping[Any, str]:
        return self._named("S", identifiers(self.table.used_states()))

    @cached_property
    def events(self) -> Mapping[Any, str]:
        known: type[Enum] = self.table.events
        return self._named("E", identifiers(known))

    @cached_property
    def guards(self) -> Mapping[str, str]:
        return self._named("G", identifiers(guard.name for guard in self.table.guards))

    @cached_property
    def effects(self) -> Mapping[str, str]:
        return self._named("DO", identifiers(self.table.effects))

    def lines(self) -> Iterator[str]:
        """The model, line by line."""
        head = _HEAD.format(states=len(self.states), name=self.name)
        yield from comment(f"{one_line(self.table.name)}: {one_line(self.table.title)}", *head.split("\n"))
        yield from self._vocabulary()
        yield f"\nint AT_{self.name} = {self.states[self.table.initial]};\n"
        yield from self._step()
        yield from self._environment()

    def _named(self, kind: str, names: Mapping[Any, str]) -> Mapping[Any, str]:
        return {member: f"{kind}_{self.name}_{name}" for member, name in names.items()}

    def _vocabulary(self) -> Iterator[str]:
        yield ""
        for number, (state, name) in enumerate(self.states.items()):
            yield f"#define {name} {number} {_note(self._kind(state))}".rstrip()
        yield ""
        for number, name in enumerate(self.events.values()):
            yield f"#define {name} {number}"
        yield ""
        for guard in self.table.guards:
            yield f"bool {self.guards[guard.name]}; {_note(f'{guard.meaning}; otherwise: {guard.otherwise}')}"
        for name in self.effects.values():
            yield f"\n#ifndef {name}\n#define {name} skip\n#endif"
        yield f"\n#ifndef OWN_ENVIRONMENT\n#define REFUSED_{self.name} assert(false)\n#endif"
        yield f"#ifndef REFUSED_{self.name}\n#define REFUSED_{self.name} skip\n#endif"

    def _kind(self, state: Enum) -> str:
        kinds = [str(state.value)]
        kinds += ["final"] if state in self.table.final else []
        kinds += ["resting"] if state in self.table.resting else []
        waits = self.table.waiting.get(state, DeadlineClass.NONE)
        return ", ".join((*kinds, *([f"waits: {waits.value}"] if waits is not DeadlineClass.NONE else [])))

    def _step(self) -> Iterator[str]:
        """An inline for each state, since Spin takes no long ones, and one that chooses among them."""
        rows = {state: [row for row in self.table.rows if row.source is state] for state in self.states}
        for state, found in rows.items():
            if found:
                yield f"inline {self._in(state)}(event) {{\n  if"
                for row in found:
                    yield from self._row(row)
                yield f"  :: else -> REFUSED_{self.name}\n  fi\n}}\n"
        yield f"inline STEP_{self.name}(event) {{\n  if"
        for state, found in rows.items():
            taken = f"{self._in(state)}(event)" if found else f"REFUSED_{self.name}"
            yield f"  :: AT_{self.name} == {self.states[state]} -> {taken}"
        yield "  fi\n}"

    def _in(self, state: Enum) -> str:
        return f"STEP_{self.states[state]}"

    def _row(self, row: Row[Any, Any]) -> Iterator[str]:
        wanted = [f"{'' if verdict else '!'}{self.guards[name]}" for name, verdict in row.wants().items()]
        holds = " && ".join((f"event == {self.events[row.event]}", *wanted))
        moves = [] if row.target is row.source else [f"AT_{self.name} = {self.states[row.target]}"]
        told = " ".join((self.states[row.source], self.events[row.event], self.states[row.target]))
        takes = "; ".join((*(self.effects[effect] for effect in row.effects), *moves, f'printf("{told}\\n")'))
        yield f"  {_note(row.reason + (' (a refusal)' if row.refusal else ''))}"
        yield f"  :: {holds} -> {takes}"

    def _environment(self) -> Iterator[str]:
        """One option a row: the event, and the verdicts for which it is taken. Between steps all guards are false."""
        yield f"\n#ifndef OWN_ENVIRONMENT\nhidden int EVENT_{self.name};"
        yield f"\nactive proctype ANY_{self.name}() {{\nend:\n  do\n  :: atomic {{\n       if"
        for row in self.table.rows:
            verdicts = [f"{self.guards[name]} = {str(verdict).lower()}" for name, verdict in row.wants().items()]
            chosen = "; ".join((f"EVENT_{self.name} = {self.events[row.event]}", *verdicts))
            yield f"       :: AT_{self.name} == {self.states[row.source]} -> {chosen}"
        yield f"       fi;\n       STEP_{self.name}(EVENT_{self.name})"
        yield from (f"       ; {name} = false" for name in self.guards.values())
        yield "     }\n  od\n}\n#endif"


def _note(text: str) -> str:
    return next(comment(one_line(text)))
