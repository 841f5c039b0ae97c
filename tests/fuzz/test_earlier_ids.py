"""An id that was used up stays used up: it is asked for again in later sequences, whatever came to pass since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.virtual_loop import run_virtual

from quiesce.fsm.fence import FenceState
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options, examine
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.replaying import Replayed, replay_at
from quiesce.fuzz.replays import parse_replay, replay_of, replay_text
from quiesce.fuzz.report import ParticipantReport, text_of
from quiesce.fuzz.traffic import kit_traffic
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.fuzz.wording import Durations
from quiesce.participants.server.answers import ASGIApp, Receive, Scope, Send
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

RULE = "fence.used-up-id"
OPTIONS = Options(
    nonce="n", traffic=kit_traffic, rate=None, calls_max=1500, durations=Durations(short_s=2.0, work_s=20.0)
)
KEPT = 10
"""How many ids a forgetful server remembers: more than a sequence has."""

Forget = Callable[[FenceState, list[Any]], FenceState]


def forgets_the_oldest(state: FenceState, order: list[Any]) -> FenceState:
    """It keeps the last few ids alone, to save memory."""
    return replace(state, finished=frozenset(order[-KEPT:]))


def forgetful(clock: VirtualClock, forget: Forget) -> ASGIApp:
    """A policy that forgets used-up ids after some call."""
    kit = build_kit_server(Role.POLICY, clock=clock)
    order: list[Any] = []

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await kit.app(scope, receive, send)
        state = kit.app.fence.state
        order.extend(sorted(state.finished - set(order)))
        kit.app.fence._state = forget(state, order)

    return served


def outcome_of(app: Callable[[VirtualClock], ASGIApp]) -> tuple[ParticipantReport, Replayed | None]:
    """The report on one server that is used throughout, and what a replay of the finding on a fresh one comes to."""

    async def run() -> tuple[ParticipantReport, Replayed | None]:
        clock = VirtualClock()
        transport = AsgiTransport({KIT_ORIGIN: app(clock)}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
        report = await examine(KIT_ORIGIN, transport, clock, OPTIONS)
        found = next((violation for violation in report.violations if violation.rule.id == RULE), None)
        again = None
        if found is not None:
            saved = parse_replay(replay_text(replay_of(report, found)).encode(), source="a test")
            transport.mount(KIT_ORIGIN, app(clock))
            again = await replay_at(KIT_ORIGIN, transport, clock, OPTIONS, saved)
        await transport.aclose()
        return report, again

    return run_virtual(run())


def test_a_server_that_forgets_the_oldest_ids_is_found() -> None:
    """In a few calls, which show it again on a fresh server: there is an id used up and others behind it first."""
    report, again = outcome_of(lambda clock: forgetful(clock, forgets_the_oldest))
    [found] = [violation for violation in report.errors if violation.rule.id == RULE]
    assert found.reproducible
    assert len(found.steps) <= 2
    assert str(found.trace[-1]).startswith("prepare z -> 200")
    assert again is not None
    assert again.finding is not None
    assert again.finding.rule.id == RULE


def test_a_server_that_keeps_them_is_put_to_the_test_and_not_accused() -> None:
    """The rule held, and not only for the ids of one sequence."""
    report, _ = outcome_of(lambda clock: build_kit_server(Role.POLICY, clock=clock).app)
    assert report.violations == (), text_of([report])
    assert RULE in report.held


@pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES])
def test_an_earlier_id_is_made_where_there_was_no_sequence_before(role: Role) -> None:
    """A replay on a fresh server asks for one that it has used up itself, and says that the rule holds."""
    report, _ = outcome_of(lambda clock: forgetful(clock, forgets_the_oldest))
    found = next(violation for violation in report.errors if violation.rule.id == RULE)
    saved = replay_of(replace(report, role=role), found)

    async def run() -> Replayed:
        clock = VirtualClock()
        app = build_kit_server(role, clock=clock).app
        transport = AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
        again = await replay_at(KIT_ORIGIN, transport, clock, OPTIONS, saved)
        await transport.aclose()
        return again

    again = run_virtual(run())
    assert (again.finding, again.unchecked) == (None, "")
    assert again.episode is not None
    assert str(again.episode.trace[-1]).startswith("prepare z -> 409 stale_checkpoint [idle")
