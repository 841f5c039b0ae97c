"""What a participant is held to during one run: the worlds of the strict table, and every other rule.

The judge is told what was sent and what came back. The first rule that is broken and not muted is the finding of the
run. A muted rule is one that was reported before: the run goes on behind it as far as that is possible. Where the
worlds have run out, only the rules that need no world are judged any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from quiesce.fsm.fence import FenceState
from quiesce.fsm.tables.fence import ARRIVALS, FenceEvent, FencePhase
from quiesce.fuzz.findings import Finding
from quiesce.fuzz.matching import expectations, is_replay, matches
from quiesce.fuzz.rulebook import RULE_BY_ID, rule_of_row
from quiesce.fuzz.rules import Profile, Rule
from quiesce.fuzz.seen import CONFLICT, OK, Seen
from quiesce.fuzz.steps import EARLIER_ID
from quiesce.fuzz.subject import Subject
from quiesce.fuzz.worlds import Arrival, Belief, Circumstances, Due, FenceRow, World, moves

__all__ = ["Judge"]

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
MISSING: Final = frozenset({404, 405, 501})
INVALID: Final = 422
CRASHES_FROM: Final = 500
_IN_VAIN: Final = frozenset(
    {FenceEvent.PREPARE_INCOMPLETE, FenceEvent.PREPARE_FAILED, FenceEvent.COMMIT_FAILED, FenceEvent.RESTORE_FAILED}
)
_MADE_TO_WAIT: Final = frozenset({"join_running", "wait_for_running"})


class Judge:
    """Judges one run of a sequence.

    Args:
        subject: who is under test.
        profile: by which measure.
        muted: ids of rules that were reported before.
        owes_restore: what is known of it; both where nothing is.
        unnamed: takes the fresh names of the run out of a text, so that two runs say the same.
    """

    def __init__(
        self,
        subject: Subject,
        profile: Profile,
        *,
        muted: Collection[str] = (),
        owes_restore: Iterable[bool] = (False,),
        unnamed: Callable[[str], str] = str,
    ) -> None:
        # a process that owes a restore serves nothing from its start
        used_up = frozenset({EARLIER_ID})
        worlds = [World(FenceState(closed=owes, finished=used_up), owes_restore=owes) for owes in owes_restore]
        self._subject = subject
        self._profile = profile
        self._muted = frozenset(muted)
        self._unnamed = unnamed
        self._answered: tuple[Due, ...] = ()
        self._stood: tuple[FencePhase, str | None] | None = None
        self._surely_taken: FenceRow | None = None
        self.strict = Belief(subject.oracle, worlds)
        self.recorded = Belief(subject.recorded, worlds) if profile is Profile.GYM_A else None
        self.finding: Finding | None = None
        self.seen_again: list[Finding] = []
        self.exercised: set[str] = set()

    # ---- what is told to it

    def next_step(self) -> None:
        """What comes from now on is due to another step."""
        self._answered = ()

    def arrived(self, arrivals: Sequence[Arrival], circumstances: Circumstances) -> None:
        """Calls have reached the participant; of several, nobody knows which came first."""
        for belief in self._beliefs():
            belief.arrive_in_any_order(arrivals, circumstances)

    def passed(self, circumstances: Circumstances) -> None:
        """Time has passed, or something has become known of what only the participant sees."""
        for belief in self._beliefs():
            belief.settle(circumstances)

    def grace_is_over(self, circumstances: Circumstances) -> None:
        """So much time has passed that an incomplete prepare which nobody repeated was given up."""
        for belief in self._beliefs():
            belief.settle(circumstances)
            belief.give_up_incomplete()

    def abandoned(self, number: int) -> None:
        """Nobody will see the answer to this call."""
        for belief in self._beliefs():
            belief.abandon(number)

    def replied(self, number: int, seen: Seen, recorded: object, *, late: bool = False) -> bool:
        """The answer to a call of the fence; whether it is a fresh one (no repetition), and so tells how things are.

        ``late``: its deadline may have passed before it came.
        """

        def fits(due: Due) -> bool:
            return matches(due, seen, role=self._subject.role, recorded=recorded, late=late)

        before = self.strict.worlds
        possible = self.strict.replied(number, fits)
        explained = self._recorded_keeps(lambda belief: belief.replied(number, fits))
        self._exercise(possible)
        fitting = tuple(due for due in possible if fits(due))
        self._answered += fitting
        if before and not self.strict:
            expected = expectations(possible, role=self._subject.role)
            row = _most_telling(possible)
            if explained:
                row = self._first_known((row, *self._ended(before)))
            self._break_fence(row, expected, str(seen), explained=explained)
        return bool(fitting) and not any(is_replay(due) for due in fitting)

    def stands(self, phase: FencePhase, active: str | None) -> None:
        """How the participant's capabilities say that its fence stands."""
        before = self.strict.keep(lambda world: (world.fence.phase, world.fence.active) == (phase, active))
        explained = self._recorded_keeps(
            lambda belief: belief.keep(lambda world: (world.fence.phase, world.fence.active) == (phase, active))
        )
        for world in self.strict.worlds:
            if world.last is not None:
                self.exercised.add(rule_of_row(self._subject.role, world.last).id)
        if before and not self.strict:
            expected = " or ".join(dict.fromkeys(_stance(world.fence.phase, world.fence.active) for world in before))
            culprit = self._culprit(before, moved=self._stood not in {None, (phase, active)})
            self._break_fence(culprit, expected, _stance(phase, active), explained=explained)
        self._stood = (phase, active)
        taken = {world.last for world in self.strict.worlds}
        self._surely_taken = taken.pop() if len(taken) == 1 else None

    def admission(self, *, closed: bool, got: str) -> None:
        """New work was admitted, or refused because admission is closed."""
        before = self.strict.keep(lambda world: world.fence.closed is closed)
        explained = self._recorded_keeps(lambda belief: belief.keep(lambda world: world.fence.closed is closed))
        self.exercised.add("data.open" if not closed else "data.closed")
        if any(world.fence.active is None for world in before):
            self.exercised.add("data.closed-for-nobody")
        if not before or self.strict:
            return
        if not closed:
            self._break(RULE_BY_ID["data.closed"], "refused while admission is closed", got, explained=explained)
        elif any(world.fence.active is None for world in before):
            rule = RULE_BY_ID["data.closed-for-nobody"]
            self._break(rule, "admitted: no id holds it", got, explained=explained)
        else:
            self._break(RULE_BY_ID["data.open"], "admitted", got, explained=explained)

    def check(self, rule_id: str, *, holds: bool, expected: str, got: str) -> None:
        """A rule that needs no world: whether it holds."""
        self._check(rule_id, holds=holds, expected=expected, got=got, explained=True)

    def check_fence(self, rule_id: str, *, holds: bool, expected: str, got: str) -> None:
        """A rule of the fence that is about time: what happened is possible, only too late."""
        self._check(rule_id, holds=holds, expected=expected, got=got, explained=bool(self.recorded))

    def _check(self, rule_id: str, *, holds: bool, expected: str, got: str, explained: bool) -> None:
        self.exercised.add(rule_id)
        if not holds:
            self._break(RULE_BY_ID[rule_id], expected, got, explained=explained)

    def sound(self, seen: Seen, asked: str, number: int | None = None) -> bool:
        """Whether a reply to a valid call with the right bearer is one that a participant can have given.

        ``asked``: what was sent, in words; ``number``: of a call that the fence decides.
        """
        status, got = seen.status, str(seen)
        kinds = (
            ("reply.crash", status >= CRASHES_FROM and status not in MISSING, "no server error"),
            ("routes.present", status in MISSING, "the route"),
            ("bearer.accepted", status in {UNAUTHORIZED, FORBIDDEN}, "not refused as unauthorized"),
            ("request.accepted", status == INVALID, f"not refused as malformed: {asked}"),
        )
        for rule_id, is_so, expected in kinds:
            self._check(rule_id, holds=not is_so, expected=expected, got=got, explained=self._is_recorded_crash(number))
        odd = status not in {OK, CONFLICT} and not any(is_so for _, is_so, _ in kinds)
        self.check("reply.status", holds=not odd, expected="200 or 409", got=got)
        if status == CONFLICT:
            self.check("reply.refusal", holds=_has_envelope(seen), expected="error.code and error.detail", got=got)
        return status == OK or (status == CONFLICT and _has_envelope(seen))

    def _is_recorded_crash(self, number: int | None) -> bool:
        dues = [] if number is None or self.recorded is None else [w.answer_to(number) for w in self.recorded.worlds]
        return any(due is not None and due.row.effects[-1] == "answer_crash" for due in dues)

    # ---- what can be asked of it

    @property
    def closed(self) -> frozenset[bool]:
        """Every verdict that "admission is closed" can have; both where nothing is known any more."""
        return frozenset(world.fence.closed for world in self.strict.worlds) or frozenset({False, True})

    @property
    def polled(self) -> bool:
        """Whether an incomplete prepare surely holds the fence, and nothing of it runs."""
        worlds = self.strict.worlds
        preparing = FencePhase.PREPARING
        return bool(worlds) and all(
            world.fence.phase is preparing and world.fence.unattended and not world.fence.running for world in worlds
        )

    def lose(self) -> None:
        """Nothing is known of the fence any more."""
        for belief in self._beliefs():
            belief.worlds = ()

    def dismiss(self) -> None:
        """Somebody else had a hand in what was seen: it accuses nobody, and nothing is known of the fence any more."""
        self.finding = None
        self.seen_again = []
        self.lose()

    # ---- inside

    def _beliefs(self) -> list[Belief]:
        return [self.strict] if self.recorded is None else [self.strict, self.recorded]

    def _recorded_keeps(self, tell: Callable[[Belief], object]) -> bool:
        if self.recorded is None:
            return False
        tell(self.recorded)
        return bool(self.recorded)

    def _exercise(self, dues: Iterable[Due]) -> None:
        for due in dues:
            for row in (due.row, due.via):
                if row is not None:
                    self.exercised.add(rule_of_row(self._subject.role, row).id)

    def _culprit(self, before: tuple[World, ...], *, moved: bool) -> FenceRow | None:
        """The row whose consequence is missing: that of the answer just given, else the newest that was taken.

        An answer that should have changed nothing is not to blame where nothing has changed, nor where an operation
        may have ended by itself since the participant was looked at last; rather in vain than as it was meant to.
        """
        moving = [due.row for due in self._answered if moves(due.row)]
        answered = [due.row for due in self._answered if moved]
        taken = [world.last for world in before if world.last is not None]
        return next(iter((*reversed(moving), *self._ended(before), *reversed(answered), *reversed(taken))), None)

    def _ended(self, worlds: Iterable[World]) -> list[FenceRow]:
        """By which rows an operation may have ended by itself since the participant was looked at last."""
        rows = [world.last for world in worlds if world.last is not None]
        ended = [row for row in rows if row.event not in ARRIVALS and row != self._surely_taken]
        return sorted(ended, key=lambda row: row.event not in _IN_VAIN)

    def _first_known(self, rows: Sequence[FenceRow | None]) -> FenceRow | None:
        """Where real servers do the same: the first row of which they are known to; else the first."""
        known = (row for row in rows if row is not None and self._profile in rule_of_row(self._subject.role, row).known)
        return next(known, rows[0])

    def _break_fence(self, row: FenceRow | None, expected: str, got: str, *, explained: bool) -> None:
        rule = RULE_BY_ID["fence.wrong-phase"] if row is None else rule_of_row(self._subject.role, row)
        self._break(rule, expected, got, explained=explained)

    def _break(self, rule: Rule, expected: str, got: str, *, explained: bool) -> None:
        self.exercised.add(rule.id)
        known = rule.known.get(self._profile)
        name = known.name if known is not None and explained else ""
        finding = Finding(rule, self._unnamed(expected), self._unnamed(got), name)
        if rule.id in self._muted:
            self.seen_again.append(finding)
        elif self.finding is None:
            self.finding = finding


def _most_telling(possible: Iterable[Due]) -> FenceRow | None:
    """The row that a mismatch is about: where a call could have been made to join or to wait, that it was."""
    dues = tuple(possible)
    telling = [due.via for due in dues if due.via is not None and due.via.effects[-1] in _MADE_TO_WAIT]
    telling += [due.row for due in dues if "end_waiting_prepare" in due.row.effects]
    telling += [due.row for due in dues if not is_replay(due)]
    return next(iter((*telling, *(due.row for due in dues))), None)


def _stance(phase: FencePhase, active: str | object | None) -> str:
    return f"{phase.value}, held by {'nobody' if active is None else active}"


def _has_envelope(seen: Seen) -> bool:
    error = seen.fields.get("error")
    return isinstance(error, dict) and isinstance(error.get("code"), str) and isinstance(error.get("detail"), str)
