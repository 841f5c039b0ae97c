"""Every call of a cut and of a restore with every fault, over fleets of 1, 3 and 12; and many faults at once.

The calls are those of a clean run. ``make test`` takes a sample of the pairs of call and fault in which each fault and
each route occurs; ``HYPOTHESIS_PROFILE=thorough`` (``make test-all``) takes all of them. Participants of one role are
alike but for their names: where a fleet has several, the same call of all of them is one, and the faults are dealt out
among them. The seed of the sample, and of each run with many faults, is in the error that it leads to. Whatever the run
does: nobody is closed who is not named in doubt or held, nothing is visible that does not verify, what the caller was
told is true, and the next cut works (field cases F-09, F-21, F-23, F-33).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.fleet import FENCES
from support.sweep import saved_snapshot, swept_cut, swept_restore
from support.sweep_fleet import SIZES
from support.virtual_loop import run_virtual

from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.transport.faults import CallSite, Fault, FaultKind, FaultPlan, ScriptedFaults, SeededFaults
from quiesce.transport.port import ControlReply

CODES = (
    "stale_checkpoint",
    "checkpoint_conflict",
    "invalid_phase",
    "not_a_policy_instance",
    "missing_workers",
    "worker_registration_rejected",
    "ledger_mismatch",
    "ledger_not_checkpointable",
    "ledger_not_quiescent",
    "agent_prepare_incomplete",
    "agent_checkpoint_error",
    "completed_execution_acknowledgement_error",
    "resources_checkpoint_error",
    "unsafe_resources_restore",
    "control_error",
    "a_code_of_a_later_server",
)
"""Every code of a 409 on a control route (wire-protocol 3.2), and one that nobody knows."""
Counts = tuple[int, int]
JSON = {"content-type": "application/json"}
PAGE = ControlReply(500, {"content-type": "text/html"}, b"<html><body>Internal Server Error</body></html>")


def refused(code: str) -> Fault:
    """The call comes to nothing but this code."""
    body = json.dumps({"error": {"code": code, "detail": "refused by the sweep"}}).encode()
    return Fault(FaultKind.ANSWERED_FOR, reply=ControlReply(409, JSON, body))


FAULTS: Mapping[str, Fault] = {
    "refused": Fault(FaultKind.REFUSED),
    "lost before": Fault(FaultKind.REQUEST_LOST),
    "reset": Fault(FaultKind.RESET),
    "lost after": Fault(FaultKind.REPLY_LOST),
    "stuck after": Fault(FaultKind.REPLY_STUCK),
    "late": Fault(FaultKind.DELAYED, 4.0),
    "late by a slice": Fault(FaultKind.DELAYED, 9.0),
    "past its deadline": Fault(FaultKind.DELAYED, 90.0),
    "slow bytes": Fault(FaultKind.REPLY_SLOW, 3.0),
    "slow bytes past its time": Fault(FaultKind.REPLY_SLOW, 90.0),
    "duplicated": Fault(FaultKind.DUPLICATED),
    "duplicated late": Fault(FaultKind.DUPLICATED, 7.0),
    "sent again": Fault(FaultKind.RESENT, 0.5),
    "garbled": Fault(FaultKind.GARBLED),
    "401": Fault(FaultKind.ANSWERED_FOR, reply=ControlReply(401, JSON, b'{"detail":"no"}')),
    "500": Fault(FaultKind.ANSWERED_FOR, reply=PAGE),
    "500 after": Fault(FaultKind.REPLY_REPLACED, reply=PAGE),
    "502 after": Fault(FaultKind.REPLY_REPLACED),
    **{code: refused(code) for code in CODES},
}
RATES = dict.fromkeys(FaultKind, 0.01)
IS_WHOLE = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
SEED = 20
"""Of the sample that is taken where not everything is."""
SHARDS = {1: 1, 3: 2, 12: 6} if IS_WHOLE else {}
"""Into how many tests a sweep over a fleet of so many is cut, so that none takes long."""
sizes = pytest.mark.parametrize(
    ("size", "shard"), [(size, shard) for size in SIZES for shard in range(SHARDS.get(size, 1))]
)
fences = pytest.mark.parametrize("fence", FENCES)
pytestmark = pytest.mark.timeout(1200 if IS_WHOLE else 120)
SEEDS = 300 if IS_WHOLE else 6


@pytest.fixture(autouse=True)
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that looks wrong is read again after a while; here the while is nothing."""
    monkeypatch.setitem(SnapshotStore.__init__.__kwdefaults__ or {}, "sleep", lambda _seconds: None)


