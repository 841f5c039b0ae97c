"""What is called late is late: neither the fuzzer's own slowness nor its pace is put down to the participant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.bad_servers import Spoiled, always, hanging
from support.virtual_loop import virtual_time

from quiesce.cli.fuzz import exit_code
from quiesce.cli.output import ExitCode
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options, examine
from quiesce.fuzz.findings import Episode
from quiesce.fuzz.junit import junit_text
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.line import Line
from quiesce.fuzz.patience import given_time
from quiesce.fuzz.report import ParticipantReport, text_of
from quiesce.fuzz.run import Run
from quiesce.fuzz.steps import parse_step
from quiesce.fuzz.traffic import kit_traffic, no_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.fuzz.wording import Durations
from quiesce.participants.server.answers import ASGIApp, Message, Receive, Scope, Send
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

OPTIONS = Options(nonce="n", traffic=kit_traffic, calls_max=500)


def late(app: ASGIApp, delay_s: float, *, control: bool = False) -> ASGIApp:
    """The application, with each reply of its data plane, or of its control routes, held back for a moment."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            is_control = scope["path"].startswith("/ng-control")
            if message["type"] == "http.response.start" and is_control is control:
                await asyncio.sleep(delay_s)
            await send(message)

        await app(scope, receive, told)

    return served


async def outcome(app: ASGIApp, clock: VirtualClock, options: Options) -> ParticipantReport:
    """The report on one server that is not renewed."""
    transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    report = await examine(KIT_ORIGIN, transport, clock, options)
    await transport.aclose()
    return report


async def run_of(lines: Sequence[str], app: ASGIApp, clock: VirtualClock, durations: Durations) -> Episode:
    """One sequence on one server."""
    transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    _, place = await arrive(KIT_ORIGIN, Line(transport, clock), replace(OPTIONS, durations=durations))
    assert place is not None
    episode = await Run(place, [parse_step(line) for line in lines]).execute()
    await transport.aclose()
    return episode


@virtual_time
async def test_a_refusal_that_comes_late_accuses_nobody() -> None:
    """What is read only after the next control call tells nothing of what holds by then."""
    clock = VirtualClock()
    app = late(build_kit_server(Role.POLICY, clock=clock).app, 0.3)
    steps = ("prepare a", "work begin p", "resume a", "wait work", "work probe q")
    episode = await run_of(steps, app, clock, Durations())
    assert (episode.finding, len(episode.steps)) == (None, len(steps))
    assert "in flight" in str(episode.trace[1])


@virtual_time
async def test_a_reply_that_is_read_behind_a_later_call_tells_of_what_held_before() -> None:
    """A prepare was granted, and its reply came only after the resume's: that it says preparing was right then."""
    clock = VirtualClock()
    kit = build_kit_server(Role.AGENT, clock=clock).app
    held_back = late(kit, 0.5, control=True)

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await (held_back if scope["path"].endswith("/prepare") else kit)(scope, receive, send)

    steps = ("prepare a send=start", "resume a", "wait calls")
    episode = await run_of(steps, served, clock, Durations())
    assert str(episode.trace[0]).startswith("prepare a send=start -> no answer yet [prepared")
    assert (episode.finding, len(episode.steps)) == (None, len(steps))


@virtual_time
async def test_a_result_that_is_told_again_is_no_new_work() -> None:
    """An agent may answer a run that has ended with its result, also while it is closed."""
    clock = VirtualClock()
    kit = build_kit_server(Role.AGENT, clock=clock).app
    ended: set[bytes] = set()

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        rollout = dict(scope["headers"]).get(b"x-nemo-gym-rollout-id", b"")
        if rollout in ended:
            await always(200, b"{}")(scope, receive, send)
            return
        await kit(scope, receive, send)
        ended.update({rollout} if scope["path"] == "/run" else ())

    steps = ("work finish q", "prepare b deadline=short", "work begin q", "work begin p")
    episode = await run_of(steps, served, clock, Durations(short_s=2.0, work_s=20.0))
    assert str(episode.trace[2]).startswith("work begin q -> 200")
    assert str(episode.trace[3]).startswith("work begin p -> 409")
    assert (episode.finding, len(episode.steps)) == (None, len(steps))


@pytest.mark.parametrize("variant", [FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE])
@virtual_time
async def test_a_drain_that_ends_between_other_calls_is_put_down_to_none_of_them(variant: FenceVariant) -> None:
    """Whatever was answered last, it is the drain whose end should have shown."""
    clock = VirtualClock()
    app = late(build_kit_server(Role.POLICY, variant, clock=clock, work_s=6.0).app, 0.5, control=True)
    episode = await run_of(["work begin p", "prepare a", *["prepare b"] * 20], app, clock, Durations(work_s=8.0))
    broken = "" if episode.finding is None else episode.finding.rule.id
    assert broken == ("" if variant is FenceVariant.STRICT else "fence.drain")


