"""The kit keeps every rule, in every role; and every rule that can be put to the test there is."""

from __future__ import annotations

import pytest

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import examine_kit, kit_source
from quiesce.fuzz.kit import build_kit_server
from quiesce.fuzz.report import text_of
from quiesce.fuzz.traffic import no_traffic
from quiesce.fuzz.verdicts import Verdict

CALLS = {Role.POLICY: 2100, Role.AUXILIARY: 400, Role.AGENT: 2000, Role.RESOURCES: 1800}
"""Enough for every planned sequence and some random ones."""

NEVER = {
    Role.POLICY: {"lease.renew"},  # it has no lease
    Role.AUXILIARY: {"reply.shape"},  # it grants nothing
    Role.AGENT: {"lease.renew"},
    Role.RESOURCES: {"lease.renew", "fence.owes-restore"},  # only a server that was started to be restored owes one
}
"""Rules of a role that this server has no occasion for."""


@pytest.mark.parametrize("role", Role)
def test_nothing_is_found_in_the_strict_kit(role: Role) -> None:
    """Every rule of the role is put to the test, none is broken, and the participant is left open."""
    report = examine_kit(kit_source(role), calls_max=CALLS[role])
    assert report.violations == (), text_of([report])
    assert (report.verdict, report.conforms, report.role) == (Verdict.TESTED, True, role)
    assert set(report.untested or {}) == NEVER[role]
    assert not any("stopped" in note for note in report.notes)


def test_a_server_that_owes_a_restore_is_tested_when_it_may_be_restored() -> None:
    """It refuses what it must refuse; without leave to restore it is not touched."""

    def owing(clock: object) -> object:
        del clock
        return build_kit_server(Role.RESOURCES, restore_expected=True).app

    report = examine_kit(owing, calls_max=900)  # type: ignore[arg-type]  # an application, made for any clock
    assert report.violations == (), text_of([report])
    assert "fence.owes-restore" in report.held
    refused = examine_kit(owing, allow_restore=False)  # type: ignore[arg-type]  # as above
    assert refused.verdict is Verdict.OWES_RESTORE
    assert refused.calls < 20


def test_what_cannot_be_tested_is_listed_with_its_reason() -> None:
    """Without traffic the report says which rules needed it."""
    report = examine_kit(kit_source(Role.RESOURCES), traffic=no_traffic, allow_restore=False, calls_max=1200)
    assert report.conforms
    untested = report.untested or {}
    assert untested["fence.failed-prepare"] == "needs traffic"
    assert untested["fence.restore"] == "needs leave to restore"


def test_the_same_seed_is_the_same_test() -> None:
    """Two campaigns with one seed send the same calls and find the same; another seed sends others."""
    first, second = (examine_kit(kit_source(Role.AUXILIARY), seed=7, calls_max=500) for _ in range(2))
    assert first.described() | {"seconds": 0} == second.described() | {"seconds": 0}
    assert first.calls == second.calls
