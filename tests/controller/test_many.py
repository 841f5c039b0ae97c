"""Many participants of each role: waves are concurrent and in order, and one straggler is named among all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.fleet import ENGINE, TOKEN
from support.virtual_loop import VirtualClock, virtual_time
from support.wiretap import Wiretap

from quiesce.controller import Controller, DeadlineExceeded, InDoubt, parse_config
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.trace_check import check_trace
from quiesce.fsm.vocabulary import ParticipantKey, Role
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.ledger import ModelLedger
from quiesce.participants.server.mount import mount_agent, mount_policy, mount_resources
from quiesce.participants.server.runs import Runs
from quiesce.transport.faults import CallSite, Fault, FaultKind
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.port import Transport
from quiesce.transport.token import StaticTokenProvider

EACH = 25
LATENCY_S = 0.05


async def _app(_scope: Mapping[str, Any], _receive: Callable[..., Any], _send: Callable[..., Any]) -> None:
    """No data plane."""


async def _state(_attempt: AttemptId) -> Mapping[str, object]:
    return {}


async def _nothing(*_arguments: object) -> None:
    """Neither restored nor retired."""


class Crowd:
    """``EACH`` policies, agents and resource servers, behind a network that takes its time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.traces: list[TraceRecord] = []
        self.runs = {f"agent{n}": Runs(f"agent{n}", clock=self.clock) for n in range(EACH)}
        shared: dict[str, Any] = {"token": TOKEN, "clock": self.clock}
        self.apps: dict[str, Any] = {
            **{f"policy{n}": mount_policy(_app, ledger=ModelLedger(f"policy{n}"), **shared) for n in range(EACH)},
            **{name: mount_agent(_app, runs, **shared) for name, runs in self.runs.items()},
            **{
                f"tools{n}": mount_resources(
                    _app, name=f"tools{n}", export=_state, restore=_nothing, retire=_nothing, **shared
                )
                for n in range(EACH)
            },
        }

    @property
    def roles(self) -> dict[str, Role]:
        words = {"policy": Role.POLICY, "agent": Role.AGENT, "tools": Role.RESOURCES}
        return {f"main/{name}": words[name.rstrip("0123456789")] for name in self.apps}

    def transport(self) -> Transport:
        network = AsgiTransport({f"http://{n}": app for n, app in self.apps.items()}, StaticTokenProvider(TOKEN))
        return FaultyTransport(network, self)

    def fault_for(self, _site: CallSite) -> Fault:
        """Every call is late by the network's latency."""
        return Fault(FaultKind.DELAYED, LATENCY_S)

    def controller(self, root: Path, transport: Transport, reach_timeout_s: float = 60.0) -> Controller:
        servers = ", ".join(f'{{ name = "{name}", url = "http://{name}" }}' for name in self.apps)
        text = f'root = "{root}"\nreach_timeout_s = {reach_timeout_s}\n[deployment.main]\nparticipants = [{servers}]'
        config = parse_config(text, source="crowd", directory=root, environment={})
        observers = (self.traces.append,)
        return Controller(config, transport=transport, observers=observers, clock=self.clock, engine=ENGINE)

    async def accepting(self) -> int:
        return sum(not app.fence.state.closed and app.fence.state.active is None for app in self.apps.values())


@virtual_time
async def test_a_cut_over_many_takes_as_long_as_its_waves(tmp_path: Path) -> None:
    """Not as long as all its calls one after the other; roles keep their order; everybody is in the snapshot (F-25)."""
    crowd = Crowd()
    tap = Wiretap(crowd.transport(), clock=crowd.clock)
    async with crowd.controller(tmp_path, tap) as controller:
        before = len(tap.calls)
        async with controller.cut("step-1") as cut:
            pass
        assert len(controller.store.load("step-1").participants) == 3 * EACH
    calls = tap.calls[before:]
    # five a participant, and one more that asks each resource server whether it waits for a restore
    assert len(calls) == 3 * EACH * 5 + EACH
    assert cut.result.timings.total_s < 13 * LATENCY_S
    assert await crowd.accepting() == 3 * EACH
    assert not check_trace(crowd.traces, roles=crowd.roles)


@virtual_time
async def test_one_straggler_among_many_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """At the end of the budget everybody else is reopened within moments (F-15)."""
    crowd = Crowd()
    slow = asyncio.create_task(_never_parks(crowd.runs["agent7"]))
    await asyncio.sleep(0)
    async with crowd.controller(tmp_path, crowd.transport(), reach_timeout_s=20.0) as controller:
        began = crowd.clock.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"main/agent7: .*r-9 attempt 0 park_requested") as caught:
            await controller.cut("step-1").__aenter__()
        assert set(caught.value.stood) == {ParticipantKey("main", "agent7")}
        assert crowd.clock.monotonic() - began <= 20.0 + 2.0
        assert await crowd.accepting() == 3 * EACH
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)


@virtual_time
async def test_what_is_told_of_many_is_cut_short(tmp_path: Path) -> None:
    """A sentence names twenty, and says how many more there are; the attributes have them all."""
    crowd = Crowd()
    network = AsgiTransport({f"http://{n}": app for n, app in crowd.apps.items()}, StaticTokenProvider(TOKEN))
    async with crowd.controller(tmp_path, network) as controller:
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        for name in crowd.apps:
            network.unmount(f"http://{name}")
        await cut.abort()
        doubt = cut.held()
        assert isinstance(doubt, InDoubt)
        assert len(doubt.owed) == 3 * EACH
        assert f"and {3 * EACH - 20} more" in str(doubt)
        for name, app in crowd.apps.items():
            network.mount(f"http://{name}", app)
        await cut.settle()
        await controller.end(cut)
    assert await crowd.accepting() == 3 * EACH


async def _never_parks(runs: Runs) -> None:
    async with runs.begin(AttemptId("r-9", 0)):
        await asyncio.Event().wait()
