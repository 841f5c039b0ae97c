"""The sessions of a resource server: who changes which, and how their state is frozen, saved and brought back.

The server's own code keeps the state; it gives three hooks to take it, to bring it back and to free it. Each session
has a lock and a revision, which grows by one with each call that succeeds. Implements
``quiesce.participants.server.ports.ResourceSessions``. Sources: wire-protocol 2.17 to 2.20, 4.6, 6.5, 6.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from quiesce.fsm.vocabulary import Role
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import check_participant_name
from quiesce.participants.server.clock import SystemClock
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.ports import Clock
from quiesce.participants.server.session import SUCCESS_BELOW, RestoreHookFailed, Session, SessionHooks, Ticket, Visit
from quiesce.participants.server.sessions_files import (
    FrozenSession,
    SavedSession,
    freeze,
    load_sessions,
    write_sessions,
)
from quiesce.participants.server.storage import FilePort, OsFiles
from quiesce.participants.server.tombstones import Tombstones

__all__ = ["Sessions"]


class Sessions:
    """Every session of one resource server.

    ``name`` is the server's own name and becomes a folder. With ``restore_expected`` the server is closed until it
    has been restored. With ``require_identity`` (the default) a stateful call that names no attempt is refused;
    without it, one that succeeded makes every later freeze fail, as on the recorded servers.

    Raises:
        InvalidIdentity: the name cannot become a folder.
    """

    def __init__(
        self,
        name: str,
        *,
        hooks: SessionHooks,
        clock: Clock | None = None,
        files: FilePort | None = None,
        restore_expected: bool = False,
        require_identity: bool = True,
    ) -> None:
        self._name = check_participant_name(Role.RESOURCES, name)
        self._hooks = hooks
        self._clock: Clock = SystemClock() if clock is None else clock
        self._files: FilePort = OsFiles() if files is None else files
        self._require_identity = require_identity
        self._owes_restore = restore_expected
        self._closed = restore_expected
        self._sessions: dict[AttemptId, Session] = {}
        self._tombstones = Tombstones()
        self._held: dict[AttemptId, FrozenSession] | None = None
        self._untracked = False
        self._used = False

    @property
    def name(self) -> str:
        """The server's own name, which also stands in the paths of its artefacts."""
        return self._name

    # ---- the gate

    @property
    def owes_restore(self) -> bool:
        return self._owes_restore

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def open(self) -> None:
        """See ``ResourceSessions``. A server that owes a restore stays closed."""
        self._held = None
        if not self._owes_restore:
            self._closed = False

    async def enter(self, route: str, attempt: AttemptId | None) -> Ticket:
        """See ``ResourceSessions``. What happened while the call waited counts as if it had come only then.

        Raises:
            ControlRefusal: as there, and ``execution_identity_mismatch`` for a call without identity.
        """
        kind = Visit.of(route)
        if attempt is None:
            self._refuse_untracked(route)
            return Ticket(kind, None)
        session = self._session_for(kind, attempt)
        ticket = Ticket(kind, session)
        await self._go_in(ticket, session)
        return ticket

    def settle(self, ticket: object, status: int) -> int | None:
        assert isinstance(ticket, Ticket)  # noqa: S101 - the gate gives back what it was given
        if status >= SUCCESS_BELOW:
            return None
        self._used = True
        session = ticket.session
        if session is None:
            self._untracked = True
            return None
        session.revision += 1
        session.bound = ticket.kind != Visit.END
        return session.revision

    def leave(self, ticket: object) -> None:
        assert isinstance(ticket, Ticket)  # noqa: S101 - as above
        if ticket.session is not None and ticket.inside:
            ticket.inside = False
            ticket.session.lock.release()
            self._count_out(ticket.session)

    # ---- the control plane

    async def freeze(self, deadline: float) -> dict[str, object]:
        """See ``ResourceSessions``. What is taken is held in memory until ``open``."""
        self._held = None
        if self._untracked:
            raise _refuse("a stateful call named no attempt, so its state belongs to no session and cannot be saved")
        held: dict[AttemptId, FrozenSession] = {}
        for session in [self._sessions[attempt] for attempt in sorted(self._sessions)]:
            frozen = await self._freeze(session, deadline)
            if frozen is not None:
                held[session.attempt] = frozen
        # a session may have been retired while others were waited for
        self._held = {attempt: frozen for attempt, frozen in held.items() if attempt not in self._tombstones}
        return {"sessions": len(self._held), "state": "prepared"}

    def status(self) -> dict[str, object]:
        sessions = [self._sessions[attempt] for attempt in sorted(self._sessions)]
        bound = [session for session in sessions if session.bound]
        state = "paused" if self._closed else "accepting"
        return {
            "state": state,
            "admission_state": state,
            "sessions": len(bound),
            "per_session": [
                session.attempt._asdict() | {"revision": session.revision, "locked": session.locked}
                for session in bound
            ],
            "lock_entries": sum(1 for session in sessions if session.has_lock),
            "locked_sessions": sum(1 for session in sessions if session.locked),
            "tombstones": len(self._tombstones),
        }

    async def export(self, *, checkpoint_id: str, directory: Path) -> dict[str, object]:
        """See ``ResourceSessions``. What is written is what ``freeze`` has taken, less what was retired since."""
        if self._held is None:
            raise _refuse("nothing was frozen; prepare first")
        held = dict(self._held)
        digest = await asyncio.to_thread(write_sessions, self._files, directory, self._name, checkpoint_id, held)
        return {"sessions": len(held), "manifest_digest": digest}

    async def restore(self, *, directory: Path) -> dict[str, object]:
        """See ``ResourceSessions``. Everything is verified before the first session is made."""
        self._refuse_unless_fresh()
        saved = await asyncio.to_thread(load_sessions, self._files, directory, self._name)
        self._refuse_unless_fresh()
        await self._install(saved.sessions)
        self._owes_restore = False
        return {"sessions": len(saved.sessions), "source_checkpoint_id": saved.checkpoint_id}

    async def retire(self, attempt: AttemptId, *, deadline: float) -> dict[str, object]:
        """See ``ResourceSessions``. The attempt is fenced at once, also where freeing its session takes too long."""
        self._tombstones.add(attempt)
        if self._held is not None:
            self._held.pop(attempt, None)
        session = self._sessions.get(attempt)
        if session is not None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._free(session)
            except TimeoutError:
                raise _refuse(f"timed out retiring {_named(attempt)}; it is fenced, but still busy") from None
        return {"retired": True, **attempt._asdict()}

    # ---- inside

    def _refuse_untracked(self, route: str) -> None:
        if self._closed:
            raise _closed()
        if self._require_identity:
            raise ControlRefusal(
                RefusalCode.EXECUTION_IDENTITY_MISMATCH,
                f"a call to {route} must name its rollout and attempt, or its state could not be saved",
            )

    def _refuse_unless_open(self, attempt: AttemptId) -> None:
        if attempt in self._tombstones:
            raise ControlRefusal(RefusalCode.STALE_ATTEMPT, f"{attempt} was retired or replaced")
        if self._closed:
            raise _closed()

    def _refuse_unless_fresh(self) -> None:
        if self._used or self._sessions:
            raise ControlRefusal(
                RefusalCode.UNSAFE_RESOURCES_RESTORE,
                "this process has served stateful traffic or was restored before; restart it and restore again",
            )

    def _session_for(self, kind: str, attempt: AttemptId) -> Session:
        self._refuse_unless_open(attempt)
        session = self._sessions.get(attempt)
        if session is not None and (session.bound or session.visitors or kind == Visit.SEED):
            return session
        if kind != Visit.SEED:
            raise _unbound(attempt)
        return self._sessions.setdefault(attempt, Session(attempt))

    async def _go_in(self, ticket: Ticket, session: Session) -> None:
        session.visitors += 1
        try:
            await session.lock.acquire()
        except BaseException:
            self._count_out(session)
            raise
        ticket.inside = True
        try:
            await self._check_inside(ticket.kind, session)
        except BaseException:
            self.leave(ticket)
            raise

    async def _check_inside(self, kind: str, session: Session) -> None:
        self._refuse_unless_open(session.attempt)
        if kind == Visit.SEED:
            await self._supersede_earlier(session.attempt)
            self._refuse_unless_open(session.attempt)
        elif not session.bound:
            raise _unbound(session.attempt)

    def _count_out(self, session: Session) -> None:
        session.visitors -= 1
        # a session that was never seeded, or has ended, goes with its last visitor
        if not session.bound and not session.visitors:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        if self._sessions.get(session.attempt) is session:
            del self._sessions[session.attempt]

    async def _freeze(self, session: Session, deadline: float) -> FrozenSession | None:
        # a deadline that has passed is no budget at all, not even for a session that nobody holds
        expired = self._clock.monotonic() >= deadline
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline), session.lock:
                if not expired:
                    return await self._take(session)
        raise _refuse(f"timed out draining resources state for {_named(session.attempt)}")

    async def _take(self, session: Session) -> FrozenSession | None:
        if not session.bound or session.attempt in self._tombstones:
            return None
        try:
            state = await self._hooks.export_state(session.attempt)
            return freeze(session.attempt, session.revision, state, self._clock.now_ts())
        except Exception as error:
            raise _refuse(f"the state of {_named(session.attempt)} could not be taken: {error!r}") from error

    async def _install(self, saved: tuple[SavedSession, ...]) -> None:
        try:
            await self._hooks.restore_all({session.replacement: session.state for session in saved})
        except RestoreHookFailed as error:
            raise _refuse(str(error)) from error
        for session in saved:
            self._sessions[session.replacement] = Session(session.replacement, session.revision, bound=True)
            self._tombstones.add_through(session.attempt)

    async def _supersede_earlier(self, attempt: AttemptId) -> None:
        self._tombstones.add_before(attempt)
        for session in [found for found in self._sessions.values() if found.attempt.rollout_id == attempt.rollout_id]:
            if session.attempt.attempt_index < attempt.attempt_index:
                # the newer attempt must not suffer from what the old one leaves behind; it is fenced in any case
                with contextlib.suppress(ControlRefusal):
                    await self._free(session)

    async def _free(self, session: Session) -> None:
        async with session.lock:
            was_bound, session.bound = session.bound, False
            self._forget(session)
            if not was_bound:
                return
            try:
                await self._hooks.retire_state(session.attempt)
            except Exception as error:
                raise _refuse(f"{_named(session.attempt)} is fenced, but was not freed: {error!r}") from error


def _named(attempt: AttemptId) -> str:
    return f"rollout {attempt.rollout_id!r} attempt {attempt.attempt_index}"


def _refuse(reason: str) -> ControlRefusal:
    return ControlRefusal(RefusalCode.RESOURCES_CHECKPOINT_ERROR, reason)


def _unbound(attempt: AttemptId) -> ControlRefusal:
    return ControlRefusal(RefusalCode.RESOURCES_SESSION_UNBOUND, f"{attempt} has no session; seed one first")


def _closed() -> ControlRefusal:
    return ControlRefusal(
        RefusalCode.RESOURCES_ADMISSION_CLOSED, "resources mutation admission is closed for checkpoint preparation"
    )
