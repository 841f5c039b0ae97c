"""Leases: whoever is held by a cut and hears nothing more opens by itself, and then refuses that id for good."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kit import CONTROL, Kit
from support.stores import A0
from support.virtual_loop import run_virtual, virtual_time

from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import examine_kit, kit_source
from quiesce.fuzz.report import text_of
from quiesce.fuzz.verdicts import Verdict
from quiesce.participants import server
from quiesce.participants.capabilities import LEASE_FEATURE
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.server import Lease, ModelLedger, SessionHooks, Sessions, mount_policy, mount_sessions
from quiesce.participants.server.runs import Runs

GRACE_S = 20.0
ROUTES = {
    "policy": ("/model-admission/pause", "/model-checkpoint/{}", "/model-admission/resume"),
    "agent": ("/agent-checkpoint/prepare", "/agent-checkpoint/{}", "/agent-checkpoint/resume"),
    "resources": ("/resources-checkpoint/prepare", "/resources-checkpoint/{}", "/resources-checkpoint/resume"),
}
TENTHS = st.integers(-20, 600).map(lambda number: number / 10)
on_every_role = pytest.mark.parametrize("component", list(ROUTES))


def kit_with_lease(grace_s: float = GRACE_S) -> Kit:
    """A deployment whose participants have leases."""
    return Kit(lease=Lease(grace_s))


def is_open(kit: Kit, component: str, id_: str = "x") -> bool:
    """Whether a server accepts work and has used the id up."""
    state = kit.server(component).fence.state
    return not state.closed and state.active is None and id_ in state.finished


async def prepare(kit: Kit, component: str, id_: str = "x", *, in_s: float = 5.0) -> int | None:
    """Close a server; the status of the reply."""
    return (await kit.post(kit.server(component), ROUTES[component][0], id_, in_s=in_s)).status


async def renew(kit: Kit, component: str, id_: str = "x", *, in_s: float = 5.0) -> tuple[int | None, object]:
    """Renew a lease; the status, and when it expires or why it was refused."""
    reply = await kit.post(kit.server(component), "/lease/renew", id_, in_s=in_s)
    content = reply.json
    assert isinstance(content, dict)
    return reply.status, content["lease_expires_at"] if reply.status == 200 else content["error"]["code"]


async def commit(kit: Kit, component: str, directory: Path, id_: str = "x", *, in_s: float = 600.0) -> int | None:
    """Export; the status of the reply."""
    members: dict[str, object] = {"checkpoint_dir": str(directory)}
    if component == "policy":
        members["continuation_indexes"] = []
    route = ROUTES[component][1].format("commit")
    return (await kit.post(kit.server(component), route, id_, in_s=in_s, **members)).status


@on_every_role
@virtual_time
async def test_whoever_hears_nothing_more_opens_after_the_grace(component: str) -> None:
    """Closed until the last deadline and the grace, open right after; the id is used up (field case 9 #16)."""
    kit = kit_with_lease()
    assert await prepare(kit, component, in_s=5.0) == 200
    await asyncio.sleep(5.0 + GRACE_S - 0.01)
    assert kit.server(component).fence.state.active == "x"
    await asyncio.sleep(0.02)
    assert is_open(kit, component)


@on_every_role
@virtual_time
async def test_a_used_up_id_is_refused_for_good(component: str, tmp_path: Path) -> None:
    """A late prepare, commit and renewal are stale; a late resume is answered as ever; another id may hold it."""
    kit = kit_with_lease()
    await prepare(kit, component)
    await asyncio.sleep(100.0)
    assert await prepare(kit, component) == 409
    assert await commit(kit, component, tmp_path) == 409
    assert await renew(kit, component) == (409, "stale_checkpoint")
    resumed = await kit.post(kit.server(component), ROUTES[component][2])
    assert resumed.status == 200
    assert isinstance(resumed.json, dict)
    assert resumed.json["state"] == "accepting"
    assert is_open(kit, component)
    assert await prepare(kit, component, "y") == 200
    assert await renew(kit, component) == (409, "stale_checkpoint")
    assert kit.server(component).fence.state.active == "y"


@on_every_role
@virtual_time
async def test_a_commit_that_runs_is_finished_first(
    component: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being written is never cut off; the lease that lapsed meanwhile opens right after, and is not renewed."""
    kit = kit_with_lease()
    go = asyncio.Event()
    store: Any = {"policy": ModelLedger, "agent": Runs, "resources": Sessions}[component]  # Any: three signatures
    export = store.export

    async def slowly(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        await go.wait()
        return await export(*given, **named)

    monkeypatch.setattr(store, "export", slowly)
    await prepare(kit, component)
    committing = asyncio.ensure_future(commit(kit, component, tmp_path))
    await asyncio.sleep(200.0)
    assert kit.server(component).fence.state.phase is FencePhase.COMMITTING
    assert await renew(kit, component) == (409, "stale_checkpoint")
    go.set()
    assert await committing == 200
    await asyncio.sleep(0)
    assert is_open(kit, component)


@on_every_role
@virtual_time
async def test_the_end_of_a_commit_is_a_sign_of_life(component: str, tmp_path: Path) -> None:
    """A controller that knows no leases has the grace from one call to the next, however long its commit takes."""
    kit = kit_with_lease()
    await prepare(kit, component)
    await asyncio.sleep(GRACE_S)
    assert await commit(kit, component, tmp_path) == 200
    await asyncio.sleep(GRACE_S - 0.1)
    assert kit.server(component).fence.state.phase is FencePhase.COMMITTED_PAUSED
    await asyncio.sleep(0.2)
    assert is_open(kit, component)


@on_every_role
@given(
    # odd instants, so that nothing is asked at the very instant at which a lease lapses
    steps=st.lists(st.tuples(st.integers(1, 400).map(lambda n: n / 10 + 0.0137), TENTHS), max_size=12),
    grace_s=st.sampled_from([0.5, 5.0, 30.0]),
    committed=st.booleans(),
)
def test_a_renewed_lease_never_lapses_and_a_lapsed_one_always_opens(
    component: str, steps: list[tuple[float, float]], grace_s: float, *, committed: bool
) -> None:
    """Whatever is renewed when: held exactly until the latest deadline and the grace, then open with the id used up."""

    async def scenario(directory: Path) -> None:
        kit = kit_with_lease(grace_s)
        loop = asyncio.get_running_loop()
        state = kit.server(component).fence
        assert await prepare(kit, component, in_s=5.0) == 200
        until_s = loop.time() + 5.0
        if committed:
            assert await commit(kit, component, directory) == 200
        for wait_s, ahead_s in steps:
            await asyncio.sleep(wait_s)
            lapsed = loop.time() >= until_s + grace_s
            assert is_open(kit, component) is lapsed
            status, said = await renew(kit, component, in_s=ahead_s)
            if lapsed:
                assert (status, said) == (409, "stale_checkpoint")
            elif ahead_s <= 0:
                assert (status, said) == (409, "deadline_exceeded")
            else:
                assert status == 200
                until_s = max(until_s, loop.time() + ahead_s)
                assert said == pytest.approx(kit.clock.now_ts() + until_s + grace_s - loop.time())
                assert state.state.active == "x"
        await asyncio.sleep(max(0.0, until_s + grace_s - loop.time()) + 0.01)
        assert is_open(kit, component)
        assert await renew(kit, component) == (409, "stale_checkpoint")
        assert await prepare(kit, component) == 409

    with TemporaryDirectory() as folder:
        run_virtual(scenario(Path(folder)))


@virtual_time
async def test_who_is_parked_goes_on_when_the_lease_lapses() -> None:
    """Executions that stand at a boundary for a cut are let go, and finished calls are answered."""
    kit = kit_with_lease()
    passed: list[int] = []

    async def execution() -> None:
        async with kit.stores.runs.begin(A0) as running:
            for index in range(1, 4):
                await asyncio.sleep(1.0)
                await running.commit_boundary(boundary_index=index)
                passed.append(index)
            running.finish({"id": "done"})

    going = asyncio.ensure_future(execution())
    await asyncio.sleep(0.5)
    assert await prepare(kit, "agent") == 200
    await asyncio.sleep(10.0)
    assert passed == []
    await going
    assert passed == [1, 2, 3]
    assert is_open(kit, "agent")


@virtual_time
async def test_a_drain_that_nobody_awaits_any_more_is_given_up() -> None:
    """A policy whose calls never end opens all the same."""
    kit = kit_with_lease()
    call = kit.work_call(kit.policy, "/v1/responses", A0)
    await asyncio.sleep(0)
    assert await prepare(kit, "policy") == 200
    assert kit.policy.fence.state.phase is FencePhase.PREPARING
    await asyncio.sleep(5.0 + GRACE_S + 0.1)
    assert is_open(kit, "policy")
    kit.work.go.set()
    await call.done()


@on_every_role
@virtual_time
async def test_a_restore_is_not_leased(component: str, tmp_path: Path) -> None:
    """Whoever opened by itself would run on half a restore; a renewal says that nothing expires (F-23)."""
    kit = kit_with_lease()
    await prepare(kit, component)
    assert await commit(kit, component, tmp_path) == 200
    fresh = kit_with_lease()
    route = ROUTES[component][1].format("restore")
    restored = await fresh.post(fresh.server(component), route, "r", in_s=5.0, checkpoint_dir=str(tmp_path))
    assert restored.status == 200
    await asyncio.sleep(10_000.0)
    assert fresh.server(component).fence.state.phase is FencePhase.RESTORED_PAUSED
    assert await renew(fresh, component, "r") == (200, None)


@on_every_role
@virtual_time
async def test_a_renewal_is_for_whoever_holds_it(component: str) -> None:
    """Nothing held is a wrong phase, another's id a conflict, and neither changes when the lease lapses."""
    kit = kit_with_lease()
    assert await renew(kit, component) == (409, "invalid_phase")
    await prepare(kit, component)
    assert await renew(kit, component, "y", in_s=1000.0) == (409, "checkpoint_conflict")
    await asyncio.sleep(5.0 + GRACE_S + 0.1)
    assert is_open(kit, component)


@on_every_role
@virtual_time
async def test_without_a_lease_nothing_changes(component: str) -> None:
    """No feature, no route, and closed until somebody resumes it."""
    kit = Kit()
    server = kit.server(component)
    features = server.capabilities()["features"]
    assert isinstance(features, list)
    assert LEASE_FEATURE not in features
    await prepare(kit, component)
    assert (await kit.post(server, "/lease/renew")).status == 404
    await asyncio.sleep(100_000.0)
    assert server.fence.state.active == "x"


@on_every_role
@virtual_time
async def test_a_lease_is_declared_and_guarded_by_the_token(component: str) -> None:
    """The feature stands in the capabilities; without the bearer the route answers 401, for an empty body 422."""
    kit = kit_with_lease()
    server = kit.server(component)
    features = server.capabilities()["features"]
    assert isinstance(features, list)
    assert LEASE_FEATURE in features
    nobody = Kit(lease=Lease(GRACE_S), token=None)
    assert LEASE_FEATURE not in str(nobody.server(component).capabilities())
    await prepare(kit, component)
    kit.token = "wrong"
    assert (await kit.post(server, "/lease/renew")).status == 401
    assert server.fence.state.active == "x"


@pytest.mark.parametrize("grace_s", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_lease_that_cannot_be_is_refused(grace_s: float) -> None:
    """Neither none, nor for ever."""
    with pytest.raises(ConfigurationError, match="cannot be"):
        Lease(grace_s)


def test_a_recorded_fence_has_no_lease() -> None:
    """It would not be as the recorded servers are."""
    ledger = ModelLedger("policy")
    app = Kit().work.model_app()
    with pytest.raises(ConfigurationError, match="recorded servers have no lease"):
        mount_policy(app, ledger=ledger, token="t", fence=FenceVariant.GYM_A_SINGLE, lease=Lease())


def test_every_mount_takes_a_lease() -> None:
    """Sessions that the author keeps in hand too."""
    hooks = SessionHooks(lambda _attempt: {}, lambda _attempt, _state: None, lambda _attempt: None)
    mounted = mount_sessions(Kit().work.model_app(), Sessions("tools", hooks=hooks), token="t", lease=Lease())
    assert LEASE_FEATURE in str(mounted.capabilities())
    assert CONTROL in {route.rpartition("/lease")[0] for route in mounted._routes}


@pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES])
def test_a_leased_server_conforms(role: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps every rule that a participant of generation A is held to."""
    for name in ("mount_policy", "mount_agent", "mount_sessions"):
        monkeypatch.setattr(server, name, functools.partial(getattr(server, name), lease=Lease(60.0)))
    report = examine_kit(kit_source(role), calls_max=900)
    assert report.violations == (), text_of([report])
    assert report.verdict is Verdict.TESTED
