"""A server that is none, is another, dies, hangs or answers garbage gets a verdict that says so, and no traceback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from support.asgi import ask
from support.bad_servers import Spoiled, always, cut_off, endless, generation_b, hanging, with_capabilities
from support.virtual_loop import virtual_time

from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options, examine
from quiesce.fuzz.in_kit import KitSource, examine_kit
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.line import Line
from quiesce.fuzz.report import ParticipantReport, text_of
from quiesce.fuzz.run import Run
from quiesce.fuzz.steps import CallStep, Operation, WorkKind, parse_step
from quiesce.fuzz.traffic import kit_traffic, no_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.fuzz.wording import Durations, Wording
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import ModelLedger, mount_policy
from quiesce.participants.server.answers import ASGIApp, Message, Receive, Scope, Send
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider


def source(app: ASGIApp) -> KitSource:
    """Always the same application."""
    return lambda _clock: app


def kit(role: Role, change: Callable[[ASGIApp], ASGIApp]) -> KitSource:
    """Fresh servers of the kit, each changed."""
    return lambda clock: change(build_kit_server(role, clock=clock).app)


NOT_TESTED = [
    (always(404, b"nothing here", "text/plain"), Verdict.NOT_A_PARTICIPANT, "answers 404 (text/plain)"),
    (always(200, b"<html>", "text/html"), Verdict.NOT_A_PARTICIPANT, "answers 200 (text/html)"),
    (always(200, b'{"status":"ok"}'), Verdict.NOT_A_PARTICIPANT, "component"),
    (always(200, b"[]"), Verdict.NOT_A_PARTICIPANT, "check the URL"),
    (always(502, b"bad gateway", "text/html"), Verdict.NOT_A_PARTICIPANT, "502"),
    (always(204, b""), Verdict.NOT_A_PARTICIPANT, "204"),
    (always(302, b""), Verdict.NOT_A_PARTICIPANT, "302"),
    (generation_b(), Verdict.OTHER_DIALECT, "generation B"),
    (hanging, Verdict.HANGS, "is not answered"),
    (cut_off, Verdict.GARBAGE, "cut in its middle"),
    (endless, Verdict.GARBAGE, "larger than"),
]


@pytest.mark.parametrize(("app", "verdict", "reason"), NOT_TESTED)
def test_what_is_no_participant_is_called_so(app: ASGIApp, verdict: Verdict, reason: str) -> None:
    """The verdict says what it is instead, nothing was done to it, and no id was used up."""
    report = examine_kit(source(app), traffic=no_traffic)
    assert report.verdict is verdict, text_of([report])
    assert reason in report.reason
    assert (report.ids, report.in_doubt, report.conforms) == (0, False, False)


def test_a_server_that_is_not_there_is_unreachable() -> None:
    """The report says to check the address."""

    async def asked() -> ParticipantReport:
        transport = AsgiTransport(tokens=FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
        return await examine("http://nobody.invalid", transport, VirtualClock(), Options(nonce="n"))

    report = asyncio.run(asked())
    assert report.verdict is Verdict.UNREACHABLE
    assert "check that the server runs" in report.reason


def with_field(name: str, value: object) -> Callable[[ASGIApp], ASGIApp]:
    """Servers whose capabilities have another value in one field."""
    return lambda app: with_capabilities(app, lambda fields: {**fields, name: value})


REFUSED = [
    (with_field("multi_process", {"mode": "unmanaged", "num_workers": 4}), Verdict.UNMANAGED, "4 workers"),
    (with_field("phase", "prepared"), Verdict.HELD, "phase is prepared"),
    (with_field("active_checkpoint_id", "somebody"), Verdict.HELD, "somebody"),
    (with_field("schema_version", 2), Verdict.OTHER_DIALECT, "have schema_version 2, and these rules are those of 1"),
    (with_field("schema_version", 0), Verdict.OTHER_DIALECT, "have schema_version 0"),
    (with_field("schema_version", "2"), Verdict.GARBAGE, "schema_version"),
    (with_field("schema_version", 1.5), Verdict.GARBAGE, "schema_version"),
    (with_field("checkpoint_mode", "sometimes"), Verdict.GARBAGE, "checkpoint_mode"),
]


@pytest.mark.parametrize(("change", "verdict", "reason"), REFUSED)
def test_what_may_not_be_tested_is_refused(change: Callable[[ASGIApp], ASGIApp], verdict: Verdict, reason: str) -> None:
    """The report says why, and nobody was paused."""
    report = examine_kit(kit(Role.POLICY, change))
    assert report.verdict is verdict, text_of([report])
    assert reason in report.reason
    assert not report.conforms
    assert report.sequences == 0


def test_unreadable_capabilities_are_a_broken_rule() -> None:
    """A server that means to be a participant learns which field is wrong."""
    report = examine_kit(kit(Role.AGENT, with_field("num", 1)), calls_max=300)
    assert {violation.rule.id for violation in report.violations} == {"capabilities.fields"}
    report = examine_kit(kit(Role.AGENT, with_field("name", 7)))
    assert [violation.rule.id for violation in report.errors] == ["capabilities.shape"]


def test_a_contradictory_declaration_is_a_broken_rule() -> None:
    """An agent that claims to be a policy is told so."""
    report = examine_kit(kit(Role.AGENT, with_field("instance_role", "policy")), calls_max=300)
    assert "capabilities.declared" in {violation.rule.id for violation in report.errors}


def test_a_server_without_a_token_takes_no_part() -> None:
    """The report says what is missing on the server."""
    app = mount_policy(always(404, b""), ledger=ModelLedger("policy"), token=None)
    report = examine_kit(source(app))
    assert report.verdict is Verdict.TAKES_NO_PART
    assert "no control token" in report.reason


def test_a_refused_token_is_told_before_anything_is_done() -> None:
    """Both sides are named as the place to look at."""
    app = mount_policy(always(404, b""), ledger=ModelLedger("policy"), token="another")
    report = examine_kit(source(app))
    assert report.verdict is Verdict.TOKEN_REFUSED
    assert "both sides" in report.reason
    assert report.ids == 0


def holding(app: ASGIApp, then: ASGIApp) -> ASGIApp:
    """The application; it does ``then`` with a resume of the id that holds it."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith(("/resume", "/pause", "/prepare")):
            await app(scope, receive, send)
            return
        message = await receive()
        id_ = json.loads(message["body"] or b"{}").get("checkpoint_id")
        resumes = scope["path"].endswith("/resume")
        closed.update({id_} if id_ and not resumes else ())
        given = [message]

        async def again() -> Message:
            return given.pop() if given else await receive()

        await (then if resumes and id_ in closed else app)(scope, again, send)

    closed: set[str] = set()
    return served