def stalled(app: ASGIApp, clock: VirtualClock) -> ASGIApp:
    """The application; what has a short deadline reaches it only after that."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive() if scope["type"] == "http" else {}
        found = re.search(rb'"deadline_ts":\s*([\d.e+]+)', message.get("body", b""))
        left_s = float(found[1]) - clock.now_ts() if found else 0.0
        if 0.0 < left_s <= 2.5:
            await clock.sleep(left_s + 0.02)
        given = [message]

        async def again() -> Message:
            return given.pop() if given else await receive()

        await app(scope, again, send)

    return served


@pytest.mark.parametrize("role", Role)
@virtual_time
async def test_a_call_that_reaches_the_server_after_its_deadline_accuses_nobody(role: Role) -> None:
    """The line was slow: that the deadline is over is then a right answer, whatever the call would have done."""
    clock = VirtualClock()
    report = await outcome(stalled(build_kit_server(role, clock=clock).app, clock), clock, OPTIONS)
    assert report.violations == (), text_of([report])


@pytest.mark.parametrize("role", Role)
@virtual_time
async def test_a_slow_pace_accuses_nobody(role: Role) -> None:
    """With one call in two seconds no deadline passes before its call is sent, and nothing is late."""
    clock = VirtualClock()
    report = await outcome(build_kit_server(role, clock=clock).app, clock, replace(OPTIONS, rate=0.5))
    assert report.violations == (), text_of([report])
    assert report.calls <= report.seconds * 0.5 + 2


COMMIT = "/ng-control/v1/model-checkpoint/commit"


@pytest.mark.parametrize("answer_s", [10.0, 2.0])
@virtual_time
async def test_a_call_that_is_never_answered_is_told_and_costs_little_once_it_is_known(answer_s: float) -> None:
    """Whoever watches reads what is waited for and until when; the finding has all the time that there is."""
    clock = VirtualClock()
    app = Spoiled(build_kit_server(Role.POLICY, clock=clock).app, hanging, good=0, path=COMMIT)
    transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    told: list[str] = []
    with TemporaryDirectory() as folder:
        options = replace(OPTIONS, root=Path(folder), rate=None, calls_max=2500, answer_s=answer_s, traffic=no_traffic)
        report = await examine(KIT_ORIGIN, transport, clock, options, waiting=told.append)
    await transport.aclose()
    broken = {violation.rule.id: violation for violation in report.violations}
    assert broken.keys() == {"reply.in-time", "fence.commit"}, text_of(
        [report]
    )  # a client that leaves it finds nothing done
    found = broken["reply.in-time"]
    assert (found.reproducible, str(found.trace[-1])[:21]) == (True, "commit a -> no answer")
    assert found.expected == f"an answer within {answer_s:g} s"
    assert report.verdict is Verdict.TESTED
    assert report.seconds < 200
    assert app.calls < 80
    assert "commit was not answered 20 times; it was then left out" in report.notes
    says = re.compile(rf"waits for the answer to POST {COMMIT}, until \d\d:\d\d:\d\d UTC at most")
    assert all(says.fullmatch(line) for line in told)
    assert (len(told) > 0) is (answer_s > 4.0)
    assert len(told) < 10


@virtual_time
async def test_a_call_that_was_slow_once_is_seen_once() -> None:
    """It is no failure as one that comes again is, and no silence either."""
    clock = VirtualClock()
    kit = build_kit_server(Role.POLICY, clock=clock).app
    slow = [60.0]

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].endswith("/pause") and spoiled.calls > 10 and slow:
            await asyncio.sleep(slow.pop())
        await kit(scope, receive, send)

    spoiled = Spoiled(served, served, good=0)
    report = await outcome(spoiled, clock, replace(OPTIONS, rate=None, traffic=no_traffic, durations=Durations()))
    assert [violation.severity for violation in report.violations] == ["seen once"], text_of([report])
    assert (report.errors, report.conforms) == ((), False)
    assert report.seen_once[0].rule.id == "reply.in-time"
    text = text_of([report])
    assert "seen once reply.in-time: Every call is answered" in text
    assert "(it did not come again)" in text
    assert "0 broken, 1 seen once, 0 warnings or known" in text
    assert 'failures="1"' in junit_text([report])
    assert exit_code([report]) is ExitCode.SEEN_ONCE


async def test_answers_that_are_there_are_read_before_time_is_up() -> None:
    """A loop that stood still finds the timer and the answer together; the answer counts."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()

    async def chain(depth: int) -> None:
        await (arrived.wait() if depth == 0 else asyncio.ensure_future(chain(depth - 1)))

    task = asyncio.ensure_future(chain(5))
    loop.call_soon(arrived.set)
    await given_time([task], 0)
    assert task.done()


@virtual_time
async def test_what_never_comes_is_not_waited_for() -> None:
    """The time that is given is all that passes."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(asyncio.Event().wait())
    began_at = loop.time()
    await given_time([task], 3.0)
    assert (task.done(), loop.time() - began_at) == (False, 3.0)
    task.cancel()
