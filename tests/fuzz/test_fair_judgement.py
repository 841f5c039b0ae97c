"""Nobody is accused of what no section asks or somebody else did, nor cleared by a replay of something else."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

import pytest
from support.virtual_loop import virtual_time

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.findings import Episode
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.line import Line
from quiesce.fuzz.options import Options
from quiesce.fuzz.place import Place
from quiesce.fuzz.replaying import replay_at
from quiesce.fuzz.replays import Answered, parse_replay, replay_text
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.run import Run
from quiesce.fuzz.steps import parse_step
from quiesce.fuzz.traffic import kit_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.fuzz.wording import Durations
from quiesce.participants.server.answers import Answer, ASGIApp, Receive, Scope, Send, send_answer
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

DURATIONS = Durations(short_s=2.0, work_s=20.0, grace_s=40.0)
FORGOTTEN = "prepare a deadline=short send=leave"
OPTIONS = Options(nonce="fair", traffic=kit_traffic, durations=DURATIONS, rate=None, allow_restore=True)


async def body_of(receive: Receive) -> bytes:
    """The whole body of a request."""
    content, more = b"", True
    while more:
        message = await receive()
        content, more = content + message.get("body", b""), message.get("more_body", False)
    return content


def received(content: bytes) -> Receive:
    """A request's body, said again."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


