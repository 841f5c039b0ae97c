"""What a process shows only while it is fresh: it takes one restore, and what comes behind it is found all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.virtual_loop import run_virtual

from quiesce.cli.fuzz import exit_code
from quiesce.cli.output import ExitCode
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options, examine
from quiesce.fuzz.fresh import NEEDS_FRESH
from quiesce.fuzz.junit import junit_text
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.replaying import Replayed, replay_at
from quiesce.fuzz.replays import parse_replay, replay_of, replay_text
from quiesce.fuzz.report import ParticipantReport, Violation, text_of
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.traffic import Traffic, kit_traffic, no_traffic
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

TRAFFIC = pytest.mark.parametrize("traffic", [no_traffic, kit_traffic], ids=["no traffic", "traffic"])
CALLS = 700
WAY = ["prepare a", "commit a", "resume a", "restore b", "status b"]


class Ground:
    """One server that is used throughout, until it is started anew."""

    def __init__(self, role: Role, variant: FenceVariant, root: Path, traffic: Traffic, profile: Profile) -> None:
        self.clock = VirtualClock()
        self.options = Options(
            nonce="n", profile=profile, traffic=traffic, root=root, allow_restore=True, calls_max=CALLS
        )
        self._kit: Callable[[], object] = lambda: build_kit_server(role, variant, clock=self.clock).app
        self.transport = AsgiTransport({}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
        self.start_anew()

    def start_anew(self) -> None:
        """A fresh process takes the place of the old one."""
        self.transport.mount(KIT_ORIGIN, self._kit())  # type: ignore[arg-type]  # an application of the kit

    async def tested(self, nonce: str = "n") -> ParticipantReport:
        """The report, by default options but for the number of calls."""
        return await examine(KIT_ORIGIN, self.transport, self.clock, replace(self.options, nonce=nonce))

    async def replayed(self, report: ParticipantReport, found: Violation, nonce: str) -> Replayed:
        """A replay of a finding on whoever is there now."""
        saved = parse_replay(replay_text(replay_of(report, found)).encode(), source="a test")
        options = replace(self.options, nonce=nonce)
        return await replay_at(KIT_ORIGIN, self.transport, self.clock, options, saved)


@TRAFFIC
def test_a_status_that_crashes_behind_the_one_restore_is_found(traffic: Traffic, tmp_path: Path) -> None:
    """As an error, that only a fresh process shows again: the same one says so, and a fresh one shows it."""

    async def run() -> tuple[ParticipantReport, Violation, Replayed, Replayed]:
        ground = Ground(Role.POLICY, FenceVariant.GYM_A_SINGLE, tmp_path, traffic, Profile.STRICT)
        report = await ground.tested()
        [found] = [violation for violation in report.violations if violation.rule.id == "reply.crash"]
        stale = await ground.replayed(report, found, "stale")
        ground.start_anew()
        return report, found, stale, await ground.replayed(report, found, "fresh")

    report, found, stale, fresh = run_virtual(run())
    assert (found.severity, found.needs_fresh, found.reproducible) == ("error", True, False)
    assert [str(line).partition(" ->")[0] for line in found.trace] == WAY
    assert report.seen_once == ()
    assert exit_code([replace(report, violations=(found,))]) is ExitCode.FAILED
    said = "error reply.crash: No control call is answered with a server error. (wire-protocol 3.3)"
    assert f"{said} ({NEEDS_FRESH})" in text_of([report])
    assert f"(error: {NEEDS_FRESH})" in junit_text([report])
    assert found.described()["needs_fresh_process"] is True
    assert (stale.finding, stale.unchecked.endswith(NEEDS_FRESH)) == (None, True)
    assert fresh.finding is not None
    assert fresh.finding.rule.id == "reply.crash"


@TRAFFIC
def test_under_their_own_profile_it_is_known_by_name(traffic: Traffic, tmp_path: Path) -> None:
    """It is no failure then."""

    async def run() -> ParticipantReport:
        return await Ground(Role.POLICY, FenceVariant.GYM_A_SINGLE, tmp_path, traffic, Profile.GYM_A).tested()

    report = run_virtual(run())
    assert "status-crashes-once-restored" in {violation.known for violation in report.violations}
    assert report.conforms, text_of([report])


@pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES])
def test_a_server_that_was_restored_before_is_not_said_to_have_been_tested_behind_a_restore(
    role: Role, tmp_path: Path
) -> None:
    """The first test finds nothing and tests the restore; the second one on the same process says what it could not."""

    async def run() -> list[ParticipantReport]:
        ground = Ground(role, FenceVariant.STRICT, tmp_path, kit_traffic, Profile.STRICT)
        return [await ground.tested(), await ground.tested("m")]

    first, second = run_virtual(run())
    assert first.violations == second.violations == (), text_of([first, second])
    assert "export.source" in first.held
    assert "export.source" in (second.untested or {})
    said = "so that what holds behind a restore was not tested; start it anew"
    assert [any(said in note for note in report.notes) for report in (first, second)] == [False, True]
