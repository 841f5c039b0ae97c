"""Replies that lie: every reply of a cut and of a restore, with every kind of lie that can be told from the truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fleet import Fleet, keep
from support.virtual_loop import run_virtual
from support.wiretap import Wiretap

from quiesce.controller import Controller, PhasedRestore, RestoreFailed
from quiesce.controller.discovery import DiscoveryFailed
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.transport.delivery import maybe_applied
from quiesce.transport.faults import CallSite
from quiesce.transport.port import ControlReply, ControlRequest

Lie = Callable[[ControlReply, ControlRequest], ControlReply]
HTML = {"content-type": "text/html"}
EMPTY: dict[str, str] = {}


def altered(change: Callable[[dict[str, object]], object]) -> Lie:
    """Another body in a reply that is true otherwise; refusals, and what the change does not touch, are left alone."""

    def lie(reply: ControlReply, _request: ControlRequest) -> ControlReply:
        if reply.status != 200:
            return reply
        truth = json.loads(reply.body)
        body = change(truth)
        return reply if body == truth else ControlReply(200, reply.headers, json.dumps(body).encode())

    return lie


def _everywhere(value: object, change: Callable[[str, object], object]) -> object:
    if isinstance(value, dict):
        return {name: change(name, _everywhere(inner, change)) for name, inner in value.items()}
    return [_everywhere(inner, change) for inner in value] if isinstance(value, list) else value


def _counts(name: str, value: object) -> object:
    return int(str(value)) + 1 if name in ("rows", "records", "sessions", "rollouts", "bytes") else value


def _digests(name: str, value: object) -> object:
    return "0" * 64 if name in ("sha256", "manifest_digest") else value


def _ids(name: str, value: object) -> object:
    return "other-1" if name in ("checkpoint_id", "source_checkpoint_id", "active_checkpoint_id") else value


def _as_text(_name: str, value: object) -> object:
    return str(value) if type(value) in (int, bool) else value


def _huge(_reply: ControlReply, request: ControlRequest) -> ControlReply:
    """What a transport makes of a body over the cap: the request did arrive."""
    raise maybe_applied(request, f"the reply is larger than the {request.body_cap} bytes that are read of it")


LIES: dict[str, Lie] = {
    "html 502": lambda *_: ControlReply(502, HTML, b"<html>Bad Gateway\x00</html>"),
    "empty 500": lambda *_: ControlReply(500, EMPTY, b""),
    "html 200": lambda *_: ControlReply(200, HTML, b"<html>Welcome</html>"),
    "no body 204": lambda reply, _: ControlReply(204, reply.headers, b""),
    "accepted 202": lambda reply, _: ControlReply(202, reply.headers, reply.body),
    "truncated": lambda reply, _: ControlReply(200, reply.headers, reply.body[: len(reply.body) // 2]),
    "a list": lambda reply, _: ControlReply(200, reply.headers, b"[" + reply.body + b"]"),
    "wrong types": altered(lambda body: {name: {"a": "b"} for name in body}),
    "numbers as text": altered(lambda body: _everywhere(body, _as_text)),
    "other instance": lambda reply, _: ControlReply(
        reply.status, {**reply.headers, "x-quiesce-instance": "f" * 16}, reply.body
    ),
    "wrong id": altered(lambda body: _everywhere(body, _ids)),
    "wrong count": altered(lambda body: _everywhere(body, _counts)),
    "wrong digest": altered(lambda body: _everywhere(body, _digests)),
    "over the cap": _huge,
}
NOT_BELIEVABLE = frozenset(LIES) - {"other instance", "wrong id", "wrong count", "wrong digest", "over the cap"}
"""Lies that nobody could believe, also of a participant of which nothing is known yet."""
OF_AN_EXPORT = frozenset({"wrong count", "wrong digest"})
"""Lies that can be told from the truth where a save lies on the disk."""
ON_THE_WAY = ("pause", "status", "prepare", "commit", "acknowledge-completed", "capabilities")
NAMED_BY_HTTP = ("html 502", "truncated", "other instance", "no body 204", "wrong types")


@pytest.fixture(autouse=True)
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that looks wrong is read again after a while; here the while is nothing."""
    monkeypatch.setitem(SnapshotStore.__init__.__kwdefaults__ or {}, "sleep", lambda _seconds: None)