@pytest.mark.parametrize("role", [Role.POLICY, Role.RESOURCES])
@pytest.mark.parametrize("refuses", [True, False])
def test_a_server_that_cannot_be_opened_after_the_first_look_is_not_tested(role: Role, *, refuses: bool) -> None:
    """The rule is the one that is broken, the id that holds the server is named, and nothing else is asked of it."""
    refusal = b'{"error":{"code":"invalid_phase","detail":"no"}}'
    then = always(409, refusal) if refuses else hanging
    report = examine_kit(kept(role, lambda app: holding(app, then)))
    assert (report.verdict, report.sequences, report.in_doubt) == (Verdict.LEFT_CLOSED, 0, True), text_of([report])
    assert "closed for a moment by fuzz-kit-look-3" in report.reason
    broken = [(violation.rule.id, violation.got) for violation in report.violations]
    shown = "409 invalid_phase, after prepare fuzz-kit-look-3 -> 200"
    assert broken == ([("fence.resume-opens", shown)] if refuses else [])


GOOD = 60
"""Control calls that a server answers well before it goes bad: it is in the middle of the test by then."""


@pytest.mark.parametrize("good", range(GOOD, GOOD + 8))
def test_a_server_that_hangs_in_the_middle_is_told_from_a_slow_one(good: int) -> None:
    """The verdict says that it hangs and after which calls, also where it was being left open just then."""
    report = examine_kit(kept(Role.POLICY, lambda app: Spoiled(app, hanging, good=good)))
    assert report.verdict is Verdict.HANGS, text_of([report])
    assert "does not answer any more" in report.reason
    assert [violation.rule.id for violation in report.errors] == ["server.survives"]
    assert report.errors[0].steps
    assert report.in_doubt


def kept(role: Role, change: Callable[[ASGIApp], ASGIApp]) -> KitSource:
    """One server for the whole test: what it has become stays."""
    made: list[ASGIApp] = []

    def make(clock: VirtualClock) -> ASGIApp:
        if not made:
            made.append(change(build_kit_server(role, clock=clock).app))
        return made[0]

    return make