class Deadlines:
    """A kit's policy that looks at the deadline of an abort_inflight never, and of the others before their phase."""

    def __init__(self, app: ASGIApp, clock: VirtualClock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not path.endswith(("/abort_inflight", "/commit")):
            await self._app(scope, receive, send)
            return
        content = await body_of(receive)
        body = json.loads(content)
        passed = body["deadline_ts"] <= self._clock.now_ts()
        if passed and path.endswith("/commit"):
            await send_answer(send, Answer(409, {"error": {"code": "deadline_exceeded", "detail": "too late"}}))
            return
        body["deadline_ts"] = self._clock.now_ts() + 60.0
        await self._app(scope, received(json.dumps(body).encode()), send)


async def ground(app: ASGIApp, clock: VirtualClock) -> tuple[AsgiTransport, Place]:
    """The place of an application that was looked at."""
    transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    _, place = await arrive(KIT_ORIGIN, Line(transport, clock), OPTIONS)
    assert place is not None
    return transport, place


async def run(app: ASGIApp, clock: VirtualClock, *lines: str) -> Episode:
    """Run a sequence on it."""
    transport, place = await ground(app, clock)
    episode = await Run(place, tuple(map(parse_step, lines))).execute()
    await transport.aclose()
    return episode


@pytest.mark.parametrize("deadline", ["past", "zero"])
@virtual_time
async def test_what_a_passed_deadline_is_to_an_abort_in_flight_no_section_says(deadline: str) -> None:
    """It may be refused for it, as the kit does, or carried out; and a deadline may be looked at before a phase."""
    clock = VirtualClock()
    lines = (
        f"abort_inflight a p deadline={deadline}",
        "prepare a",
        f"abort_inflight a p deadline={deadline}",
        "resume a",
    )
    for wrapped in (False, True):
        for steps in (lines, (f"commit a deadline={deadline}", "prepare a", "resume a")):
            kit = build_kit_server(Role.POLICY, clock=clock).app  # a fresh one: the ids are the same
            episode = await run(Deadlines(kit, clock) if wrapped else kit, clock, *steps)
            assert episode.finding is None, episode
            assert episode.lost_at is None


@virtual_time
async def test_a_prepare_behind_its_deadline_is_still_refused() -> None:
    """What a section does say is asked as before."""
    clock = VirtualClock()
    app = Forgiving(build_kit_server(Role.POLICY, clock=clock).app, clock)
    episode = await run(app, clock, "prepare a deadline=past")
    assert episode.finding is not None, [str(line) for line in episode.trace]
    assert episode.finding.rule.id == "fence.past-deadline"


class Created(Deadlines):
    """One that answers an abort_inflight with 201 where it has succeeded."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_abort = str(scope.get("path", "")).endswith("/abort_inflight")

        async def told(message: MutableMapping[str, Any]) -> None:
            created = is_abort and message.get("status") == 200
            await send({**message, "status": 201} if created else message)

        await self._app(scope, receive, told)


@virtual_time
async def test_an_abort_that_acted_and_answered_oddly_is_accused_once() -> None:
    """Its attempt is fenced, as it should be: that its work is refused then is no second fault."""
    clock = VirtualClock()
    app = Created(build_kit_server(Role.POLICY, clock=clock).app, clock)
    transport, place = await ground(app, clock)
    steps = ("prepare a", "abort_inflight a p", "resume a", "work probe p")
    episode = await Run(place, tuple(map(parse_step, steps)), muted={"reply.status"}).execute()
    await transport.aclose()
    assert [broken.rule.id for broken in episode.muted] == ["reply.status"]
    assert episode.finding is None, episode.finding


@pytest.mark.parametrize("kind", ["probe q", "begin p", "begin p send=at_once"])
@pytest.mark.parametrize("after", [(), ("resume a", "work probe r"), ("wait work",)])
@virtual_time
async def test_work_right_behind_a_call_that_races_it_accuses_nobody(kind: str, after: tuple[str, ...]) -> None:
    """Whether it met an open server or a closed one, nobody can say: it may be refused or admitted."""
    clock = VirtualClock()
    steps = ("work seed p", "prepare a send=at_once", f"work {kind}", *after)
    episode = await run(build_kit_server(Role.RESOURCES, clock=clock).app, clock, *steps)
    assert episode.finding is None, [str(line) for line in episode.trace]
    assert episode.lost_at is None, [str(line) for line in episode.trace]


class Forgiving(Deadlines):
    """One that heeds no deadline of a pause."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not str(scope.get("path", "")).endswith("/pause"):
            await self._app(scope, receive, send)
            return
        body = json.loads(await body_of(receive))
        body["deadline_ts"] = self._clock.now_ts() + 60.0
        await self._app(scope, received(json.dumps(body).encode()), send)


@pytest.mark.parametrize("steps", [("resume a",), ("status a", "resume a"), ("prepare a", "resume a")])
@virtual_time
async def test_who_is_restored_by_somebody_else_is_used_by_somebody_else(steps: tuple[str, ...]) -> None:
    """It owed a restore, and owes none any more though none was sent to it: that accuses nobody."""
    clock = VirtualClock()
    transport, place = await ground(build_kit_server(Role.RESOURCES, clock=clock, restore_expected=True).app, clock)
    assert place.owes_restore == (True,)
    transport.mount(KIT_ORIGIN, build_kit_server(Role.RESOURCES, clock=clock).app)
    episode = await Run(place, tuple(map(parse_step, steps))).execute()
    await transport.aclose()
    assert (episode.finding, episode.verdict) == (None, Verdict.SHARED)
    assert "owes no restore any more" in episode.gone


FILE = {
    "kind": "quiesce.fuzz",
    "schema_version": 1,
    "tested": {"name": "p", "role": "policy", "coordinated": False, "profile": "strict", "seed": 0, "fence": None},
    "violation": {
        "rule": "fence.drain",
        "sentence": "-",
        "section": "4.3",
        "severity": "error",
        "known": None,
        "expected": "prepared, held by a",
        "got": "preparing, held by a",
    },
    "steps": [
        {"do": "work", "kind": "begin"},
        {"do": "call", "operation": "prepare"},
        {"do": "wait", "until": "work"},
    ],
    "answers": [
        {"outcome": "in flight", "seen": "idle, held by nobody"},
        {"outcome": "200", "seen": "preparing, held by a"},
        {"outcome": "waited", "seen": "preparing, held by a"},
    ],
}


@pytest.mark.parametrize(("work_s", "says"), [(6.0, ""), (0.0, "the situation of the finding did not come up: step 1")])
@virtual_time
async def test_a_replay_that_meets_another_situation_clears_nobody(work_s: float, says: str) -> None:
    """Work that is over before the prepare comes leaves nothing to drain: the rule is not put to the test."""
    clock = VirtualClock()
    app = build_kit_server(Role.POLICY, clock=clock, work_s=work_s).app
    transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    replay = parse_replay(json.dumps(FILE).encode(), source="a file")
    assert parse_replay(replay_text(replay).encode(), source="again") == replay
    found = await replay_at(KIT_ORIGIN, transport, clock, OPTIONS, replay)
    assert found.finding is None
    assert found.unchecked.startswith(says), found.unchecked
    assert bool(found.unchecked) is bool(says)
    other = replay.model_copy(update={"answers": (*replay.answers[:1], Answered(outcome="409 x", seen=""))})
    found = await replay_at(KIT_ORIGIN, transport, clock, replace(OPTIONS, nonce="two"), other)
    assert "did not come up" in found.unchecked
    await transport.aclose()


@pytest.mark.parametrize(
    ("slow_route", "lines"),
    [("/retire", ("resume b", FORGOTTEN, "retire b p")), ("/commit", (FORGOTTEN, "commit c deadline=past"))],
)
@virtual_time
async def test_what_ends_by_itself_is_not_laid_to_a_refused_call_that_was_under_way_then(
    slow_route: str, lines: tuple[str, ...]
) -> None:
    """A recorded agent forgets an incomplete prepare at its deadline; the id of a refused call did not do that."""
    clock = VirtualClock()
    kit = build_kit_server(Role.AGENT, FenceVariant.GYM_A_SINGLE, clock=clock).app

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if str(scope.get("path", "")).endswith(slow_route):
            await clock.sleep(DURATIONS.short_s + DURATIONS.prompt_s / 2)
        await kit(scope, receive, send)

    transport = AsgiTransport({KIT_ORIGIN: slow}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    _, place = await arrive(KIT_ORIGIN, Line(transport, clock), replace(OPTIONS, profile=Profile.GYM_A))
    assert place is not None
    episode = await Run(place, tuple(map(parse_step, ("work begin p", *lines)))).execute()
    await transport.aclose()
    assert episode.finding is not None, [str(line) for line in episode.trace]
    assert episode.finding.rule.id == "fence.incomplete-prepare", str(episode.finding)
    assert episode.finding.known == "incomplete-prepare-forgotten"
