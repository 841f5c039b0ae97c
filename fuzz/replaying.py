"""Running a saved sequence again, with fresh names, and seeing whether it still breaks its rule."""

from __future__ import annotations

from dataclasses import dataclass

from quiesce.controller.clock import Clock
from quiesce.fsm.errors import QuiesceError
from quiesce.fuzz.campaign import Options, arrive
from quiesce.fuzz.findings import Episode, Finding
from quiesce.fuzz.line import Line
from quiesce.fuzz.place import Place
from quiesce.fuzz.replays import ReplayFile
from quiesce.fuzz.rulebook import RULES
from quiesce.fuzz.run import Run
from quiesce.fuzz.steps import CallStep, Operation, WorkStep
from quiesce.fuzz.traffic import work_call
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.transport.port import Transport

__all__ = ["Replayed", "replay_at"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay. ``finding`` is None where the rule held this time."""

    finding: Finding | None
    episode: Episode | None


async def replay_at(url: str, transport: Transport, clock: Clock, options: Options, replay: ReplayFile) -> Replayed:
    """Run the sequence of ``replay`` at ``url``. The participant is left open.

    Raises:
        ConfigurationError: it cannot be run there: another role, or calls that are not allowed.
        QuiesceError: nobody that could be tested answers there; the text says why.
    """
    line = Line(transport, clock, options.rate)
    found, place = await arrive(url, line, options)
    rule_id = replay.violation.rule
    early = next((finding for finding in found.findings if finding.rule.id == rule_id), None)
    if early is not None:
        return Replayed(early, None)
    if place is None:
        raise QuiesceError(f"{url}: {found.verdict.value}: {found.reason}")
    _check_possible(replay, place)
    others = frozenset(rule.id for rule in RULES if rule.id != rule_id)
    episode = await Run(place, replay.steps, muted=others).execute()
    if episode.verdict is not None and episode.finding is None:
        raise QuiesceError(f"{url}: {episode.verdict.value}: {episode.gone}")
    return Replayed(episode.finding, episode)


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
    someone = AttemptId("someone", 0)
    for step in replay.steps:
        if isinstance(step, WorkStep) and work_call(place.traffic, subject.role, step.kind, someone) is None:
            needs = f"a call of the data plane, {step.kind.value!r}"
            raise ConfigurationError(f"the replay needs {needs}; name a traffic: --traffic kit")