@virtual_time
async def test_a_server_that_dies_in_the_middle_is_called_dead() -> None:
    """The last calls before its death are in the report."""
    clock = VirtualClock()
    transport = AsgiTransport(tokens=FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    app = build_kit_server(Role.POLICY, clock=clock).app

    async def mortal(scope: Scope, receive: Receive, send: Send) -> None:
        if spoiled.calls > GOOD:
            transport.unmount(KIT_ORIGIN)
        await app(scope, receive, send)

    spoiled = Spoiled(mortal, mortal, good=GOOD)
    transport.mount(KIT_ORIGIN, spoiled)
    options = Options(nonce="n", traffic=no_traffic, rate=None)
    report = await examine(KIT_ORIGIN, transport, clock, options)
    assert report.verdict is Verdict.DIED, text_of([report])
    assert [violation.rule.id for violation in report.errors] == ["server.survives"]
    assert report.in_doubt
    await transport.aclose()


@pytest.mark.parametrize(
    ("then", "rule"),
    [
        (always(200, b"<html>", "text/html"), "reply.shape"),
        (always(200, b'{"state":"paused"}'), "reply.shape"),
        (always(503, b"overloaded", "text/plain"), "reply.crash"),
        (always(202, b"{}"), "reply.status"),
        (always(409, b'{"error":"no"}'), "reply.refusal"),
        (cut_off, "reply.shape"),
    ],
)
def test_garbage_in_the_middle_is_a_finding(then: ASGIApp, rule: str) -> None:
    """What a pause answers once it has gone bad breaks a rule that can be named; the run goes on to its end."""
    path = "/ng-control/v1/model-admission/pause"
    report = examine_kit(kit(Role.POLICY, lambda app: Spoiled(app, then, good=0, path=path)), stop_after=2)
    assert rule in {violation.rule.id for violation in report.violations}, text_of([report])
    assert report.verdict is Verdict.TESTED


def test_a_call_that_is_never_answered_is_a_finding() -> None:
    """One route hangs, the server lives: the rule about time is broken, and the test goes on."""
    path = "/ng-control/v1/model-checkpoint/commit"
    report = examine_kit(kit(Role.POLICY, lambda app: Spoiled(app, hanging, good=0, path=path)), stop_after=1)
    assert [violation.rule.id for violation in report.errors] == ["reply.in-time"]
    assert "commit" in str(report.errors[0].trace[-1])


@pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES])
@virtual_time
async def test_a_server_with_live_work_is_refused_unless_told(role: Role) -> None:
    """Somebody else's work is not disturbed; with leave, the test goes on and says that it knows less."""
    clock = VirtualClock()
    app = build_kit_server(role, clock=clock, work_s=10_000.0).app
    transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    options = Options(nonce="n", rate=None, calls_max=400, traffic=no_traffic)
    work = asyncio.ensure_future(_foreign_work(app, role))
    await asyncio.sleep(1)
    refused = await examine(KIT_ORIGIN, transport, clock, options)
    assert refused.verdict is Verdict.LIVE_WORK, text_of([refused])
    assert app.fence.state.phase is FencePhase.IDLE
    allowed = await examine(KIT_ORIGIN, transport, clock, replace(options, nonce="m", allow_live_work=True))
    assert allowed.verdict is Verdict.TESTED
    assert allowed.violations == (), text_of([allowed])
    assert any("live work" in note for note in allowed.notes)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await transport.aclose()


@pytest.mark.parametrize(("rollout", "verdict"), [("fuzz-1-2-p", Verdict.TESTED), ("theirs", Verdict.LIVE_WORK)])
@virtual_time
async def test_sessions_that_a_fuzzed_agent_left_behind_are_nobodys_work(rollout: str, verdict: Verdict) -> None:
    """An agent that was tested before has called its tools in the fuzzer's names."""
    clock = VirtualClock()
    app = build_kit_server(Role.RESOURCES, clock=clock).app
    call = kit_traffic(Role.RESOURCES, WorkKind.SEED, AttemptId(rollout, 0))
    assert call is not None
    headers = {"x-nemo-gym-rollout-id": rollout, "x-nemo-gym-attempt-index": "0"}
    await ask(app, "POST", call.path, json_body=dict(call.body), headers=headers)
    transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    options = Options(nonce="n", rate=None, calls_max=600, traffic=kit_traffic)
    report = await examine(KIT_ORIGIN, transport, clock, options)
    assert report.verdict is verdict, text_of([report])
    assert report.violations == (), text_of([report])
    await transport.aclose()