async def busy(fence: FenceVariant) -> tuple[Fleet, list[asyncio.Task[Any]]]:
    """Work in every server: a rollout that parks, a finished result, a session, an open call that ends in a while."""
    fleet = Fleet(fence)
    tasks: list[asyncio.Task[Any]] = [fleet.rollout("r0", 30), fleet.rollout("done", 1)]
    await fleet.seed_session("r0")
    await fleet.clock.sleep(2.5)
    tasks.append(asyncio.create_task(fleet.model_call("r0")))
    await fleet.call_began.wait()
    asyncio.get_running_loop().call_later(4.0, fleet.let_calls_end.set)
    return fleet, tasks


async def run_cut(root: Path, fence: FenceVariant, site: CallSite | None, lie: str, *, again: bool) -> list[CallSite]:
    """A cut in which one reply lies, and where asked for the next one, in which none does."""
    fleet, tasks = await busy(fence)
    tap = Wiretap(fleet.transport(), replies={site: LIES[lie]} if site else {})
    async with fleet.controller(root, transport=tap, on_completed=keep) as controller:
        discovered = len(tap.calls)
        await one_cut(controller, fleet, tap, site, lie)
        if again:
            async with controller.cut("second"):
                pass
            assert controller.store.verify("second").is_good
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await fleet.everybody_accepts()
    return tap.sites[discovered:]


async def one_cut(controller: Controller, fleet: Fleet, tap: Wiretap, site: CallSite | None, lie: str) -> None:
    """Either the lie was found, and then nothing is published; or it did not matter, and what is published is true."""
    try:
        async with controller.cut("first"):
            pass
    except (QuiesceError, ExceptionGroup) as error:
        assert site is not None
        check_error(error, site)
        check_notes(error)
        assert controller.unsettled is None
        assert controller.store.list() == ()
    else:
        assert controller.store.verify("first").is_good
        assert not [one for one in tap.altered if must_be_found(one, lie)], "believed"
    assert await fleet.everybody_accepts()


def must_be_found(site: CallSite, lie: str) -> bool:
    """Whether the cut may not succeed: a lie on the way to it that can be told from the truth.

    A resume is repeated until it is believed, an agent's status only says what a prepare waits for, and of a judge
    nothing is read but what it declares, once.
    """
    last = site.call.rpartition("/")[2]
    if site.participant == "main/judge" and lie == "other instance":
        return False
    if last == "resume" or "agent-checkpoint/status" in site.call:
        return False
    return lie in NOT_BELIEVABLE or lie in ("other instance", "wrong id") or (lie in OF_AN_EXPORT and last == "commit")


def check_error(error: BaseException, site: CallSite) -> None:
    """It is typed, names the participant, and holds no traceback of a JSON library and no control character."""
    text = str(error.exceptions if isinstance(error, BaseExceptionGroup) else error)
    assert site.participant in text, text
    assert "\\x00" not in text
    assert "\x00" not in text
    assert "JSONDecodeError" not in text


def check_notes(error: BaseException) -> None:
    """Whoever reads it is told what is left of the cut."""
    assert any(note.startswith("nothing was published, and ") for note in error.__notes__)


def sites_of_a_cut(root: Path, fence: FenceVariant) -> Iterator[CallSite]:
    """The calls of a clean cut, without those of discovery."""
    yield from run_virtual(run_cut(root, fence, None, "", again=False))


@pytest.mark.parametrize("lie", LIES)
def test_no_reply_of_a_cut_is_believed_that_lies(tmp_path: Path, lie: str) -> None:
    """Found, the cut is undone, the error says who; else the cut is true. The next one works (F-27, F-39)."""
    sites = list(sites_of_a_cut(tmp_path / "clean", FenceVariant.STRICT))
    assert {site.call.rpartition("/")[2] for site in sites} >= {*ON_THE_WAY, "resume"}
    for number, site in enumerate(sites):
        again = lie in ("html 502", "over the cap")
        _held_to(run_cut(tmp_path / str(number), FenceVariant.STRICT, site, lie, again=again), site)


