"""A mini fleet: runs the transaction core against participants that answer by script, or else as healthy ones would.

    fleet = Fleet(policy(), agent(), resources())
    fleet.script("agent", Verb.CLOSE, Outcome.INCOMPLETE, Outcome.LOST)  # the first two; then the healthy one
    fleet.begin().run()
    fleet.ask(m.CommitRequested()).run()
    assert fleet.at is TransactionState.COMMITTED

``run`` answers calls in the order in which they were made, does what the core asks of a trainer and a store, and fires
the short timers (poll, retry, back-off) when nothing else is left. It never lets a deadline pass by itself: that is
``fire``. Every step is held against the core's contract.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

from support.contract import ContractChecker

from quiesce.fsm import messages as m
from quiesce.fsm.advance import advance
from quiesce.fsm.engine import Engine, TableEngine
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.transaction import Member, MemberSpec, Plan, initial_state
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Role, Verb

__all__ = ["DRAIN_ONLY", "SHORT_TIMERS", "SILENT", "Answer", "Fleet", "agent", "auxiliary", "policy", "resources"]

STEPS_MAX: Final = 2_000
EVERY_PHASE: Final = frozenset(Phase)
DRAIN_ONLY: Final = EVERY_PHASE - {Phase.COMMIT, Phase.RESTORE}

SILENT: Final = None
"""No answer yet: the call stays open until the scenario answers it."""
Answer = Outcome | None
"""``Outcome.LOST`` and ``Outcome.NEVER_SENT`` are no answers at all: the call fails."""

SHORT_TIMERS: Final = (m.Timer.POLL, m.Timer.RETRY, m.Timer.BACKOFF)
"""Timers that only space calls out; ``run`` fires them when nothing else is left."""


def policy(
    name: str = "policy",
    *,
    phases: frozenset[Phase] = EVERY_PHASE,
    refuses_idle_resume: bool = False,
    exports_elsewhere: bool = False,
) -> MemberSpec:
    """A policy; ``phases=DRAIN_ONLY`` for one that exports nothing, ``refuses_idle_resume`` for a coordinator."""
    return MemberSpec(_key(name), Role.POLICY, phases, refuses_idle_resume, exports_elsewhere)


def agent(name: str = "agent") -> MemberSpec:
    """An agent server."""
    return MemberSpec(_key(name), Role.AGENT, EVERY_PHASE)


def resources(name: str = "resources") -> MemberSpec:
    """A resource server."""
    return MemberSpec(_key(name), Role.RESOURCES, EVERY_PHASE)


def auxiliary(name: str = "judge") -> MemberSpec:
    """An auxiliary model: it is looked at and never called otherwise."""
    return MemberSpec(_key(name), Role.AUXILIARY, frozenset({Phase.PREFLIGHT}))


def _key(name: str) -> ParticipantKey:
    return ParticipantKey("main", name)


class Fleet:
    """One transaction and the participants, trainer and store that it meets."""

    def __init__(
        self,
        *members: MemberSpec,
        engine: Engine | None = None,
        is_restore: bool = False,
        drain: DrainMode = DrainMode.OVERLAPPED,
        watches_stragglers: bool = False,
        restarts_stragglers: bool = False,
    ) -> None:
        self.plan = Plan(members, is_restore, drain, watches_stragglers, restarts_stragglers)
        self.engine = engine or TableEngine()
        self.state = initial_state(self.plan)
        self.checker = ContractChecker()
        self.log: list[m.Command] = []
        self.open_calls: deque[m.Call] = deque()
        self.armed: set[tuple[m.Timer, ParticipantKey | None]] = set()
        self.errands: deque[m.Consult | m.Verify | m.Publish | m.Probe] = deque()
        self.publications: deque[m.Publication] = deque()
        self.consultations: deque[bool] = deque()
        self.verifications: deque[bool] = deque()
        self._scripts: dict[tuple[str, Verb], deque[Answer]] = defaultdict(deque)

    # what has come of it

    @property
    def at(self) -> TransactionState:
        """State of the transaction."""
        return self.state.transaction

    def member(self, name: str) -> Member:
        """What the core knows of a participant."""
        return self.state.members[self.plan.index[_key(name)]]

    def calls(self, verb: Verb | None = None, leg: m.Leg | None = None) -> list[str]:
        """``name verb`` of the calls made so far (only ``name`` when a verb is asked for), ``#n`` for a fresh id."""
        made = [command for command in self.log if isinstance(command, m.Call)]
        wanted = [call for call in made if verb in {None, call.verb} and leg in {None, call.leg}]
        return [
            call.key.name + ("" if verb else f" {call.verb}") + (f" #{call.id_index}" if call.id_index else "")
            for call in wanted
        ]

    def seen(self, kind: type[m.Command]) -> list[m.Command]:
        """Commands of one kind so far."""
        return [command for command in self.log if isinstance(command, kind)]

    def notes(self) -> list[str]:
        """Effects that were noted so far."""
        return [command.effect for command in self.log if isinstance(command, m.Note)]

    # what happens to it

    def script(self, name: str, verb: Verb, *answers: Answer) -> Fleet:
        """The next answers of a participant to a verb; after them it is healthy again."""
        self._scripts[name, verb].extend(answers)
        return self

    def ask(self, event: m.Event) -> Fleet:
        """Post one event; what is refused leaves everything as it was."""
        before = self.state
        after, commands = advance(before, event, self.engine)
        self.checker.saw(before, event, after, commands)
        self.state = after
        self._settle_errand(event)
        for command in commands:
            self._note(command)
        return self

    def begin(self) -> Fleet:
        """Begin the cut or restore."""
        return self.ask(m.Begin())

    def fire(self, timer: m.Timer, name: str | None = None) -> Fleet:
        """Let an armed timer run out."""
        key = None if name is None else _key(name)
        assert (timer, key) in self.armed, f"{timer} of {name} is not armed; armed: {sorted(map(str, self.armed))}"
        self.armed.discard((timer, key))
        return self.ask(m.TimerFired(timer, key))

    def answer(self, name: str, verb: Verb, answer: Answer) -> Fleet:
        """Answer the oldest open call of this participant and verb."""
        call = next(call for call in self.open_calls if (call.key.name, call.verb) == (name, verb))
        if self._scripts[name, verb]:
            self._scripts[name, verb].popleft()
        return self.answer_call(call, answer)

    def run(self, *, until: TransactionState | None = None) -> Fleet:
        """Go on until nothing is left to do, or until the transaction is in a state."""
        for _ in range(STEPS_MAX):
            if self.at is until or not self._one_step():
                return self
        raise AssertionError(f"the fleet does not come to rest: {self.state}")

    def to(self, state: TransactionState) -> Fleet:
        """Run and ask until the transaction is in ``state``, on the way that a healthy one takes."""
        asks: dict[TransactionState, m.Event] = {
            TransactionState.IDLE: m.Begin(),
            TransactionState.PAUSED: m.CommitRequested(),
            TransactionState.COMMITTED: m.PublishRequested(),
            TransactionState.RESTORED: m.ReleaseRequested(),
        }
        for _ in range(len(TransactionState)):
            self.run(until=state)
            if self.at is state:
                return self
            self.ask(asks[self.at])
        raise AssertionError(f"{state} is not on the way; the fleet is at {self.at}")

    # inside

    def _note(self, command: m.Command) -> None:
        self.log.append(command)
        if isinstance(command, m.Call):
            self.open_calls.append(command)
        elif isinstance(command, m.Arm):
            self.armed.add((command.timer, command.key))
        elif isinstance(command, m.Disarm):
            self.armed.discard((command.timer, command.key))
        elif isinstance(command, m.Consult | m.Verify | m.Publish | m.Probe):
            self.errands.append(command)

    def _settle_errand(self, event: m.Event) -> None:
        """What was answered is no errand any more, whoever answered it."""
        for errand in self.errands:
            if isinstance(event, _ANSWERS[type(errand)]) and getattr(errand, "key", None) == getattr(
                event, "key", None
            ):
                self.errands.remove(errand)
                return

    def _one_step(self) -> bool:
        for call in self.open_calls:
            answer = self._next_answer(call)
            if answer is not None:
                self.answer_call(call, answer)
                return True
        if self.errands:
            self.ask(self._run_errand(self.errands[0]))
            return True
        for timer, key in sorted(self.armed, key=str):
            if timer in SHORT_TIMERS:
                self.fire(timer, None if key is None else key.name)
                return True
        return False

    def _next_answer(self, call: m.Call) -> Answer:
        script = self._scripts[call.key.name, call.verb]
        if script and script[0] is None:
            return None
        return script.popleft() if script else self.healthy(call)

    def answer_call(self, call: m.Call, answer: Answer) -> Fleet:
        """Answer one open call."""
        assert answer is not None
        self.open_calls.remove(call)
        if answer in {Outcome.LOST, Outcome.NEVER_SENT}:
            applied = answer is Outcome.LOST
            return self.ask(m.CallFailed(call.key, call.leg, call.verb, call.id_index, maybe_applied=applied))
        return self.ask(m.Replied(call.key, call.leg, call.verb, call.id_index, answer))

    def healthy(self, call: m.Call) -> Outcome:
        """What a healthy participant answers."""
        if call.verb is Verb.INSPECT and self.at is TransactionState.COMMITTING:
            return Outcome.HELD_PREPARED
        return _HEALTHY[call.verb]

    def _run_errand(self, errand: m.Command) -> m.Event:
        if isinstance(errand, m.Consult):
            kept = self.consultations.popleft() if self.consultations else True
            return m.ReceiptsReady(errand.key) if kept else m.ConsultFailed(errand.key)
        if isinstance(errand, m.Verify):
            return m.Verification(errand.key, self.verifications.popleft() if self.verifications else True)
        return self.publications.popleft() if self.publications else m.Publication.PUBLISHED


_ANSWERS: Final[dict[type[m.Command], tuple[type[m.Event], ...]]] = {
    m.Consult: (m.ReceiptsReady, m.ConsultFailed),
    m.Verify: (m.Verification,),
    m.Publish: (m.Publication,),
    m.Probe: (m.Publication,),
}

_HEALTHY: Final = {
    Verb.INSPECT: Outcome.OPEN,
    Verb.CLOSE: Outcome.PAUSED,
    Verb.AWAIT_CUT: Outcome.PAUSED,
    Verb.EXPORT: Outcome.EXPORTED,
    Verb.IMPORT: Outcome.IMPORTED,
    Verb.RELEASE: Outcome.RELEASED,
    Verb.ACKNOWLEDGE: Outcome.ACKNOWLEDGED,
    Verb.RETIRE: Outcome.RETIRED,
}


def outcomes(commands: Iterable[m.Command]) -> list[Outcome | None]:
    """What the failures among the commands were caused by."""
    return [command.outcome for command in commands if isinstance(command, m.Failed)]
