"""Termination signals with a last cut configured: what is done first depends on where the transaction stands (F-32)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import VirtualLoop, run_virtual, virtual_time

from quiesce.controller import Controller, Cut, PhasedRestore
from quiesce.controller.catalog import SnapshotState
from quiesce.controller.epoch import Holder
from quiesce.controller.journal import read_journal
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.errors import ConfigurationError

S = TransactionState
GRACE_S = 40.0
TERM, USR1 = signal.SIGTERM, signal.SIGUSR1
SIGNALS: tuple[tuple[signal.Signals, ...], ...] = ((TERM,), (USR1,), (TERM, USR1), (USR1, TERM, TERM))
every_fence = pytest.mark.parametrize("fence", FENCES)
every_way = pytest.mark.parametrize("numbers", SIGNALS, ids=lambda numbers: "-".join(number.name for number in numbers))


def send(numbers: Sequence[signal.Signals]) -> None:
    """Let the signals arrive one after the other, a second between them."""
    for place, number in enumerate(numbers):
        asyncio.get_running_loop().call_later(place * 1.0, signal.raise_signal, number)


def once_in(state: TransactionState, act: Callable[[], None]) -> Callable[[TraceRecord], None]:
    """An observer that acts when the transaction comes to a state for the first time."""
    done: list[bool] = []

    def observe(trace: TraceRecord) -> None:
        if trace.machine == TRANSACTION.name and trace.target == state and not done:
            done.append(True)
            act()

    return observe


def listening(fleet: Fleet, root: Path, *observers: Callable[[TraceRecord], None]) -> Controller:
    """A controller that takes a last cut on either signal."""
    return fleet.controller(
        root,
        on_completed=keep,
        observers=observers,
        last_cut_signals=["SIGTERM", "SIGUSR1"],
        grace_s=GRACE_S,
    )


def run(program: Coroutine[None, None, None]) -> asyncio.Task[str]:
    """A program in a task of its own; how it ended, where that was the announced end."""

    async def main() -> str:
        try:
            await program
        except SystemExit as end:
            return f"exit {end.code}"
        return "went on"

    return asyncio.ensure_future(main())


async def ended(program: asyncio.Task[str], how: str = "exit") -> None:
    """The program was ended, as a signal would have, within the grace, and every signal's handler is as before."""
    began = asyncio.get_running_loop().time()
    assert (await program).startswith(how)
    assert asyncio.get_running_loop().time() - began < GRACE_S
    assert signal.getsignal(TERM) is signal.SIG_DFL
    assert signal.getsignal(USR1) is signal.SIG_DFL


def last_state(root: Path) -> str:
    """Where the journal of the only transaction says that it ended."""
    (journal,) = (root / ".quiesce" / "journal").glob("*.ndjson")
    return [record.target for record in read_journal(journal).records if record.machine == TRANSACTION.name][-1]


@every_fence
@every_way
@virtual_time
async def test_where_nothing_runs_a_last_cut_is_taken(
    tmp_path: Path, fence: FenceVariant, numbers: Sequence[signal.Signals]
) -> None:
    """One, however many signals come; it has the trainer's part; then the program is cancelled."""
    fleet = Fleet(fence)
    work = fleet.rollout("r0", 1000)
    bodies: list[str] = []

    async def save(cut: Cut) -> None:
        await asyncio.sleep(0.5)
        (cut.directory / "trainer" / "weights").write_text("w")
        bodies.append(cut.label)

    async def program() -> None:
        controller = listening(fleet, tmp_path)
        controller = Controller(
            controller.config, on_completed=keep, on_asked_cut=save, transport=fleet.transport(), clock=fleet.clock
        )
        async with controller:
            send(numbers)
            try:
                await asyncio.Event().wait()
            finally:
                assert controller.last_cut is not None
                assert controller.last_cut.label == "last-cut"

    await ended(run(program()), f"exit {128 + numbers[0]}")
    store = fleet.controller(tmp_path).store
    (entry,) = store.list()
    assert entry.state is SnapshotState.VALID
    assert [file.path for file in store.load("last-cut").trainer] == ["trainer/weights"]
    assert bodies == ["last-cut"]
    assert await fleet.everybody_accepts()
    assert last_state(tmp_path) == S.RESUMED
    work.cancel()


