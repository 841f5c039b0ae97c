"""How the parts of a composed system step together, in Promela: the guarded commands over the emitted tables.

Every option of the process is one ``d_step``, so that a state that Spin stores is exactly the variables: controller,
participants, budgets, violations. Assertions have names of their own, by which Spin tells what was violated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quiesce.fsm.explore_packing import VIOLATION_BITS
from quiesce.fsm.explore_properties import PUBLISHED_WHOLE, QUIESCED_BEFORE_EXPORT, USED_UP_IDS_STAY_SO
from quiesce.fsm.explore_tables import Turn
from quiesce.fsm.promela_text import NOTHING
from quiesce.fsm.vocabulary import Phase

__all__ = ["ENUMERATED", "NO_DEADLOCK", "WITNESS", "Shape", "composition"]

ENUMERATED: Final = "enumerated"
"""The assertion that Spin composes nothing that the search has not met."""
NO_DEADLOCK: Final = "no_deadlock"
"""The assertion that every state that may not rest has a step."""
WITNESS: Final = "never_{}"
"""The assertions that deny what some state must have; Spin must find each violated (with ``-DWITNESS``)."""

_SHORT_MAX: Final = 32_767
_VIOLATIONS: Final = (1 << VIOLATION_BITS) - 1


class Shape(NamedTuple):
    """What the composition has to know of the tables: how many options there are, who takes part in what.

    ``steps`` and ``told`` are the most steps that a state of each participant and of the controller has;
    ``alternatives`` the most ways in which the controller can take an event in; ``sizes`` how many numbers the states
    of the controller and of each participant take.
    """

    first: tuple[int, ...]
    always: Mapping[str, int]
    sometimes: Mapping[str, int]
    cut: Sequence[int]
    exporting: Sequence[int]
    turns: Sequence[Turn]
    steps: Sequence[int]
    told: int
    alternatives: int
    sizes: Sequence[int]

    @property
    def places(self) -> range:
        """The participants by number."""
        return range(len(self.steps))


def composition(shape: Shape) -> Iterator[str]:
    """State, judgement, steps and process, as lines."""
    yield _CONSTANTS
    yield from _variables(shape)
    yield from _judgement(shape)
    yield _FOLLOW
    for place in shape.places:
        yield _CALL.format(place=place, enumerated=ENUMERATED)
    yield "     fi;\n     i++\n  :: else -> break\n  od\n}"
    orphan = "; ".join(f"s{place} = s{place}_orphaned(s{place})" for place in shape.places)
    again = "".join(
        f"  s{place} = (told_again{place}(t) -> s{place}_tried_again(s{place}) : s{place});\n" for place in shape.places
    )
    yield _CONTROLLER.format(published_whole=PUBLISHED_WHOLE, enumerated=ENUMERATED, orphan=orphan, again=again)
    for place in shape.places:
        yield _SITE.format(
            s=f"s{place}",
            reused=USED_UP_IDS_STAY_SO,
            commit=Phase.COMMIT,
            quiesced=QUIESCED_BEFORE_EXPORT,
            ordered="".join(_ordered(turn, place) for turn in shape.turns if turn.earlier[place]),
        )
    yield from _proctype(shape)


_CONSTANTS: Final = f"""
#define NOTHING {NOTHING}
/* n: the two bits of a class of faults, or 0 where no fault strikes */
#define AFFORDED(n, left) ((n) == 0 || ((left) & (n)))
#define COST(n) ((n) & {0x55555555})
/* whether what the controller does (m) has a further alternative a, and what that needs is left */
#define ALSO(m, a, left) (m != NOTHING && move_more(m) >= a && AFFORDED(move_need(m + a), left))\
"""
_FOLLOW: Final = """
/* alternative m of what the controller does: where it goes, what that costs, and the calls that leave */
inline follow() {
  b = b - COST(move_need(m));
  c = move_to(m);
  i = calls_from(m);
  do
  :: i < calls_from(m + 1) ->
     if"""
_CALL: Final = """\
     :: call_place(i) == {place} ->
        n = ADD{place}(s{place}, call_flight(i));
        deny(n == NOTHING, {enumerated});
        s{place} = (n == NOTHING -> s{place} : n)"""
_CONTROLLER: Final = """
/* the controller takes event e in; a is which of its alternatives */
inline take(a) {{
  m = MOVE(c, e);
  if
  :: m == NOTHING -> deny(true, {enumerated})
  :: else -> m = m + a; follow()
  fi
}}

/* step k of those that the controller meets by itself */
#define told_at(k) (told_from(c) + k)
#define told_free(k) (AFFORDED(told_need(told_at(k)), b) && QUIET(told_waits(told_at(k))))
#define told_can(k) (told_at(k) < told_from(c + 1) && told_free(k))
#define told_in(k) MOVE((told_publishes(told_at(k)) -> c_published(c) : c), told_event(told_at(k)))
#define told_also(k, a) (told_can(k) && ALSO(told_in(k), a, (b - COST(told_need(told_at(k))))))
inline told_step(k, a) {{
  t = told_at(k);
  printf("controller %d %d\\n", t, a);
  b = b - COST(told_need(t));
  e = told_event(t);
  if
  :: told_publishes(t) -> v = (WHOLE -> v : v | {published_whole}); c = c_published(c)
  :: else
  fi;
  if
  :: told_orphans(t) -> {orphan}
  :: else
  fi;
{again}\
  take(a);
  judge()
}}"""
_SITE: Final = """
/* step k of those that can happen at a participant */
#define {s}_at(k) ({s}_from({s}) + k)
#define {s}_can(k) ({s}_at(k) < {s}_from({s} + 1) && AFFORDED({s}_need({s}_at(k)), b))
#define {s}_in(k) MOVE(c, {s}_tells({s}_at(k)))
#define {s}_left(k) (b - COST({s}_need({s}_at(k))))
#define {s}_also(k, a) ({s}_can(k) && {s}_tells({s}_at(k)) != NOTHING && ALSO({s}_in(k), a, {s}_left(k)))
inline {s}_step(k, a) {{
  t = {s}_at(k);
  printf("{s} %d %d\\n", t, a);
  b = b - COST({s}_need(t));
  v = ({s}_reuses(t) -> v | {reused} : v);
  v = ({s}_begins_{commit}(t) && c_in_{commit}(c) && !QUIESCED -> v | {quiesced} : v);{ordered}
  e = {s}_tells(t);
  {s} = {s}_to(t);
  if
  :: e == NOTHING
  :: else -> take(a)
  fi;
  judge()
}}"""


def _variables(shape: Shape) -> Iterator[str]:
    names = ("c", *(f"s{place}" for place in shape.places), "b", "v")
    yield "\n/* the state */"
    for name, value, largest in zip(names, shape.first, (*shape.sizes, shape.first[-2], _VIOLATIONS), strict=True):
        yield f"{'short' if largest <= _SHORT_MAX else 'int'} {name} = {value};"
    yield "\n/* no part of the state: scratch, and the last verdicts */"
    yield from (f"hidden int {name};" for name in ("t", "e", "m", "n", "i", "bits"))
    yield from (f"hidden byte {name} = true;" for name in (ENUMERATED, NO_DEADLOCK, *shape.always))
    yield "#ifdef WITNESS"
    yield from (f"hidden byte {WITNESS.format(name)} = true;" for name in shape.sometimes)
    yield "#endif"


def _judgement(shape: Shape) -> Iterator[str]:
    quiet = " || ".join(f"((p) == {place} && s{place}_quiet(s{place}))" for place in shape.places)
    yield f"\n#define QUIET(p) ((p) == NOTHING || {quiet})"
    yield f"#define QUIESCED {_all('quiesced', shape.cut)}"
    yield f"#define WHOLE (QUIESCED && {_all('exported', shape.exporting)})"
    yield "\ninline deny(violated, name) { name = !(violated); assert(name) }"
    yield "\ninline judge() {\n  bits = v | c_broken(c);"
    for place in shape.places:
        yield f"  i = BROKEN{place}(c, s{place});\n  deny(i == NOTHING, {ENUMERATED});"
        yield "  bits = (i == NOTHING -> bits : bits | i);"
    yield from (f"  deny(bits & {bit}, {name});" for name, bit in shape.always.items())
    yield "#ifdef WITNESS"
    yield from (f"  deny(c_reached(c) & {bit}, {WITNESS.format(name)});" for name, bit in shape.sometimes.items())
    yield "#endif\n  skip\n}"


def _ordered(turn: Turn, place: int) -> str:
    """The judgement of what begins at a participant before its turn."""
    begins = f"s{place}_begins_{turn.phase}(t) && c_in_{turn.phase}(c)"
    return f"\n  v = ({begins} && !{_all(turn.mark, turn.earlier[place])} -> v | {turn.violation} : v);"


def _all(mark: str, places: Iterable[int]) -> str:
    return "(" + " && ".join(("true", *(f"s{place}_{mark}(s{place})" for place in places))) + ")"


def _proctype(shape: Shape) -> Iterator[str]:
    """One option for each step that a part can have; further ones for when the record of what it causes fails."""
    yield "\nactive proctype composed() {\nend:\n  do"
    parts = {"told": shape.told} | {f"s{place}": steps for place, steps in enumerate(shape.steps)}
    for part, steps in parts.items():
        for step in range(steps):
            yield f"  :: d_step {{ {part}_can({step}) -> {part}_step({step}, 0) }}"
            for alternative in range(1, shape.alternatives):
                also = f"{part}_also({step}, {alternative})"
                yield f"  :: d_step {{ {also} -> {part}_step({step}, {alternative}) }}"
    yield f"  :: atomic {{ timeout && !c_rests(c) -> {NO_DEADLOCK} = false; assert({NO_DEADLOCK}) }}\n  od\n}}"
