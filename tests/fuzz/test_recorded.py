"""Every deviation of the recorded servers that a client can see is found; under their profile each is known by name."""

from __future__ import annotations

import pytest
from support.divergence import divergences

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import KitSource, examine_kit, kit_source
from quiesce.fuzz.kit import build_kit_server
from quiesce.fuzz.report import ParticipantReport, text_of
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.verdicts import Verdict

SINGLE, COORDINATOR = FenceVariant.GYM_A_SINGLE, FenceVariant.GYM_A_COORDINATOR
SERVERS = [(Role.POLICY, SINGLE), (Role.AGENT, SINGLE), (Role.RESOURCES, SINGLE), (Role.POLICY, COORDINATOR)]
EACH = pytest.mark.parametrize(("role", "variant"), SERVERS, ids=lambda value: value.value)
CALLS = 1500
BRIEF_S = 0.05
"""How long a call of a tool server lasts that is over before a careful client has looked twice."""

# A difference between the tables shows as the rule of its strict row, unless it stands here.
SHOWN_AS: dict[tuple[Role, FenceVariant, str], set[str]] = {
    # a status of a restored policy crashes; one while preparing moves what the drain should have moved
    (Role.POLICY, SINGLE, "fence.status"): {"reply.crash", "fence.drain"},
    (Role.POLICY, COORDINATOR, "fence.status"): {"fence.drain"},
    # phase and id are the same; that admission stays closed is seen on the data plane
    (Role.RESOURCES, SINGLE, "fence.failed-prepare"): {"data.closed-for-nobody"},
}

NOT_SEEN: dict[tuple[Role, FenceVariant, str], str] = {
    (Role.AGENT, SINGLE, "fence.restore"): (
        "F21: while a restore runs, the recorded agent is still open. A call that is admitted in that moment may as "
        "well have come before the restore."
    ),
    (Role.RESOURCES, SINGLE, "fence.restore"): "F21, as for the agent.",
    (
        Role.RESOURCES,
        SINGLE,
        "fence.owes-restore",
    ): "F20: only a server started to be restored owes one; below.",
}
"""Differences of the tables that the wire does not show, and why."""

BEYOND_THE_TABLES = {
    (Role.POLICY, SINGLE): set[str](),
    # 9 #8 and F22 are about executions; that the prepare is not ended shows before its late end does; and 9 #7, 9 #10
    (Role.AGENT, SINGLE): {"agent.park-kept", "agent.boundary", "fence.resume-ends-prepare", "data.closed-for-nobody"},
    (Role.RESOURCES, SINGLE): set[str](),
    (Role.POLICY, COORDINATOR): set[str](),
}
"""What is found besides: deviations that no table of the fence holds (docs/fence-differences.md)."""


def brief_tools(variant: FenceVariant) -> KitSource:
    """Tool servers whose work is soon over."""
    return lambda clock: build_kit_server(Role.RESOURCES, variant, clock=clock, work_s=BRIEF_S).app


@pytest.mark.parametrize("profile", Profile)
def test_what_shows_only_while_work_is_in_flight_is_found_where_it_is_soon_over(profile: Profile) -> None:
    """The control calls are sent right behind the work; all is found as where it lasts, and known where that is."""
    report = examine_kit(brief_tools(SINGLE), profile=profile, calls_max=CALLS)
    assert {violation.rule.id for violation in report.violations} == expected(Role.RESOURCES, SINGLE), text_of([report])
    assert all(violation.reproducible for violation in report.violations)
    assert {bool(violation.known) for violation in report.violations} == {profile is Profile.GYM_A}, text_of([report])


def test_nothing_is_found_in_a_strict_server_whose_work_is_soon_over() -> None:
    """The same sequences accuse nobody, and put the same rules to the test."""
    report = examine_kit(brief_tools(FenceVariant.STRICT), calls_max=CALLS)
    assert report.violations == (), text_of([report])
    assert report.conforms
    assert {"fence.resume-ends-prepare", "fence.resume-waits", "data.closed-for-nobody"} <= set(report.held)


def outcome(role: Role, variant: FenceVariant, profile: Profile) -> ParticipantReport:
    """A recorded server, tested by one measure."""
    return examine_kit(kit_source(role, variant), profile=profile, calls_max=CALLS)


def expected(role: Role, variant: FenceVariant) -> set[str]:
    """The rules that must be found broken, derived from the two tables."""
    differing = {divergence.rule for divergence in divergences(role, variant)}
    if role is Role.RESOURCES:
        differing |= {divergence.rule for divergence in divergences(role, variant, owes_restore=True)}
    seen = {rule for rule in differing if (role, variant, rule) not in NOT_SEEN}
    shown = {rule for rule in seen if (role, variant, rule) not in SHOWN_AS}
    others = (SHOWN_AS[role, variant, rule] for rule in seen - shown)
    return shown.union(*others) | BEYOND_THE_TABLES[role, variant]


@EACH
def test_every_deviation_that_the_wire_can_show_is_found(role: Role, variant: FenceVariant) -> None:
    """What the tables of the fence tell apart is found, and nothing else; each in a few calls that show it again."""
    report = outcome(role, variant, Profile.STRICT)
    assert {violation.rule.id for violation in report.violations} == expected(role, variant), text_of([report])
    assert all(not violation.known for violation in report.violations)
    assert not report.conforms
    for violation in report.violations:
        assert len(violation.steps) <= 8, violation.rule.id
        assert violation.reproducible, violation.rule.id


@EACH
def test_under_their_own_profile_every_deviation_is_known_by_name(role: Role, variant: FenceVariant) -> None:
    """The same rules are reported, each with the name of the known deviation, and the server passes."""
    report = outcome(role, variant, Profile.GYM_A)
    assert {violation.rule.id for violation in report.violations} == expected(role, variant), text_of([report])
    unknown = [violation.rule.id for violation in report.violations if not violation.known]
    assert unknown == [], text_of([report])
    assert report.conforms


def test_a_prepare_of_a_server_that_owes_a_restore_is_found() -> None:
    """F20: it can be prepared and then not be opened again; the report says that it was left closed."""

    def owing(clock: object) -> object:
        del clock
        return build_kit_server(Role.RESOURCES, SINGLE, restore_expected=True).app

    report = examine_kit(owing)  # type: ignore[arg-type]  # an application, made for any clock
    assert [violation.rule.id for violation in report.errors] == ["fence.owes-restore"]
    assert (report.verdict, report.in_doubt) == (Verdict.LEFT_CLOSED, True)
    assert "phase prepared" in report.reason


def test_each_exception_is_one() -> None:
    """A difference that is listed as not seen is one of the tables'."""
    for role, variant, rule in NOT_SEEN:
        differing = divergences(role, variant) | divergences(role, variant, owes_restore=role is Role.RESOURCES)
        assert rule in {divergence.rule for divergence in differing}, rule
