"""The fuzzer on servers of the kit in this process and in virtual time: whole campaigns, and replays.

This module needs the extra ``server``, as ``quiesce.fuzz.kit`` does.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options, Renew, examine
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.replaying import Replayed, replay_at
from quiesce.fuzz.replays import ReplayFile
from quiesce.fuzz.report import ParticipantReport
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.traffic import Traffic, kit_traffic
from quiesce.fuzz.virtual_time import VirtualClock, run_virtual
from quiesce.transport.inprocess import AsgiApplication, AsgiTransport
from quiesce.transport.token import StaticTokenProvider

__all__ = ["GRACE_S", "KitSource", "examine_kit", "kit_options", "kit_source", "replay_in_kit", "serving"]

GRACE_S: Final = 40.0
"""Somewhat more than for how long the kit holds an incomplete prepare after its deadline."""
CALLS_MAX: Final = 3000
KIT_NAME: Final = "the kit's server in this process"

KitSource = Callable[[VirtualClock], AsgiApplication]
"""Makes a fresh application on a clock."""


def kit_source(role: Role, fence: FenceVariant = FenceVariant.STRICT) -> KitSource:
    """The kit's servers of a role."""
    return lambda clock: build_kit_server(role, fence, clock=clock).app


@asynccontextmanager
async def serving(source: KitSource) -> AsyncIterator[tuple[AsgiTransport, VirtualClock, Renew]]:
    """A transport to a fresh server, the clock of both, and how to put another fresh one in its place."""
    clock = VirtualClock()
    transport = AsgiTransport(tokens=FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))

    async def renew() -> None:
        transport.mount(KIT_ORIGIN, source(clock))

    await renew()
    try:
        yield transport, clock, renew
    finally:
        await transport.aclose()


def examine_kit(
    source: KitSource,
    *,
    profile: Profile = Profile.STRICT,
    seed: int = 0,
    traffic: Traffic = kit_traffic,
    calls_max: int = CALLS_MAX,
    allow_restore: bool = True,
    stop_after: int | None = None,
) -> ParticipantReport:
    """Test servers of the kit; each sequence gets a fresh one. Takes no time but that of the computation."""

    async def tested(root: Path) -> ParticipantReport:
        async with serving(source) as (transport, clock, renew):
            options = kit_options(profile, root, traffic, seed=seed, calls_max=calls_max, allow_restore=allow_restore)
            options = replace(options, stop_after=stop_after)
            return await examine(KIT_ORIGIN, transport, clock, options, renew=renew)

    with tempfile.TemporaryDirectory(prefix="quiesce-fuzz-") as folder:
        return run_virtual(tested(Path(folder)))


def replay_in_kit(replay: ReplayFile, *, fence: FenceVariant | None = None, traffic: Traffic = kit_traffic) -> Replayed:
    """Run a saved sequence on a fresh server of the kit; ``fence`` by default as it was found, or strict.

    Raises:
        QuiesceError: it cannot be run there.
    """
    found_in = FenceVariant.GYM_A_COORDINATOR if replay.tested.coordinated else FenceVariant.STRICT
    variant = fence or replay.tested.fence or found_in

    async def replayed(root: Path) -> Replayed:
        async with serving(kit_source(replay.tested.role, variant)) as (transport, clock, _):
            options = kit_options(replay.tested.profile, root, traffic)
            return await replay_at(KIT_ORIGIN, transport, clock, options, replay, name=KIT_NAME)

    with tempfile.TemporaryDirectory(prefix="quiesce-fuzz-") as folder:
        return run_virtual(replayed(Path(folder)))


def kit_options(
    profile: Profile,
    root: Path,
    traffic: Traffic,
    *,
    seed: int = 0,
    calls_max: int = CALLS_MAX,
    allow_restore: bool = True,
) -> Options:
    """How a server of the kit is tested in process."""
    return Options(
        nonce="kit",
        profile=profile,
        seed=seed,
        traffic=traffic,
        root=root,
        allow_restore=allow_restore,
        calls_max=calls_max,
        ids_max=calls_max,
        rate=None,
        grace_s=GRACE_S,
        sends_any_header=True,
    )
