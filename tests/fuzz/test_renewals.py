"""The route that renews a lease is put to the test where it is announced: what it answers, and its malformed forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pytest
from pydantic import BaseModel

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import KitSource, examine_kit
from quiesce.fuzz.kit import build_kit_server
from quiesce.fuzz.report import text_of
from quiesce.fuzz.seen import OK
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.dialects.gym_a.routes import LEASE_ROUTE
from quiesce.participants.server import Lease, MountedServer
from quiesce.participants.server.answers import Answer, ok

TAKE_PART = [Role.POLICY, Role.AGENT, Role.RESOURCES]
EACH = pytest.mark.parametrize("role", TAKE_PART)

Granted: TypeAlias = Mapping[str, object] | None
"""What a renewal is granted with; None where it is refused."""
Lie = Callable[[Granted, str], Granted]


def leased(role: Role, lie: Lie | None = None) -> KitSource:
    """Servers with a lease, whose renewals are answered as ``lie`` has it."""

    def make(clock: VirtualClock) -> MountedServer:
        app = build_kit_server(role, clock=clock, lease=Lease(grace_s=600.0)).app
        renew = app._endpoints["renew"]

        async def renewed(asked: BaseModel) -> Answer:
            seen = await renew(asked)
            granted = seen.content if seen.status == OK and isinstance(seen.content, dict) else None
            told = granted if lie is None else lie(granted, asked.checkpoint_id)  # type: ignore[attr-defined]  # as any envelope
            return seen if told is None else ok(told)

        app._endpoints = {**app._endpoints, "renew": renewed}
        return app

    return make


@EACH
def test_nothing_is_found_in_a_strict_server_with_a_lease(role: Role) -> None:
    """Renewals are put to the test, and hold."""
    report = examine_kit(leased(role), calls_max=900)
    assert report.violations == (), text_of([report])
    assert "lease.renew" in report.held


def always_granted(granted: Granted, asked: str) -> Granted:
    """Whoever asks is told that it holds the server."""
    return granted or {"checkpoint_id": asked, "lease_expires_at": 2e9}


def too_short(granted: Granted, _asked: str) -> Granted:
    """The lease lapses before the deadline that was asked for."""
    return None if granted is None else {**granted, "lease_expires_at": 1.9e9}


def of_another(granted: Granted, _asked: str) -> Granted:
    """The reply names an id that nobody asked about."""
    return None if granted is None else {**granted, "checkpoint_id": "another"}


@EACH
@pytest.mark.parametrize("lie", [always_granted, too_short, of_another])
def test_a_renewal_that_is_answered_wrongly_is_found(role: Role, lie: Lie) -> None:
    """In two calls at most."""
    report = examine_kit(leased(role, lie), calls_max=900, stop_after=1)
    found = {violation.rule.id: len(violation.steps) for violation in report.errors}
    assert set(found) == {"lease.renew"}, text_of([report])
    assert found["lease.renew"] <= 2


@EACH
def test_a_server_that_announces_a_lease_and_has_no_route_for_it_is_told_so(role: Role) -> None:
    """Every route that the declaration promises is there."""

    def announced(clock: VirtualClock) -> MountedServer:
        app = build_kit_server(role, clock=clock, lease=Lease(grace_s=600.0)).app
        del app._routes[LEASE_ROUTE.path]
        app._absent = {*app._absent, LEASE_ROUTE.path}
        return app

    report = examine_kit(announced, calls_max=100)
    broken = {violation.rule.id: violation.got for violation in report.errors}
    assert broken == {"routes.present": "404 for POST /ng-control/v1/lease/renew"}
