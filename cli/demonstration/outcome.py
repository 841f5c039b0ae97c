"""What the demonstration came to: the facts that its steps left, the checks over them, and their JSON form."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from quiesce.cli.demonstration.account import Account, CutAccount, settle_accounts
from quiesce.cli.demonstration.crash import Crash
from quiesce.cli.demonstration.job import LIVE_MIN, Rollout
from quiesce.cli.demonstration.results_file import ResultsFile
from quiesce.controller.journal_check import check_journal, roles_in
from quiesce.controller.results import CutResult, RestoreResult
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.verification import SnapshotVerification

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """The facts.

    ``started``: for each generation of servers their pids. ``killed``: how each server of the first one ended.
    ``closed``: whoever did not accept work after the cut or after the restore. ``thrown_away``: rollouts that finished
    between the cut and the kill. ``journal_faults``: what the recorded steps of cut and restore did that the tables
    forbid; None before they were read. ``crash``: the controller that was killed, where one was to be.
    """

    job: Sequence[Rollout]
    directory: Path
    started: list[dict[str, int]] = field(default_factory=list)
    cut: CutResult | None = None
    at_cut: CutAccount | None = None
    thrown_away: tuple[str, ...] = ()
    killed: Mapping[str, int] = field(default_factory=dict)
    restore: RestoreResult | None = None
    closed: list[str] = field(default_factory=list)
    account: Account | None = None
    verification: SnapshotVerification | None = None
    journal_faults: tuple[str, ...] | None = None
    crash: Crash | None = None
    timings_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Note how long the body takes."""
        began_s = time.monotonic()
        yield
        self.timings_s[step] = round(time.monotonic() - began_s, 3)

    async def settle(self, results: ResultsFile) -> None:
        """Read everything again from the disk: the trainer's file, and every byte of the snapshot."""
        if self.at_cut is not None:
            self.account = settle_accounts(self.job, self.at_cut, results.lines())
        if self.cut is not None:
            store = SnapshotStore(self.directory / "checkpoints")
            self.verification = await asyncio.to_thread(store.verify, self.cut.wire_id)
            self.journal_faults = await asyncio.to_thread(self._check_journals, store)

    def _check_journals(self, store: SnapshotStore) -> tuple[str, ...]:
        ids = [transaction.wire_id for transaction in (self.cut, self.restore) if transaction is not None]
        ids += [one.account.wire_id for one in self.crash.recovered] if self.crash is not None else []
        roles = roles_in(store.load(ids[0]))
        return tuple(fault for id_ in ids for fault in check_journal(store.layout.journal(id_), roles=roles))

    def checks(self) -> dict[str, bool]:
        """Everything that must hold, each by a name."""
        account, at_cut, cut = self.account, self.at_cut, self.cut
        if account is None or at_cut is None or cut is None or self.restore is None:
            return {"carried_through": False}
        return {
            "carried_through": True,
            "enough_live_at_cut": at_cut.live >= LIVE_MIN,
            "unacknowledged_at_cut": bool(at_cut.kept),
            "everybody_in_the_cut_once": not at_cut.missing(self.job),
            "work_after_the_cut_thrown_away": bool(self.thrown_away) and not set(self.thrown_away) & at_cut.kept,
            "everything_killed": bool(self.killed) and set(self.killed.values()) == {-signal.SIGKILL},
            "same_rollouts_restored": set(self.restore.rollouts) == set(cut.rollouts),
            "nobody_left_paused": not self.closed,
            "nothing_lost": not account.lost,
            "nothing_doubled": not account.doubled,
            "nothing_restarted": not account.restarted,
            "every_result_right": not account.wrong,
            "snapshot_verified": self.verification is not None and self.verification.is_good,
            "every_step_allowed": self.journal_faults == (),
            **self._crash_checks(),
        }

    def _crash_checks(self) -> dict[str, bool]:
        crash = self.crash
        if crash is None:
            return {}
        return {
            "controller_killed_in_its_cut": crash.killed == -signal.SIGKILL and len(crash.recovered) == 1,
            "what_it_left_recovered": all(one.is_settled and not one.problem for one in crash.recovered),
        }

    @property
    def is_good(self) -> bool:
        return all(self.checks().values())

    def to_json(self) -> dict[str, object]:
        """The facts and checks as a plain mapping with stable keys."""
        return {
            "ok": self.is_good,
            "left_paused": len(self.closed),
            "rollouts": self._rollouts(),
            "snapshot": self._snapshot(),
            "servers": self.started,
            "killed": dict(self.killed),
            **({"crash": self.crash.to_json()} if self.crash is not None else {}),
            "directory": str(self.directory),
            "config": str(self.directory / "quiesce.toml"),
            "timings": self._timings(),
            "checks": self.checks(),
        }

    def _rollouts(self) -> dict[str, object]:
        account, at_cut = self.account, self.at_cut
        if account is None or at_cut is None:
            return {"total": len(self.job)}
        return {
            "total": account.total,
            "finished_before_cut": len(at_cut.kept),
            "live_at_cut": at_cut.live,
            "unstarted_at_cut": len(at_cut.unstarted),
            "thrown_away": len(self.thrown_away),
            "continued": len(at_cut.boundaries),
            "completed": account.completed,
            "lost": len(account.lost),
            "doubled": len(account.doubled),
            "restarted": len(account.restarted),
            "wrong": len(account.wrong),
        }

    def _snapshot(self) -> dict[str, object] | None:
        if self.cut is None:
            return None
        return {
            "label": self.cut.label,
            "wire_id": self.cut.wire_id,
            "directory": str(self.cut.directory),
            "files": self.verification.files if self.verification else None,
            "size_bytes": self.verification.size_bytes if self.verification else None,
            "storage_keys": len(self.cut.storage_keys),
        }

    def _timings(self) -> dict[str, object]:
        found: dict[str, object] = dict(self.timings_s)
        if self.cut is not None:
            found |= {"cut": round(self.cut.timings.total_s, 3), "paused": round(self.cut.timings.paused_s, 3)}
        if self.restore is not None:
            found["restore"] = round(self.restore.timings.total_s, 3)
        return {f"{name}_s": seconds for name, seconds in found.items()}
