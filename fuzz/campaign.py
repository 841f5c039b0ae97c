"""The whole test of one participant: survey, sequences, shrinking, and the last look that proves it open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from quiesce.controller.clock import Clock
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.findings import Episode
from quiesce.fuzz.fresh import refused_first_restore
from quiesce.fuzz.last_look import LastLook
from quiesce.fuzz.line import Line, Waiting
from quiesce.fuzz.options import CALLS_MAX, IDS_MAX, RATE, Options
from quiesce.fuzz.pace import measured_by_work
from quiesce.fuzz.place import Place
from quiesce.fuzz.plans import Abilities, Planner, abilities_of, ids_of
from quiesce.fuzz.report import ParticipantReport, Violation
from quiesce.fuzz.rulebook import RULES, rules_of
from quiesce.fuzz.rules import Need
from quiesce.fuzz.run import Run
from quiesce.fuzz.shrinking import Shrunk, shrink
from quiesce.fuzz.steps import CallStep, Step
from quiesce.fuzz.survey import Found
from quiesce.fuzz.verdicts import Verdict
from quiesce.participants.errors import ConfigurationError
from quiesce.transport.port import Transport

__all__ = ["CALLS_MAX", "IDS_MAX", "RATE", "Interrupted", "Options", "Progress", "Renew", "examine"]

SILENT_MAX: Final = 20
"""How often a call that is not answered is tried, before it is left out."""

Renew = Callable[[], Awaitable[None]]
Progress = Callable[[int, int, Sequence[Violation]], None]
"""Told how many calls of how many were sent, and what was found so far, in the order of finding."""
Interrupted = Callable[[ParticipantReport], None]
"""Told what was found until a test was cancelled, before the cancellation goes on."""


async def examine(
    url: str,
    transport: Transport,
    clock: Clock,
    options: Options,
    *,
    renew: Renew | None = None,
    progress: Progress | None = None,
    interrupted: Interrupted | None = None,
    waiting: Waiting | None = None,
) -> ParticipantReport:
    """Test the participant at ``url``. It is left open, also when this is cancelled; ``interrupted`` is then told.

    ``waiting`` is told of each call whose answer does not come soon. What goes wrong with the test itself (a traffic
    that fails, a directory that is lost) ends it with a report of what was found until then.

    ``transport`` must take its tokens from ``quiesce.fuzz.bearers.FuzzedTokens``. ``renew`` puts a fresh server in
    the place of the old one before each sequence, where that can be done.
    """
    line = Line(transport, clock, options.rate, waiting)
    campaign = _Campaign(url, line, options, renew, progress, interrupted)
    return await campaign.conduct()


@dataclass(slots=True)
class _Campaign:
    url: str
    line: Line
    options: Options
    renew: Renew | None
    progress: Progress | None
    interrupted: Interrupted | None = None
    found: Found = field(default_factory=lambda: Found(Verdict.INTERRUPTED))
    place: Place | None = None
    abilities: Abilities = field(default_factory=Abilities)
    violations: list[Violation] = field(default_factory=list)
    exercised: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    sequences: int = 0
    verdict: Verdict | None = None
    gone: str = ""
    is_open: bool = False
    began_at: float = 0.0

    async def conduct(self) -> ParticipantReport:
        self.began_at = self.line.clock.monotonic()
        try:
            await self._test()
        except asyncio.CancelledError:
            await self._end_early()
            raise
        except StillClosed as error:
            self._tell(Verdict.LEFT_CLOSED, str(error))
            raise
        except ConfigurationError as error:
            if not self.sequences:
                raise
            self.verdict, self.gone = self.verdict or Verdict.INTERRUPTED, f"the test could not go on: {error}"
        finally:
            self._clear_away()
        return self._report()

    async def _test(self) -> None:
        if self.renew is not None:
            await self.renew()
        self.found, self.place = found, place = await arrive(self.url, self.line, self.options, by_work=False)
        self.exercised |= found.exercised
        for finding in found.findings:
            self.violations.append(Violation(finding.rule, finding.expected, finding.got, finding.known))
        if place is not None:
            if not place.alone:
                self.notes.append("it has live work of others, so that less can be said of what is in flight")
            self.abilities = abilities_of(place, lasting=self.renew is None)
            await self._try_all(place)

    async def _end_early(self) -> None:
        """Somebody has ended the test: what it was told of is what is read now.

        Raises:
            StillClosed: it is not known to accept work.
        """
        last = LastLook(self.url, self.line, self.options.nonce, self.options.answer_s)
        await last.take()
        if last.problem:
            self._tell(Verdict.LEFT_CLOSED, last.problem)
            raise StillClosed(f"{self.url}: {last.problem}")
        self.is_open = last.is_open
        self._tell(Verdict.INTERRUPTED, f"the test was ended before its end; {last.said}")

    def _clear_away(self) -> None:
        left = "" if self.place is None else self.place.clear_away()
        if left:
            self.notes.append(left)

    def _tell(self, verdict: Verdict, reason: str) -> None:
        if self.verdict is None:
            self.verdict, self.gone = verdict, reason
        if self.interrupted is not None:
            self.interrupted(self._report())

    # ---- sequences

    async def _try_all(self, place: Place) -> None:
        planner = Planner(place.subject, self.abilities, self.options.seed)
        for planned in planner.of_the_fresh():
            await self._try_whole(place, planned)
        if self.options.durations is None and self.verdict is None:
            place.durations = await measured_by_work(place)
        for planned in planner.systematic():
            if not await self._try_whole(place, planned):
                self._note_stop()
                return
        for planned in islice(planner.walks(), self.options.calls_max):
            steps = self._without_silent(place, planned)
            if not self._may_go_on(steps):
                return
            if steps:
                await self._try(place, steps)

    async def _try_whole(self, place: Place, planned: tuple[Step, ...]) -> bool:
        """Try a sequence to its end, behind every rule that it shows to be broken; whether that could be done."""
        steps = planned
        while steps := self._without_silent(place, steps):
            if not self._may_go_on(steps):
                return False
            steps = await self._try(place, steps)
        return True

    def _without_silent(self, place: Place, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The sequence without the calls that have long been known not to be answered: each would only cost time."""
        silent = {operation for operation, times in place.silent.items() if times > SILENT_MAX}
        for operation in sorted(silent):
            self.notes.append(f"{operation.value} was not answered {SILENT_MAX} times; it was then left out")
        return tuple(step for step in steps if not (isinstance(step, CallStep) and step.operation in silent))

    def _may_go_on(self, steps: Sequence[Step]) -> bool:
        ids_left = self.options.ids_max - len(self.line.ids)
        bounded = self.line.calls >= self.options.calls_max or ids_of(steps) > ids_left
        return self.verdict is None and not self._found_enough() and not bounded

    def _found_enough(self) -> bool:
        errors = sum(violation.is_error for violation in self.violations)
        return self.options.stop_after is not None and errors >= self.options.stop_after

    def _note_stop(self) -> None:
        if self._found_enough():
            self.notes.append("it was stopped at the wanted number of broken rules; the others were not looked for")
        elif self.verdict is None:
            self.notes.append("it was stopped before every planned sequence was tried; allow more calls or ids")

    async def _try(self, place: Place, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Run a sequence, and say what of it is still to be tried.

        Behind a rule that was just found broken it is run again, now that the rule is known to be; where nothing can be
        said of the fence behind such a step, the sequence is tried without it.
        """
        muted = frozenset(violation.rule.id for violation in self.violations)
        episode = await self._run(place, steps, muted)
        if self.sequences == 1 and self.abilities.lasting:
            self.notes += filter(None, [refused_first_restore(episode)])
        if episode.finding is not None:
            await self._record(place, episode)
        if self.progress is not None:
            self.progress(self.line.calls, self.options.calls_max, self.violations)
        last = len(steps) - 1
        if episode.finding is not None:
            return tuple(steps) if len(episode.steps) - 1 < last else ()
        if episode.lost_at is None or episode.lost_at >= last:
            return ()
        return (*steps[: episode.lost_at], *steps[episode.lost_at + 1 :])

    async def _run(self, place: Place, steps: Sequence[Step], muted: frozenset[str]) -> Episode:
        if self.verdict is Verdict.SHARED:
            return Episode((), ())
        if self.renew is not None:
            await self.renew()
            place.used_up.clear()
        self.sequences += 1
        episode = await Run(place, steps, muted=muted).execute()
        self.exercised |= episode.exercised | {"server.survives"}
        if self.verdict is None and episode.verdict is not None:
            self.verdict, self.gone = episode.verdict, episode.gone
        return episode

    async def _record(self, place: Place, episode: Episode) -> None:
        finding = episode.finding
        assert finding is not None  # noqa: S101 - whoever calls has looked
        at_call, at_s = self.line.calls, self.line.clock.monotonic() - self.began_at
        others = frozenset(rule.id for rule in RULES if rule.id != finding.rule.id)
        small = episode
        reproducible, needs_fresh = True, False
        try:
            if self.verdict is None:
                shrunk = await self._shrunk(place, episode, finding.rule.id, others)
                small = shrunk.episode
                reproducible = shrunk.reproducible or self.verdict not in {None, Verdict.SHARED}
                needs_fresh = shrunk.needs_fresh and not reproducible
        finally:  # what was found is told also if somebody interrupts its shrinking
            last = small.finding or finding
            violation = Violation(
                rule=finding.rule,
                expected=last.expected,
                got=last.got,
                known=last.known,
                steps=small.steps,
                trace=small.trace,
                found_in=len(episode.steps),
                reproducible=reproducible,
                needs_fresh=needs_fresh,
                at_call=at_call,
                at_s=at_s,
            )
            self.violations.append(violation)

    async def _shrunk(self, place: Place, episode: Episode, rule_id: str, others: frozenset[str]) -> Shrunk:
        """The smallest sequence. Where the rule is about time it is run once more, with all the time that there is."""
        shrunk = await shrink(lambda steps: self._run(place, steps, others), rule_id, episode)
        if rule_id != "reply.in-time" or self.verdict is not None:
            return shrunk
        waited_for, place.silent = place.silent, {}
        if shrunk.reproducible:
            last = await self._run(place, shrunk.episode.steps, others)
            if last.finding is not None and last.finding.rule.id == rule_id:
                place.silent = waited_for
                return replace(shrunk, episode=last)
        return replace(shrunk, episode=episode, reproducible=False)

    # ---- the outcome

    def _report(self) -> ParticipantReport:
        found, place = self.found, self.place
        verdict, reason = (found.verdict, found.reason) if self.verdict is None else (self.verdict, self.gone)
        broken = {violation.rule.id for violation in self.violations}
        role = None if place is None else place.subject.role
        held = tuple(rule.id for rule in RULES if rule.id in self.exercised and rule.id not in broken)
        return ParticipantReport(
            url=self.url,
            profile=self.options.profile,
            seed=self.options.seed,
            verdict=verdict,
            reason=reason,
            name="" if place is None else place.subject.name,
            role=role,
            coordinated=place is not None and place.subject.coordinated,
            violations=tuple(sorted(self.violations, key=_gravity)),
            held=held,
            untested={} if role is None or place is None else self._untested(role, broken),
            calls=self.line.calls,
            ids=len(self.line.ids),
            sequences=self.sequences,
            seconds=self.line.clock.monotonic() - self.began_at,
            notes=tuple(dict.fromkeys(self.notes)),
            accepts_work=self.is_open or verdict is Verdict.TESTED,
        )

    def _untested(self, role: Role, broken: set[str]) -> dict[str, str]:
        has = self.abilities
        lacking = {
            Need.TRAFFIC: not has.kinds,
            Need.DIRECTORY: not has.may_export,
            Need.RESTORE: not has.may_restore,
            Need.ANY_HEADER: not has.sends_any_header,
            Need.GRACE: not has.waits_for_grace,
            Need.LEASE: not has.leased,
        }
        found: dict[str, str] = {}
        for rule in rules_of(role):
            if rule.id not in self.exercised and rule.id not in broken:
                needs = [need.value for need in Need if need in rule.needs and lacking[need]]
                found[rule.id] = f"needs {' and '.join(needs)}" if needs else "did not come up"
        return found


def _gravity(violation: Violation) -> tuple[bool, bool, str]:
    return bool(violation.known), not violation.is_grave, violation.rule.id