@virtual_time
async def test_an_agent_whose_upstream_fails_is_not_accused() -> None:
    """An attempt that came to its end by a failure cannot be run again: that is no closed admission."""
    clock = VirtualClock()
    app = build_kit_server(Role.AGENT, clock=clock).app
    failed: set[str] = set()
    broken, stale = always(502, b'{"detail":"the policy does not answer"}'), always(409, refusal("stale_attempt"))

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        rollout = dict(scope["headers"]).get(b"x-nemo-gym-rollout-id", b"").decode()
        if scope["path"] != "/run":
            await app(scope, receive, send)
        elif rollout in failed:
            await stale(scope, receive, send)
        else:
            failed.add(rollout)
            await broken(scope, receive, send)

    transport = AsgiTransport({KIT_ORIGIN: served}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    options = Options(nonce="n", rate=None, traffic=kit_traffic, durations=Durations())
    _, place = await arrive(KIT_ORIGIN, Line(transport, clock), options)
    assert place is not None
    steps = [parse_step(line) for line in ("work probe p", "work begin p", "prepare a", "resume a", "work begin p")]
    episode = await Run(place, steps).execute()
    assert (episode.finding, len(episode.steps)) == (None, len(steps))
    await transport.aclose()


def refusal(code: str) -> bytes:
    """The body of a refusal of the data plane."""
    return json.dumps({"error": {"code": code, "message": "no"}}).encode()


async def _foreign_work(app: ASGIApp, role: Role) -> None:
    headers = {"x-nemo-gym-rollout-id": "theirs", "x-nemo-gym-attempt-index": "0"}
    for kind in (WorkKind.SEED, WorkKind.BEGIN):
        call = kit_traffic(role, kind, AttemptId("theirs", 0))
        if call is not None:
            await ask(app, "POST", call.path, json_body=dict(call.body), headers=headers)


def test_what_was_found_before_somebody_else_came_is_reported() -> None:
    """Whenever that is: in the middle of making it small it is told as it was seen, once."""
    reports = [visited(after) for after in range(30, 160, 5)]
    assert {report.verdict for report in reports} == {Verdict.SHARED}
    broken = [{violation.rule.id for violation in report.violations} for report in reports]
    assert all(earlier <= later for earlier, later in pairwise(broken)), broken
    assert [report for report in reports if report.seen_once] != []
    assert [report for report in reports if report.errors] != []


def visited(after: int) -> ParticipantReport:
    """The report on a recorded server whose fence somebody else holds after so many calls."""

    def make(clock: VirtualClock) -> ASGIApp:
        kit = build_kit_server(Role.POLICY, FenceVariant.GYM_A_SINGLE, clock=clock).app
        spoiled = Spoiled(kit, kit, good=after)
        held = {"phase": "prepared", "active_checkpoint_id": "somebody"}
        return with_capabilities(spoiled, lambda fields: {**fields, **held} if spoiled.calls > after else fields)

    made: list[ASGIApp] = []

    def same(clock: VirtualClock) -> ASGIApp:
        made[:] = made or [make(clock)]
        return made[0]

    return examine_kit(same, traffic=no_traffic, allow_restore=False)


@virtual_time
async def test_two_who_test_one_server_accuse_it_of_nothing() -> None:
    """Whoever meets the id of the other stops, says so, and resumes nothing that is not its own."""
    clock = VirtualClock()
    transport = AsgiTransport(
        {KIT_ORIGIN: build_kit_server(Role.RESOURCES, clock=clock).app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN))
    )
    options = Options(nonce="one", traffic=no_traffic, rate=90.0, calls_max=900, durations=Durations())
    first = asyncio.ensure_future(examine(KIT_ORIGIN, transport, clock, options))
    await clock.sleep(3.0)
    _, place = await arrive("http://kit.invalid", Line(transport, clock), replace(options, nonce="two"))
    if place is None:  # it was looked at while the first one held it
        await clock.sleep(0.5)
        _, place = await arrive("http://kit.invalid", Line(transport, clock), replace(options, nonce="two"))
    assert place is not None
    asked = Wording(place.subject, place.new_bindings(), place.durations)
    line = place.line
    held = False
    while not held:
        step = parse_step("prepare a")
        assert isinstance(step, CallStep)
        held = (await line.send(asked.asked(step, clock.now_ts(), {}).request)).status == 200
    report = await first
    assert (report.verdict, report.violations) == (Verdict.SHARED, ()), text_of([report])
    assert "somebody else is using it: fuzz-two-" in report.reason
    seen = await line.send(asked.asked(CallStep(operation=Operation.CAPABILITIES), 0.0, {}).request)
    assert str(seen.fields["active_checkpoint_id"]).startswith("fuzz-two-")
    await transport.aclose()