@every_fence
@every_way
@pytest.mark.parametrize(
    "state", [S.PREFLIGHT, S.DRAINING, S.PAUSED, S.COMMITTING, S.COMMITTED, S.PUBLISHING, S.RESUMING]
)
def test_a_cut_that_runs_is_finished(
    tmp_path: Path, fence: FenceVariant, state: TransactionState, numbers: Sequence[signal.Signals]
) -> None:
    """Wherever it stands: it is the last one, no second one begins, and then the program is cancelled."""

    async def scenario() -> None:
        fleet = Fleet(fence)
        work = fleet.rollout("r0", 1000)

        async def program() -> None:
            async with listening(fleet, tmp_path, once_in(state, lambda: send(numbers))) as controller:
                async with controller.cut("step-1"):
                    await asyncio.sleep(0.5)
                await asyncio.Event().wait()

        await ended(run(program()))
        assert [entry.label for entry in fleet.controller(tmp_path).store.list()] == ["step-1"]
        assert last_state(tmp_path) == S.RESUMED
        assert await fleet.everybody_accepts()
        work.cancel()

    run_virtual(scenario())


@every_fence
@every_way
@virtual_time
async def test_a_cut_that_cannot_end_in_time_is_aborted(
    tmp_path: Path, fence: FenceVariant, numbers: Sequence[signal.Signals]
) -> None:
    """A drain that takes longer than the grace: everybody is open again before it is over."""
    fleet = Fleet(fence)
    stuck = fleet.stuck("r0")

    async def program() -> None:
        listens = listening(fleet, tmp_path, once_in(S.DRAINING, lambda: send(numbers)))
        async with listens as controller, controller.cut("step-1"):
            raise AssertionError("it never gets there")

    task = run(program())
    began = fleet.clock.monotonic()
    # the caller gets the abort or the cancellation, whichever comes first
    await asyncio.wait([task])
    assert fleet.clock.monotonic() - began < GRACE_S
    assert task.cancelled() or task.exception() is not None or task.result().startswith("exit")
    assert fleet.controller(tmp_path).store.list() == ()
    assert last_state(tmp_path) == S.ABORTED
    assert await fleet.everybody_accepts()
    stuck.cancel()


@pytest.mark.parametrize("late_in", [S.PUBLISHED, S.DRAINING], ids=["once it is published", "before"])
@virtual_time
async def test_a_last_cut_whose_time_is_up_is_told_by_what_became_of_it(
    tmp_path: Path, late_in: TransactionState
) -> None:
    """One that is published is taken, however late; of one that is not it is said why."""
    fleet = Fleet()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    def stand_still() -> None:
        loop._virtual_selector.now_s += GRACE_S

    async def program() -> None:
        async with listening(fleet, tmp_path, once_in(late_in, stand_still)):
            send([TERM])
            await asyncio.Event().wait()

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with capture_logs() as events:
        assert await run(program()) == f"exit {128 + TERM}"
    told = {event["event"]: event for event in events}
    published = fleet.controller(tmp_path).store.list()
    if late_in is S.PUBLISHED:
        assert (told["last_cut_taken"]["wire_id"], "last_cut_failed" in told) == (published[0].wire_id, False)
    else:
        assert told["last_cut_failed"]["error"] == "it was not published within 30 s"
        assert "last_cut_taken" not in told
        assert published == ()
    assert await fleet.everybody_accepts()


@every_fence
@virtual_time
async def test_a_last_cut_that_cannot_end_in_time_is_given_up(tmp_path: Path, fence: FenceVariant) -> None:
    """Nothing ran, and the drain takes too long: everybody is open again, and the program is cancelled."""
    fleet = Fleet(fence)
    stuck = fleet.stuck("r0")

    async def program() -> None:
        async with listening(fleet, tmp_path) as controller:
            send([TERM])
            try:
                await asyncio.Event().wait()
            finally:
                assert controller.last_cut is None

    await ended(run(program()))
    assert last_state(tmp_path) == S.ABORTED
    assert await fleet.everybody_accepts()
    stuck.cancel()


