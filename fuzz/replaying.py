"""Running a saved sequence again, with fresh names, and seeing whether it still breaks its rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from quiesce.controller.clock import Clock
from quiesce.fsm.errors import QuiesceError
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.findings import Episode, Finding
from quiesce.fuzz.fresh import NEEDS_FRESH, is_restore, refused_now
from quiesce.fuzz.last_look import LastLook
from quiesce.fuzz.line import Line, Waiting
from quiesce.fuzz.options import Options
from quiesce.fuzz.place import Place
from quiesce.fuzz.replays import ReplayFile
from quiesce.fuzz.rulebook import RULES
from quiesce.fuzz.run import NOT_SENT, Run
from quiesce.fuzz.steps import CallStep, Deadline, Operation, WorkStep
from quiesce.fuzz.traffic import work_call
from quiesce.fuzz.verdicts import Verdict
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.transport.port import Transport

__all__ = ["Replayed", "replay_at"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay.

    Attributes:
        finding: how the rule was broken; None where it was not.
        episode: the run; None where the rule was broken before any sequence.
        unchecked: why the rule was not put to the test by these steps; empty where it was broken, or holds.
        closed: why it could not be proven that the participant accepts work again; empty where it does.
    """

    finding: Finding | None
    episode: Episode | None
    unchecked: str = ""
    closed: str = ""


async def replay_at(
    url: str,
    transport: Transport,
    clock: Clock,
    options: Options,
    replay: ReplayFile,
    *,
    waiting: Waiting | None = None,
    interrupted: Callable[[str], None] | None = None,
    name: str = "",
) -> Replayed:
    """Run the sequence of ``replay`` at ``url``. The participant is left open.

    ``waiting`` as for ``examine``; ``interrupted`` is told how it was seen last, before a cancellation goes on;
    ``name`` is what errors call the participant, by default its URL.

    Raises:
        ConfigurationError: it cannot be run there: another role, or calls that are not allowed.
        QuiesceError: nobody that could be tested answers there; the text says why.
        StillClosed: it was interrupted, and the participant could not be opened.
    """
    line = Line(transport, clock, options.rate, waiting)
    try:
        return await _replayed(url, line, options, replay, name)
    except asyncio.CancelledError:
        last = LastLook(url, line, options.nonce, options.answer_s)
        await last.take()
        if last.problem:
            raise StillClosed(f"{name or url}: {last.problem}") from None
        if interrupted is not None:
            interrupted(last.said)
        raise


async def _replayed(url: str, line: Line, options: Options, replay: ReplayFile, name: str) -> Replayed:
    found, place = await arrive(url, line, options, by_work=_is_timed_by_work(replay))
    rule_id, called = replay.violation.rule, name or url
    early = next((finding for finding in found.findings if finding.rule.id == rule_id), None)
    closed = found.reason if found.verdict.in_doubt else ""
    if early is not None:
        return Replayed(early, None, closed=closed)
    if place is None:
        error = StillClosed if found.verdict is Verdict.LEFT_CLOSED else QuiesceError
        raise error(f"{called}: {found.verdict.value}: {found.reason.replace(url, called)}")
    try:
        _check_possible(replay, place)
        others = frozenset(rule.id for rule in RULES if rule.id != rule_id)
        episode = await Run(place, replay.steps, muted=others).execute()
    finally:
        place.clear_away()
    judged = _judged(called, rule_id, episode, found.exercised)
    if judged.finding is None and not judged.unchecked:
        return replace(judged, unchecked=_other_situation(replay, episode))
    return judged


def _is_timed_by_work(replay: ReplayFile) -> bool:
    """Whether it matters how long work lasts, and nothing is restored that work would keep from being restored."""
    has_work = any(isinstance(step, WorkStep) for step in replay.steps)
    return has_work and not any(is_restore(step) for step in replay.steps)


def _judged(called: str, rule_id: str, episode: Episode, exercised_before: frozenset[str]) -> Replayed:
    closed = episode.gone if episode.verdict is not None and episode.verdict.in_doubt else ""
    if episode.finding is not None:
        return Replayed(episode.finding, episode, closed=closed)
    if episode.verdict is not None:
        error = StillClosed if episode.verdict is Verdict.LEFT_CLOSED else QuiesceError
        raise error(f"{called}: {episode.verdict.value}: {episode.gone}")
    exercised = episode.exercised | exercised_before | {"server.survives"}
    return Replayed(None, episode, unchecked="" if rule_id in exercised else _why_unchecked(episode))


def _other_situation(replay: ReplayFile, episode: Episode) -> str:
    """How the steps before the last were answered otherwise than in the finding; empty where they were not.

    The last step is the accused one: a server without the fault answers it otherwise.
    """
    before = list(zip(replay.answers, episode.trace, strict=False))[: max(0, len(replay.steps) - 1)]
    for number, (then, now) in enumerate(before, start=1):
        unlike = bool(then.seen and now.seen) and then.seen != now.seen
        if unlike or then.outcome != now.outcome:
            told, was = f"{now.outcome} [{now.seen}]", f"{then.outcome} [{then.seen}]"
            hint = f"; {NEEDS_FRESH}" if refused_now(now.step, then.outcome, now.outcome) else ""
            turned = f"step {number} came to {told}, and then to {was}"
            return f"the situation of the finding did not come up: {turned}{hint}"
    return ""


def _why_unchecked(episode: Episode) -> str:
    """Why a sequence does not come to the rule that it is about."""
    for number, line in enumerate(episode.trace, start=1):
        if line.outcome in NOT_SENT:
            return f"step {number} was not sent: {line.outcome}"
    lost_at = episode.lost_at
    if lost_at is not None:
        return f"behind step {lost_at + 1} nothing is known of the fence any more, as another rule is broken there"
    return "the steps do not come to it" if episode.trace else "there are no steps"


def _check_possible(replay: ReplayFile, place: Place) -> None:
    subject = place.subject
    if subject.role is not replay.tested.role:
        raise ConfigurationError(
            f"the replay is of a server of role {replay.tested.role.value}, and {subject.name} is {subject.role.value}"
        )
    operations = {step.operation for step in replay.steps if isinstance(step, CallStep)}
    if Operation.COMMIT in operations and place.root is None:
        raise ConfigurationError("the replay exports; name a directory that the server can write: --checkpoint-dir")
    if Operation.RESTORE in operations and not place.may_restore:
        raise ConfigurationError("the replay restores; say that it may: --allow-restore")
    deadlines = {step.deadline for step in replay.steps if isinstance(step, CallStep)}
    if Deadline.DISTANT in deadlines and not place.alone:
        raise ConfigurationError("the replay waits for as long as work goes on, and the server has live work of others")
    someone = AttemptId("someone", 0)
    for step in replay.steps:
        if isinstance(step, WorkStep) and work_call(place.traffic, subject.role, step.kind, someone) is None:
            needs = f"a call of the data plane, {step.kind.value!r}"
            raise ConfigurationError(f"the replay needs {needs}; name a traffic: --traffic kit")
