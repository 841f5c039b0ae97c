"""Injected faults: what the caller sees, what reaches the participant, and that a run can be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.control_app import ControlApp
from support.virtual_loop import virtual_time

from quiesce.participants.errors import ConfigurationError, MaybeApplied, NeverSent, Unreachable
from quiesce.transport import (
    GATEWAY_PAGE,
    AsgiTransport,
    CallSite,
    ControlReply,
    ControlRequest,
    Fault,
    FaultKind,
    FaultyTransport,
    ScriptedFaults,
    SeededFaults,
)

CALL = "POST /status/200"
Script = Mapping[tuple[str, str, int], Fault]


def call(path: str = "/status/200", participant: str = "tools", timeout_s: float = 60.0) -> ControlRequest:
    """A POST to a participant."""
    url = "http://tools:8000" + path
    return ControlRequest(participant=participant, method="POST", url=url, body=b"{}", timeout_s=timeout_s)


def transport_with(script: Script) -> tuple[ControlApp, FaultyTransport]:
    """An application behind a transport with these faults."""
    app = ControlApp()
    return app, FaultyTransport(AsgiTransport({"http://tools:8000": app}), ScriptedFaults(script))


def now_s() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


@virtual_time
@pytest.mark.parametrize(
    ("kind", "error", "delivered", "after_s"),
    [
        (FaultKind.REFUSED, NeverSent, False, 0.0),
        (FaultKind.RESET, MaybeApplied, False, 0.0),
        (FaultKind.REQUEST_LOST, MaybeApplied, False, 60.0),
        (FaultKind.REPLY_LOST, MaybeApplied, True, 0.0),
        (FaultKind.REPLY_STUCK, MaybeApplied, True, 60.0),
    ],
)
async def test_each_kind(kind: FaultKind, error: type[Unreachable], *, delivered: bool, after_s: float) -> None:
    """Each kind shows the caller what a network would, when it would, and delivers or does not."""
    app, transport = transport_with({("tools", CALL, 1): Fault(kind)})
    with pytest.raises(Unreachable, match=f"fault injected: {kind.value}") as caught:
        await transport.send(call())
    assert type(caught.value) is error
    assert now_s() == pytest.approx(after_s)
    assert app.calls == ([CALL] if delivered else [])
    (record,) = transport.injected
    assert (record.site, record.fault.kind, record.delivered) == (CallSite("tools", CALL, 1), kind, delivered)
    assert (await transport.send(call())).status == 200
    await transport.aclose()


@virtual_time
@pytest.mark.parametrize(("delay_s", "arrivals"), [(0.0, 2), (90.0, 1)])
async def test_a_duplicated_call_arrives_twice_and_is_answered_once(delay_s: float, arrivals: int) -> None:
    """The caller sees one reply, at once; the second request arrives when it does."""
    app, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.DUPLICATED, delay_s)})
    assert (await transport.send(call())).status == 200
    assert now_s() == pytest.approx(0)
    assert len(app.calls) == arrivals
    await transport.settled()
    assert app.calls == [CALL, CALL]


@virtual_time
async def test_a_call_that_a_proxy_sends_again_is_answered_by_its_second_arrival() -> None:
    """The first reply is lost on the way; nobody but the participant knows that it was called twice."""
    app, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.RESENT, 2.0)})
    assert (await transport.send(call())).status == 200
    assert now_s() == pytest.approx(2)
    assert app.calls == [CALL, CALL]


@virtual_time
@pytest.mark.parametrize(("delay_s", "arrives"), [(7.5, True), (90.0, False)])
async def test_the_bytes_of_a_reply_may_be_slow(delay_s: float, *, arrives: bool) -> None:
    """The request was delivered at once, whatever becomes of the reply."""
    app, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.REPLY_SLOW, delay_s)})
    sending = asyncio.create_task(transport.send(call()))
    await asyncio.sleep(1)
    assert app.calls == [CALL]
    if arrives:
        assert (await sending).status == 200
    else:
        with pytest.raises(MaybeApplied, match="reply_slow by 90 s"):
            await sending
    assert now_s() == pytest.approx(min(delay_s, 60.0))


@virtual_time
async def test_a_garbled_reply_is_no_text() -> None:
    """Its status and its head are as they were."""
    app, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.GARBLED)})
    reply = await transport.send(call())
    assert reply.status == 200
    with pytest.raises(UnicodeDecodeError):
        reply.body.decode()
    assert app.calls == [CALL]


@virtual_time
@pytest.mark.parametrize("reply", [None, ControlReply(401, {}, b"{}")], ids=["gateway", "chosen"])
@pytest.mark.parametrize(("kind", "calls"), [(FaultKind.ANSWERED_FOR, 0), (FaultKind.REPLY_REPLACED, 1)])
async def test_something_in_the_way_may_answer(kind: FaultKind, calls: int, reply: ControlReply | None) -> None:
    """It answers what it wants, whether the participant was called or not."""
    app, transport = transport_with({("tools", CALL, 1): Fault(kind, reply=reply)})
    assert await transport.send(call()) == (reply or GATEWAY_PAGE)
    assert len(app.calls) == calls


@virtual_time
async def test_a_script_counts_calls_by_participant_and_path() -> None:
    """The second call to a path of a participant is the second one, whatever else was called between."""
    app, transport = transport_with({("tools", CALL, 2): Fault(FaultKind.REFUSED)})
    for request in (call(), call("/status/204"), call(participant="other"), call(participant="other")):
        await transport.send(request)
    with pytest.raises(NeverSent, match="call 2 of its kind"):
        await transport.send(call())
    assert (await transport.send(call())).status == 200
    assert len(app.calls) == 5


@virtual_time
async def test_a_delay_within_the_time_out() -> None:
    """A delayed call is answered, later."""
    _, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.DELAYED, 7.5)})
    assert (await transport.send(call())).status == 200
    assert now_s() == pytest.approx(7.5)
    assert [record.delivered for record in transport.injected] == [True]


@virtual_time
async def test_a_late_request_arrives_after_its_client_gave_up() -> None:
    """A delay past the time-out: the caller learns nothing, and the participant is called all the same."""
    app, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.DELAYED, 90.0)})
    with pytest.raises(MaybeApplied, match="delayed by 90 s"):
        await transport.send(call())
    assert now_s() == pytest.approx(60)
    assert app.calls == []
    await transport.settled()
    assert now_s() == pytest.approx(90)
    assert app.calls == [CALL]


@virtual_time
async def test_a_late_request_arrives_after_its_client_was_cancelled() -> None:
    """Cancelling the caller cancels the caller; the request is under way."""
    app, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.DELAYED, 90.0)})
    sending = asyncio.create_task(transport.send(call()))
    await asyncio.sleep(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await transport.settled()
    assert app.calls == [CALL]


@virtual_time
@pytest.mark.parametrize("kind", [FaultKind.REQUEST_LOST, FaultKind.REPLY_STUCK, FaultKind.DELAYED])
async def test_closing_ends_the_silence(kind: FaultKind) -> None:
    """A call that waits in an injected silence ends when the transport is closed, and no task is left."""
    fault = Fault(kind, 50.0 if kind is FaultKind.DELAYED else 0.0)
    _, transport = transport_with({("tools", CALL, 1): fault})
    sending = asyncio.create_task(transport.send(call()))
    await asyncio.sleep(1)
    await transport.aclose()
    with pytest.raises(MaybeApplied):
        await sending
    assert now_s() == pytest.approx(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with pytest.raises(NeverSent, match="the transport is closed"):
        await transport.send(call())


@virtual_time
async def test_a_fault_on_top_of_a_failure() -> None:
    """A reply cannot be lost where the request was never sent: the truth is handed on."""
    transport = FaultyTransport(AsgiTransport(), ScriptedFaults({("tools", CALL, 1): Fault(FaultKind.REPLY_LOST)}))
    with pytest.raises(NeverSent, match="no application is mounted"):
        await transport.send(call())
    assert [record.delivered for record in transport.injected] == [False]


@virtual_time
async def test_a_call_without_time_has_no_fault() -> None:
    """A call that is never sent has nothing that could go wrong on its way."""
    app, transport = transport_with({("tools", CALL, 1): Fault(FaultKind.REPLY_LOST)})
    with pytest.raises(NeverSent, match="no time was left"):
        await transport.send(call(timeout_s=0))
    assert list(transport.injected) == []
    assert app.calls == []


RATES = {FaultKind.REFUSED: 0.2, FaultKind.REPLY_LOST: 0.2, FaultKind.REQUEST_LOST: 0.1, FaultKind.DELAYED: 0.2}
SITES = st.builds(CallSite, st.sampled_from(["a", "b"]), st.sampled_from(["POST /x", "GET /y"]), st.integers(1, 50))


@given(seed=st.integers(), sites=st.lists(SITES), order=st.randoms(use_true_random=False))
def test_a_seed_decides_by_site_and_not_by_order(seed: int, sites: list[CallSite], order: st.DataObject) -> None:
    """The same seed gives the same fault to the same call, in whatever order the calls happen to start."""
    one, other = (SeededFaults(seed, RATES, delay_s_max=3.0) for _ in range(2))
    shuffled = list(sites)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis draws a random.Random
    expected = {site: one.fault_for(site) for site in sites}
    assert {site: other.fault_for(site) for site in shuffled} == expected
    assert all(0 < fault.delay_s <= 3.0 for fault in expected.values() if fault and fault.kind is FaultKind.DELAYED)


def test_rates_are_kept() -> None:
    """Over many calls each kind has about its share, and the rest goes through."""
    plan = SeededFaults(7, RATES, delay_s_max=1.0)
    drawn = [plan.fault_for(CallSite("tools", CALL, nth)) for nth in range(1, 5001)]
    for kind, rate in RATES.items():
        assert sum(fault is not None and fault.kind is kind for fault in drawn) == pytest.approx(5000 * rate, rel=0.15)
    assert sum(fault is None for fault in drawn) == pytest.approx(5000 * 0.3, rel=0.15)


def test_another_seed_is_another_run() -> None:
    """Two seeds do not fail the same calls."""
    sites = [CallSite("tools", CALL, nth) for nth in range(1, 101)]
    one, other = (SeededFaults(seed, RATES, delay_s_max=1.0) for seed in (1, 2))
    assert [one.fault_for(site) for site in sites] != [other.fault_for(site) for site in sites]


@virtual_time
async def test_the_seed_is_in_errors_and_repr() -> None:
    """Whoever reads the error can repeat the run."""
    transport = FaultyTransport(AsgiTransport(), SeededFaults(4711, {FaultKind.REFUSED: 1.0}))
    assert "seed=4711" in repr(transport)
    with pytest.raises(NeverSent, match="seed=4711"):
        await transport.send(call())


@pytest.mark.parametrize(
    ("rates", "delay_s_max"),
    [
        ({FaultKind.REFUSED: -0.1}, 0.0),
        ({FaultKind.REFUSED: float("nan")}, 0.0),
        ({FaultKind.REFUSED: 0.6, FaultKind.REPLY_LOST: 0.6}, 0.0),
        ({FaultKind.DELAYED: 0.1}, 0.0),
        ({FaultKind.DELAYED: 0.1}, float("inf")),
    ],
)
def test_rates_that_make_no_sense(rates: dict[FaultKind, float], delay_s_max: float) -> None:
    """What is no probability, or a delay of no length, is refused."""
    with pytest.raises(ConfigurationError):
        SeededFaults(1, rates, delay_s_max=delay_s_max)


@pytest.mark.parametrize(
    ("kind", "delay_s"),
    [
        (FaultKind.DELAYED, 0.0),
        (FaultKind.DELAYED, -1.0),
        (FaultKind.DELAYED, float("inf")),
        (FaultKind.REFUSED, 1.0),
        (FaultKind.REFUSED, float("nan")),
        (FaultKind.REPLY_SLOW, 0.0),
        (FaultKind.DUPLICATED, -1.0),
        (FaultKind.RESENT, float("inf")),
    ],
)
def test_delays_that_make_no_sense(kind: FaultKind, delay_s: float) -> None:
    """Only what arrives late has a delay, and it needs one that ends."""
    with pytest.raises(ConfigurationError, match=kind.value):
        Fault(kind, delay_s)


def test_only_what_answers_has_a_reply() -> None:
    """A fault that lets the participant answer, or nobody, has no reply of its own."""
    with pytest.raises(ConfigurationError, match="has no reply"):
        Fault(FaultKind.GARBLED, reply=GATEWAY_PAGE)


@given(seed=st.integers(), sites=st.lists(SITES))
def test_every_kind_can_be_drawn(seed: int, sites: list[CallSite]) -> None:
    """A seeded plan makes a usable fault of each kind."""
    rates = {kind: 1 / len(FaultKind) for kind in FaultKind}
    plan = SeededFaults(seed, rates, delay_s_max=2.0)
    assert all((fault := plan.fault_for(site)) is None or fault.delay_s <= 2.0 for site in sites)