@pytest.mark.parametrize("lie", NAMED_BY_HTTP)
def test_no_reply_of_a_recorded_server_is_believed_that_lies(tmp_path: Path, lie: str) -> None:
    """The same on the recorded fence."""
    fence = FenceVariant.GYM_A_SINGLE
    for number, site in enumerate(sites_of_a_cut(tmp_path / "clean", fence)):
        _held_to(run_cut(tmp_path / str(number), fence, site, lie, again=False), site)


def _held_to(scenario: Coroutine[Any, Any, Any], site: CallSite) -> None:
    try:
        run_virtual(scenario)
    except BaseException as error:
        error.add_note(f"at {site}")
        raise


def test_no_reply_of_discovery_is_believed_that_lies(tmp_path: Path) -> None:
    """The controller does not open, names who lied, and has called nobody."""
    fleet = Fleet()
    tap = Wiretap(fleet.transport())

    async def discovered() -> None:
        async with fleet.controller(tmp_path, transport=tap):
            pass

    run_virtual(discovered())
    capabilities = [site for site in tap.sites if site.call.endswith("capabilities")]
    assert len(capabilities) == 4
    for lie in sorted(NOT_BELIEVABLE):
        for number, site in enumerate(capabilities):
            path = tmp_path / f"{lie}{number}"
            with pytest.raises(DiscoveryFailed, match=site.participant):
                run_virtual(_open_lied_to(path, site, lie))


async def _open_lied_to(root: Path, site: CallSite, lie: str) -> None:
    fleet = Fleet()
    tap = Wiretap(fleet.transport(), replies={site: LIES[lie]})
    try:
        async with fleet.controller(root, transport=tap):
            raise AssertionError("opened")
    finally:
        assert tap.mutating() == []


# restore


async def run_restore(root: Path, site: CallSite | None, lie: str) -> list[CallSite]:
    """A restore in which one reply lies: refused before anything, held closed, or true; then brought to its end."""
    fleet = Fleet(restore_expected=True)
    tap = Wiretap(fleet.transport(), replies={site: LIES[lie]} if site else {})
    async with fleet.controller(root, transport=tap) as controller:
        discovered = len(tap.calls)
        try:
            async with controller.restore("saved"):
                assert not [one for one in tap.altered if must_hold(one, lie)], "believed"
        except (QuiesceError, ExceptionGroup) as error:
            assert site is not None
            check_error(error, site)
            await bring_to_its_end(controller, error)
        else:
            assert await fleet.everybody_accepts()
            assert len(fleet.runs.restored()) == 1
    return tap.sites[discovered:]


def must_hold(site: CallSite, lie: str) -> bool:
    """Whether a restore may not succeed."""
    if site.call.endswith("resume"):
        return False
    if site.participant == "main/judge" and lie == "other instance":
        return False
    imports = site.call.endswith("restore")
    return lie in NOT_BELIEVABLE or lie in ("other instance", "wrong id") or (lie in OF_AN_EXPORT and imports)


async def bring_to_its_end(controller: Controller, error: BaseException) -> None:
    """Held closed it can be retried, since the lie was told once; else nobody was touched."""
    held = controller.unsettled
    if held is None:
        return
    assert isinstance(held, PhasedRestore)
    assert held.state is TransactionState.RESTORE_FAILED
    assert isinstance(error, RestoreFailed) or any(isinstance(e, RestoreFailed) for e in error.exceptions)  # type: ignore[attr-defined]  # a group
    await held.retry()
    await held.resume()


@pytest.mark.parametrize("lie", LIES)
def test_no_reply_of_a_restore_is_believed_that_lies(tmp_path: Path, lie: str) -> None:
    """Nothing is resumed on a lie; the restore is held closed and names who lied, or nobody was touched."""

    async def save() -> None:
        fleet, tasks = await busy(FenceVariant.STRICT)
        async with fleet.controller(tmp_path, on_completed=keep) as controller, controller.cut("saved"):
            pass
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(save())
    for site in run_virtual(run_restore(tmp_path, None, "")):
        _held_to(run_restore(tmp_path, site, lie), site)