def pairs_of(sites: list[CallSite]) -> list[tuple[CallSite, str]]:
    """Every call with every fault; of those that call alike, each fault at another one."""
    alike: dict[tuple[str, str, int], list[CallSite]] = {}
    for site in dict.fromkeys(sites):
        alike.setdefault((site.participant.rstrip("0123456789"), site.call, site.nth), []).append(site)
    return [
        (group[(start + number) % len(group)], name)
        for start, group in enumerate(alike.values())
        for number, name in enumerate(FAULTS)
    ]


def sampled(pairs: list[tuple[CallSite, str]], seed: int) -> list[tuple[CallSite, str]]:
    """Some of the pairs, in which each fault and each route is."""
    Random(seed).shuffle(pairs)  # noqa: S311 - repeatable on purpose
    met: set[str] = set()
    some = []
    for site, name in pairs:
        if not {site.call, name} <= met:
            met |= {site.call, name}
            some.append((site, name))
    return some


def tried(run: Callable[[FaultPlan], Coroutine[Any, Any, object]], sites: list[CallSite], shard: slice) -> Counts:
    """Run with each pair that is tried; how many there were, and for how many they stand."""
    mine = pairs_of(sites)[shard] if IS_WHOLE else sampled(pairs_of(sites), SEED)
    for site, name in mine:
        try:
            run_virtual(run(ScriptedFaults({site: FAULTS[name]})))
        except BaseException as error:
            error.add_note(f"{name!r} at {site} (sample of seed {SEED})")
            raise
    every = len(set(sites)) * len(FAULTS)
    return len(mine), len(mine) * every // len(pairs_of(sites))


def part(size: int, shard: int) -> slice:
    """The pairs of a shard."""
    return slice(shard, None, SHARDS.get(size, 1))


def counted(record: Callable[[str, object], None], what: str, counts: Counts) -> None:
    """Have the counts printed at the end of the run."""
    record("swept", f"{what}: {counts[0]}")
    record("standing for", f"{what}: {counts[1]}")


@sizes
@fences
def test_any_call_of_a_cut_may_meet_any_fault(
    tmp_path: Path, record_property: Callable[[str, object], None], fence: FenceVariant, size: int, shard: int
) -> None:
    """Published or as if nothing had happened; whoever may be closed is named; the next cut works."""
    sites = run_virtual(swept_cut(tmp_path / "clean", size, fence, None))

    async def run(plan: FaultPlan) -> None:
        await swept_cut(tmp_path / "run", size, fence, plan)
        shutil.rmtree(tmp_path / "run")

    counted(record_property, f"faults of a cut of {size}", tried(run, sites, part(size, shard)))


@sizes
@fences
def test_any_call_of_a_restore_may_meet_any_fault(
    tmp_path: Path, record_property: Callable[[str, object], None], fence: FenceVariant, size: int, shard: int
) -> None:
    """Restored, or held closed by name and to be mended, or as if nothing had happened."""
    live = frozenset(run_virtual(saved_snapshot(tmp_path / "saved", size, fence)).rollouts)

    async def run(plan: FaultPlan | None) -> list[CallSite]:
        shutil.copytree(tmp_path / "saved" / "snapshots", tmp_path / "run" / "snapshots")
        sites = await swept_restore(tmp_path / "run", size, fence, plan, live)
        shutil.rmtree(tmp_path / "run")
        return sites

    sites = run_virtual(run(None))
    counted(record_property, f"faults of a restore of {size}", tried(run, sites, part(size, shard)))


@sizes
@fences
def test_many_calls_of_a_cut_and_of_a_restore_may_meet_faults(
    tmp_path: Path, record_property: Callable[[str, object], None], fence: FenceVariant, size: int, shard: int
) -> None:
    """Several faults in one run, those of the undoing among them."""
    live = frozenset(run_virtual(saved_snapshot(tmp_path / "saved", size, fence)).rollouts)
    seeds = range(SEEDS)[part(size, shard)]
    for seed in seeds:
        plan = SeededFaults(seed, RATES, delay_s_max=20.0)
        root = tmp_path / f"restore-{seed}"
        shutil.copytree(tmp_path / "saved" / "snapshots", root / "snapshots")
        try:
            run_virtual(swept_cut(tmp_path / f"cut-{seed}", size, fence, plan))
            run_virtual(swept_restore(root, size, fence, plan, live))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        shutil.rmtree(root)
        shutil.rmtree(tmp_path / f"cut-{seed}")
    record_property("swept", f"runs with many faults: {2 * len(seeds)}")
