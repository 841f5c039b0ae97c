"""What is logged, under which names; and that no token is written, logged, raised or shown anywhere."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from support.fleet import Fleet, keep
from support.virtual_loop import virtual_time
from support.wiretap import Wiretap

from quiesce.controller import Controller, Superseded
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.trace import TraceRecord
from quiesce.transport.faults import Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.port import ControlReply
from quiesce.transport.token import StaticTokenProvider

LOST = Fault(FaultKind.REPLY_LOST)
REFUSED = ControlReply(409, {"content-type": "application/json"}, b'{"error":{"code":"agent_checkpoint_error"}}')
CANARY = "canary-5f3a91c7e2"
Logged = list[MutableMapping[str, Any]]


@pytest.fixture
def logged(quick_and_quiet: None) -> Iterator[Logged]:
    """Everything that is logged, of every level."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with capture_logs() as events:
        yield events


def test_every_step_is_logged_under_one_name(tmp_path: Path, logged: Logged) -> None:
    """Machine, participant, from where, by what, to where, and why; with the transaction's id."""

    @virtual_time
    async def scenario() -> tuple[str, list[TraceRecord]]:
        fleet = Fleet()
        async with fleet.controller(tmp_path) as controller, controller.cut("step-1") as cut:
            pass
        return cut.wire_id, fleet.traces

    wire_id, traces = scenario()
    steps = [event for event in logged if event["event"] == "transition"]
    assert [
        (step["machine"], step["participant"] or "", step["source"], step["trigger"], step["target"]) for step in steps
    ] == [(trace.machine, trace.subject, trace.source, trace.event, trace.target) for trace in traces]
    assert {step["wire_id"] for step in steps} == {wire_id}
    assert {step["log_level"] for step in steps} == {"info"}
    assert all(step["reason"] for step in steps)
    assert [event["state"] for event in logged if event["event"] == "transaction_rests"] == ["resumed"]


def test_a_controller_that_is_closed_with_somebody_in_doubt_says_so(tmp_path: Path, logged: Logged) -> None:
    """By name and id, since nobody will try any more; a settled one says nothing."""

    @virtual_time
    async def scenario() -> None:
        for lost in (False, True):
            fleet = Fleet()
            network = fleet.transport()
            async with fleet.controller(tmp_path / str(lost), transport=network, release_timeout_s=10.0) as controller:
                cut = await controller.begin_cut("step-1")
                await cut.prepare()
                if lost:
                    network.unmount("http://tools")
                await cut.abort()
                await cut.discard()
                await controller.end(cut)

    scenario()
    told = [event for event in logged if event["event"] == "closed_unsettled"]
    assert len(told) == 1
    assert "main/tools" in told[0]["held"]
    assert told[0]["wire_id"] in told[0]["held"]


def test_a_controller_that_was_taken_over_says_so_once(tmp_path: Path, logged: Logged) -> None:
    """One event is one line: that its journal is not complete, too, is no other."""

    @virtual_time
    async def scenario() -> None:
        fleet = Fleet()
        async with fleet.controller(tmp_path) as controller:
            with pytest.raises(Superseded):
                async with controller.cut("step-1"):
                    controller.store.layout.holder(2).parent.mkdir()  # the claim of a successor

    scenario()
    told = [event for event in logged if event["log_level"] in ("warning", "error")]
    assert [event["event"] for event in told] == ["transaction_superseded"]


def test_what_goes_wrong_is_logged_by_name(tmp_path: Path, logged: Logged) -> None:
    """A failure says its cause, participant and outcome; an observer that raises and a note have names of their own."""

    def raises(_trace: TraceRecord) -> None:
        raise RuntimeError("an embedder's fault")

    @virtual_time
    async def scenario() -> None:
        fleet = Fleet()
        network = fleet.transport()
        tap = Wiretap(network)
        async with fleet.controller(tmp_path, transport=tap, observers=(raises,), straggler_after_s=2.0) as controller:
            slow = fleet.stuck("slow")
            await fleet.clock.sleep(0.1)
            with pytest.raises(TimeoutError):
                await _impatient(controller)
            tap.instead = lambda call: REFUSED if call.route == "agent-checkpoint/prepare" else None
            with pytest.raises(QuiesceError):
                await controller.cut("step-2").__aenter__()
            slow.cancel()

    scenario()
    names = {event["event"] for event in logged}
    assert names >= {"transition", "transaction_failing", "transaction_note", "transaction_rests", "observer_failed"}
    failing = [event for event in logged if event["event"] == "transaction_failing"]
    assert [(event["cause"], event["participant"], event["outcome"]) for event in failing] == [
        ("cancelled", None, None),
        ("participant_failed", "main/agent", "refused"),
    ]
    noted = next(event["note"] for event in logged if event["event"] == "transaction_note")
    assert noted.startswith("main/agent: slow")


async def _impatient(controller: Controller) -> None:
    async with asyncio.timeout(8.0), controller.cut("step-1"):
        raise AssertionError


def written(root: Path) -> str:
    """Everything below a root, names included."""
    return "\n".join(f"{path}\n{path.read_bytes()!r}" for path in sorted(root.rglob("*")) if path.is_file())


def shown(error: BaseException) -> str:
    """All that an error and its frames may show, local variables included."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return f"{error} {error!r} {''.join(told.format())}"


@pytest.mark.parametrize("wrong", ["nothing", "refused", "lost", "unreachable", "crash"])
def test_the_token_appears_nowhere(
    tmp_path: Path, logged: Logged, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    """Not in logs, journal, snapshot, errors with their local variables, nor in what anything looks like."""
    told: list[str] = []

    @virtual_time
    async def scenario() -> None:
        fleet = Fleet(token=CANARY if wrong != "refused" else "another")
        network = fleet.transport()
        if wrong == "refused":
            network = AsgiTransport(
                {f"http://{name}": app for name, app in fleet.apps.items()}, StaticTokenProvider(CANARY)
            )
        faults = {("main/policy", "POST /ng-control/v1/model-checkpoint/commit", nth): LOST for nth in (2, 3, 4)}
        transport = FaultyTransport(network, ScriptedFaults(faults if wrong == "lost" else {}))
        await fleet.rollout("done", 1)
        if wrong == "crash":
            fleet.runs.request_park = _crash  # type: ignore[method-assign]  # a bug of the server's author
        try:
            async with fleet.controller(tmp_path, transport=transport, on_completed=keep) as controller:
                told.append(f"{controller!r} {vars(controller)!r} {controller.discovered!r} {controller.config!r}")
                if wrong == "unreachable":
                    network.unmount("http://tools")
                async with controller.cut("step-1") as cut:
                    told.append(repr(vars(cut)))
        except (QuiesceError, ExceptionGroup) as error:
            told.append(shown(error))

    scenario()
    assert len(told) >= 1
    assert CANARY not in "".join(told)
    assert CANARY not in repr(logged)
    assert CANARY not in caplog.text
    assert CANARY not in written(tmp_path)


def _crash() -> None:
    raise RuntimeError("a bug")