@every_fence
@every_way
@pytest.mark.parametrize("state", [S.PREFLIGHT, S.RESTORING, S.RESTORED, S.RESUMING])
def test_a_restore_is_held_closed_or_finished(
    tmp_path: Path, fence: FenceVariant, state: TransactionState, numbers: Sequence[signal.Signals]
) -> None:
    """No half of it is ever opened; one that is being resumed is finished."""

    async def scenario() -> None:
        fleet = Fleet(fence)
        async with fleet.controller(tmp_path / "saved") as controller, controller.cut("step-1"):
            pass
        root = tmp_path / "root"
        root.mkdir()
        (tmp_path / "saved" / "snapshots").rename(root / "snapshots")
        fresh = Fleet(fence)
        left: list[object] = []

        async def program() -> None:
            async with listening(fresh, root, once_in(state, lambda: send(numbers))) as controller:
                try:
                    async with controller.restore("step-1"):
                        await asyncio.sleep(2.0)
                    await asyncio.Event().wait()
                finally:
                    held = controller.unsettled
                    left.append(held)
                    if isinstance(held, PhasedRestore):
                        assert held.state is S.RESTORE_FAILED
                        assert fresh.apps["policy"].fence.state.closed or not held.to_restart()

        task = run(program())
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is not None or task.result().startswith("exit")
        # a signal is heard a moment after it was sent: a preflight may be over by then
        ends = {S.PREFLIGHT: (S.ABORTED, S.RESTORE_FAILED), S.RESUMING: (S.RESUMED,)}
        assert last_state(root) in ends.get(state, (S.RESTORE_FAILED,))
        assert (left[0] is None) == (last_state(root) != S.RESTORE_FAILED)
        if left[0] is None:
            assert await fresh.everybody_accepts()

    run_virtual(scenario())


@virtual_time
async def test_a_program_that_is_leaving_leaves_in_order(tmp_path: Path) -> None:
    """The signal comes as the context is left: the cut is taken, the root is given back, and then comes the end."""
    fleet = Fleet()

    async def program() -> None:
        async with listening(fleet, tmp_path) as controller:
            signal.raise_signal(TERM)
            await asyncio.sleep(0.01)
        assert controller.last_cut is not None
        (holder,) = (tmp_path / ".quiesce" / "epoch").glob("*/holder.json")
        assert Holder.model_validate_json(holder.read_bytes()).released
        await asyncio.Event().wait()

    await ended(run(program()))


@virtual_time
async def test_ones_own_handler_may_ask_for_it(tmp_path: Path) -> None:
    """``take_last_cut`` does what a signal does."""
    fleet = Fleet()

    async def program() -> None:
        async with fleet.controller(tmp_path, grace_s=GRACE_S) as controller:
            controller.take_last_cut("the scheduler said so")
            controller.take_last_cut("and again")
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await run(program())
    assert fleet.controller(tmp_path).store.load("last-cut").metadata == {"taken_on": "the scheduler said so"}


@virtual_time
async def test_who_catches_the_cancellation_goes_on(tmp_path: Path) -> None:
    """It has ended its work in its own way, and the program is its own affair; another error is never hidden."""
    fleet = Fleet()

    async def catches() -> None:
        async with listening(fleet, tmp_path):
            send([TERM])
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    await ended(run(catches()), "went on")

    async def fails() -> None:
        async with listening(fleet, tmp_path):
            send([TERM])
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("of the program")

    with pytest.raises(ValueError, match="of the program"):
        await run(fails())


async def test_signals_are_for_the_main_thread(tmp_path: Path) -> None:
    """Elsewhere the controller does not open, and says what to do."""

    async def program() -> None:
        fleet = Fleet()
        with pytest.raises(ConfigurationError, match="main thread"):
            await listening(fleet, tmp_path).open()

    await asyncio.to_thread(run_virtual, program())
