"""The whole test of one participant: survey, sequences, shrinking, and the last look that proves it open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from quiesce.controller.clock import Clock
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.findings import Episode
from quiesce.fuzz.line import Line
from quiesce.fuzz.pace import measured
from quiesce.fuzz.place import Place
from quiesce.fuzz.plans import Planner, abilities_of, ids_of
from quiesce.fuzz.report import ParticipantReport, Violation
from quiesce.fuzz.rulebook import RULES, rules_of
from quiesce.fuzz.rules import Need, Profile
from quiesce.fuzz.run import Run
from quiesce.fuzz.shrinking import shrink
from quiesce.fuzz.steps import Step
from quiesce.fuzz.survey import Found, Survey
from quiesce.fuzz.traffic import Traffic, no_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.wording import OWN_NAMES, Durations
from quiesce.transport.port import Transport

__all__ = ["CALLS_MAX", "IDS_MAX", "RATE", "Interrupted", "Options", "Progress", "Renew", "arrive", "examine"]

CALLS_MAX: Final = 4000
IDS_MAX: Final = 1500
RATE: Final = 200.0
WAIT_FOR_OTHERS_S: Final = 3.0
"""How long a prepare waits at most for the work of others."""

Renew = Callable[[], Awaitable[None]]
Progress = Callable[[int, int, Sequence[Violation]], None]
"""Told how many calls of how many were sent, and what was found so far, in the order of finding."""
Interrupted = Callable[[ParticipantReport], None]
"""Told what was found until a test was cancelled, before the cancellation goes on."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a participant is tested.

    Attributes:
        profile: by which measure.
        seed: decides the random sequences.
        nonce: makes the ids of this campaign its own; two campaigns on one server must not share it.
        traffic: drives the data plane.
        root: a directory that this process and the participant both see, for exports; None for no commits.
        root_is_shared: whether the participant surely sees it; otherwise its commits may fail.
        allow_restore: restores may be sent. They fence attempts and install state.
        allow_live_work: it is tested although it has live work.
        stop_after: how many rules of severity error may be found broken before it stops; None: it goes on.
        calls_max, ids_max: bounds; shrinking and leaving open may exceed the first by a little.
        rate: calls a second at most, None for no bound.
        durations: how long things take; None: measured.
        grace_s: how long after its deadline an incomplete prepare may be held at most; None: not waited for.
        sends_any_header: whether the transport can carry a header that is not ASCII; ``HttpTransport`` cannot.
    """

    nonce: str
    profile: Profile = Profile.STRICT
    seed: int = 0
    traffic: Traffic = no_traffic
    root: Path | None = None
    root_is_shared: bool = True
    allow_restore: bool = False
    allow_live_work: bool = False
    stop_after: int | None = None
    calls_max: int = CALLS_MAX
    ids_max: int = IDS_MAX
    rate: float | None = RATE
    durations: Durations | None = None
    grace_s: float | None = None
    sends_any_header: bool = False


async def examine(
    url: str,
    transport: Transport,
    clock: Clock,
    options: Options,
    *,
    renew: Renew | None = None,
    progress: Progress | None = None,
    interrupted: Interrupted | None = None,
) -> ParticipantReport:
    """Test the participant at ``url``. It is left open, also when this is cancelled; ``interrupted`` is then told.

    ``transport`` must take its tokens from ``quiesce.fuzz.bearers.FuzzedTokens``. ``renew`` puts a fresh server in
    the place of the old one before each sequence, where that can be done.
    """
    line = Line(transport, clock, options.rate)
    campaign = _Campaign(url, line, options, renew, progress, interrupted)
    return await campaign.conduct()


async def arrive(url: str, line: Line, options: Options) -> tuple[Found, Place | None]:
    """Find out who answers at ``url``, and make ready to test it; None where it is not to be tested."""
    survey = Survey(
        url,
        line,
        (f"{OWN_NAMES}{options.nonce}-look-{number}" for number in range(1, 1000)),
        profile=options.profile,
        allow_live_work=options.allow_live_work,
        allow_restore=options.allow_restore,
    )
    found = await survey.look()
    if found.subject is None:
        return found, None
    place = Place(
        subject=found.subject,
        line=line,
        clock=line.clock,
        nonce=options.nonce,
        traffic=options.traffic,
        durations=options.durations or Durations(grace_s=options.grace_s),
        profile=options.profile,
        root=options.root,
        root_is_shared=options.root_is_shared,
        may_restore=options.allow_restore,
        alone=found.alone,
        sends_any_header=options.sends_any_header,
        owes_restore=found.owes_restore,
    )
    if options.durations is None:
        place.durations = await measured(place)
    if not place.alone:
        place.durations = replace(place.durations, far_s=min(place.durations.far_s, WAIT_FOR_OTHERS_S))
    return found, place


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
    violations: list[Violation] = field(default_factory=list)
    exercised: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    sequences: int = 0
    verdict: Verdict | None = None
    gone: str = ""
    began_at: float = 0.0

    async def conduct(self) -> ParticipantReport:
        self.began_at = self.line.clock.monotonic()
        try:
            await self._test()
        except asyncio.CancelledError:
            self._tell(Verdict.INTERRUPTED, "the test was ended before its end; it accepts work")
            raise
        except StillClosed as error:
            self._tell(Verdict.LEFT_CLOSED, str(error))
            raise
        return self._report()

    async def _test(self) -> None:
        if self.renew is not None:
            await self.renew()
        self.found, self.place = found, place = await arrive(self.url, self.line, self.options)
        self.exercised |= found.exercised
        for finding in found.findings:
            self.violations.append(Violation(finding.rule, finding.expected, finding.got, finding.known))
        if place is not None:
            if not place.alone:
                self.notes.append("it has live work of others, so that less can be said of what is in flight")
            await self._try_all(place)

    def _tell(self, verdict: Verdict, reason: str) -> None:
        if self.verdict is None:
            self.verdict, self.gone = verdict, reason
        if self.interrupted is not None:
            self.interrupted(self._report())

    # ---- sequences

    async def _try_all(self, place: Place) -> None:
        planner = Planner(place.subject, abilities_of(place), self.options.seed)
        for planned in planner.systematic():
            steps: tuple[Step, ...] = planned
            while steps:
                if not self._may_go_on(steps):
                    self._note_stop()
                    return
                steps = await self._try(place, steps)
        for planned in islice(planner.walks(), self.options.calls_max):
            if not self._may_go_on(planned):
                return
            await self._try(place, planned)

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
        reproducible = True
        try:
            if self.verdict is None:
                shrunk = await shrink(lambda steps: self._run(place, steps, others), finding.rule.id, episode)
                small, reproducible = shrunk.episode, shrunk.reproducible
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
                at_call=at_call,
                at_s=at_s,
            )
            if self.verdict is not Verdict.SHARED:  # else somebody else may have had a hand in it
                self.violations.append(violation)

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
            untested={} if role is None or place is None else self._untested(role, place, broken),
            calls=self.line.calls,
            ids=len(self.line.ids),
            sequences=self.sequences,
            seconds=self.line.clock.monotonic() - self.began_at,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _untested(self, role: Role, place: Place, broken: set[str]) -> dict[str, str]:
        has = abilities_of(place)
        lacking = {
            Need.TRAFFIC: not has.kinds,
            Need.DIRECTORY: not has.may_export,
            Need.RESTORE: not has.may_restore,
            Need.ANY_HEADER: not has.sends_any_header,
            Need.GRACE: not has.waits_for_grace,
        }
        found: dict[str, str] = {}
        for rule in rules_of(role):
            if rule.id not in self.exercised and rule.id not in broken:
                needs = [need.value for need in Need if need in rule.needs and lacking[need]]
                found[rule.id] = f"needs {' and '.join(needs)}" if needs else "did not come up"
        return found


def _gravity(violation: Violation) -> tuple[bool, bool, str]:
    return bool(violation.known), not violation.is_error, violation.rule.id
