"""The controller without an event loop: over real HTTP servers, since its caller stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet import FENCES, TOKEN, Fleet, keep
from support.served_fleet import ServedFleet, served_fleet

from quiesce.controller import BlockingController, Cut
from quiesce.controller.epoch import Holder
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.transport import StaticTokenProvider

TOKENS = StaticTokenProvider(TOKEN)


@pytest.fixture(params=FENCES, ids=lambda fence: str(fence.value))
def servers(request: pytest.FixtureRequest) -> Iterator[ServedFleet]:
    """Servers with a rollout under way."""
    fence: FenceVariant = request.param
    with served_fleet(fence) as here:
        here.run(_begin)
        yield here
        here.run(_end)


async def _begin(fleet: Fleet) -> None:
    fleet.tasks = [fleet.rollout("r0", 100_000)]  # type: ignore[attr-defined]  # kept for _end
    await fleet.seed_session("r0")


async def _end(fleet: Fleet) -> None:
    for task in fleet.tasks:  # type: ignore[attr-defined]  # of _begin
        task.cancel()
    await asyncio.gather(*fleet.tasks, return_exceptions=True)  # type: ignore[attr-defined]  # of _begin


def test_a_cut_and_a_restore(servers: ServedFleet, tmp_path: Path) -> None:
    """The same steps and results as with an event loop."""
    seen: list[str] = []
    observers = (lambda trace: seen.append(trace.target),)
    with BlockingController(
        servers.config(tmp_path), on_completed=keep, tokens=TOKENS, observers=observers
    ) as controller:
        assert controller.discovered is not None
        with controller.cut("step-1", metadata={"step": 1}) as cut:
            assert {state.value for state, _ in cut.progress().values()} >= {"committed"}
            assert not servers.everybody_accepts()
            (cut.directory / "trainer" / "weights").write_text("w")
        assert cut.result.rollouts == (AttemptId("r0", 0),)
        assert servers.everybody_accepts()
        assert controller.store.load("step-1").metadata == {"step": 1}
        assert [entry.label for entry in controller.snapshots()] == ["step-1"]
        assert controller.prune(keep=1).kept == (cut.result.wire_id,)
    assert "resumed" in seen
    with (
        served_fleet(servers.run(_fence_of)) as fresh,
        BlockingController(fresh.config(tmp_path), tokens=TOKENS) as controller,
    ):
        with controller.restore("step-1") as restored:
            assert (restored.directory / "trainer" / "weights").read_text() == "w"
            assert restored.discard(restored.rollouts) == (AttemptId("r0", 0),)
        assert restored.result.discarded == (AttemptId("r0", 0),)
        controller.settle()


async def _fence_of(fleet: Fleet) -> FenceVariant:
    return fleet.fence


def test_opened_again_it_is_as_new(servers: ServedFleet, tmp_path: Path) -> None:
    """Its event loop ends with it; the next opening has another one."""
    controller = BlockingController(servers.config(tmp_path), on_completed=keep, tokens=TOKENS)
    for label in ("first", "second"):
        with controller, controller.cut(label):
            pass
        assert servers.run(Fleet.everybody_accepts)
    assert len(list((tmp_path / "snapshots").iterdir())) == 2


def test_an_exception_in_the_body_aborts(servers: ServedFleet, tmp_path: Path) -> None:
    """Everybody is open again, nothing is published, and the exception is the caller's own."""
    with BlockingController(servers.config(tmp_path), on_completed=keep, tokens=TOKENS) as controller:
        with pytest.raises(ZeroDivisionError), controller.cut("step-1"):
            _ = 1 / 0
        assert servers.everybody_accepts()
        assert controller.store.list() == ()


@pytest.mark.parametrize("where", ["draining", "body"])
def test_ctrl_c_aborts(servers: ServedFleet, tmp_path: Path, where: str) -> None:
    """While it waits for the drain, or in the body: everybody is open again before the interrupt goes on."""
    if where == "draining":
        servers.run(_hold_up)

    def interrupt(trace: object) -> None:
        if where == "draining" and getattr(trace, "target", "") == "draining":
            os.kill(os.getpid(), signal.SIGINT)

    with BlockingController(
        servers.config(tmp_path), on_completed=keep, tokens=TOKENS, observers=(interrupt,)
    ) as controller:
        with pytest.raises(KeyboardInterrupt), controller.cut("step-1"):
            _send(signal.SIGINT)
        assert servers.everybody_accepts()
        assert controller.store.list() == ()
    servers.run(_let_go)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_it_closes(servers: ServedFleet, tmp_path: Path, times: int) -> None:
    """In the middle of a cut whose context is not left: all is done first, and then it is raised.

    A second one is raised at once, and whoever closes it again, as the interpreter does at its end, waits for that.
    """
    came, left = [threading.Event() for _ in range(times)], threading.Event()
    at = dict(zip(("aborting", "aborted"), came, strict=False))

    def hear(_number: int, _frame: object) -> None:
        next(event for event in came if not event.is_set()).set()
        raise KeyboardInterrupt

    def interrupt(trace: TraceRecord) -> None:
        event = at.pop(trace.target, None) if trace.machine == "TRANSACTION" else None
        if event is not None:
            os.kill(os.getpid(), signal.SIGINT)
            assert event.wait(30.0)
            assert times == 1 or event is came[0] or left.wait(30.0)

    controller = BlockingController(servers.config(tmp_path), on_completed=keep, tokens=TOKENS, observers=(interrupt,))
    controller.open()
    controller.cut("step-1").__enter__()
    before = signal.signal(signal.SIGINT, hear)
    try:
        with pytest.raises(KeyboardInterrupt):
            controller.close()
    finally:
        signal.signal(signal.SIGINT, before)
    left.set()
    if times > 1:
        assert not controller.store.list()
        controller.close()
    assert all(event.is_set() for event in came)
    assert servers.everybody_accepts()
    assert controller.store.list() == ()
    (holder,) = (tmp_path / ".quiesce" / "epoch").glob("*/holder.json")
    assert Holder.model_validate_json(holder.read_bytes()).released


def _send(*numbers: signal.Signals) -> None:
    """Send signals to this process, and go on with something that knows nothing of them."""
    for number in numbers:
        os.kill(os.getpid(), number)
    threading.Event().wait(30)


async def _hold_up(fleet: Fleet) -> None:
    fleet.tasks.append(fleet.stuck("slow"))  # type: ignore[attr-defined]  # of _begin


async def _let_go(fleet: Fleet) -> None:
    fleet.let_calls_end.set()


def test_it_is_not_for_a_running_loop(servers: ServedFleet, tmp_path: Path) -> None:
    """A blocking call would stop the loop: refused, with the name of what to use; nobody was called."""
    controller = BlockingController(servers.config(tmp_path), tokens=TOKENS)

    async def program() -> None:
        with pytest.raises(ConfigurationError, match="use Controller there"):
            controller.open()

    asyncio.run(program())
    with controller, pytest.raises(ConfigurationError, match="open already"):
        controller.open()
    with pytest.raises(ConfigurationError, match="not open"):
        controller.settle()
    controller.close()


def test_the_last_cut_is_taken_while_the_caller_goes_on(servers: ServedFleet, tmp_path: Path) -> None:
    """SIGTERM arrives in code that knows nothing of it: the last cut is taken, and then the program is ended."""
    config = servers.config(tmp_path, 'last_cut_signals = ["SIGTERM"]\ngrace_s = 20.0')
    bodies: list[str] = []

    def save(cut: Cut) -> None:
        bodies.append(threading.current_thread().name)
        (cut.directory / "trainer" / "weights").write_text("w")

    before = signal.getsignal(signal.SIGTERM)
    controller = BlockingController(config, on_completed=keep, on_asked_cut=save, tokens=TOKENS)
    with pytest.raises(SystemExit) as ended, controller:
        _send(signal.SIGTERM, signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert controller.last_cut is not None
    assert [entry.label for entry in controller.store.list()] == ["last-cut"]
    assert bodies == ["quiesce controller"]
    assert servers.everybody_accepts()


PROGRAM = """
    import sys
    from pathlib import Path
    from quiesce.controller import BlockingController, load_config
    from quiesce.transport import StaticTokenProvider

    controller = BlockingController(load_config(sys.argv[1]), tokens=StaticTokenProvider(sys.argv[2]))
    controller.open()
    cut = controller.cut("step-1")
    cut.__enter__()
    print("inside", flush=True)
    sys.exit(7)
"""


def test_the_interpreters_exit_closes_it(servers: ServedFleet, tmp_path: Path) -> None:
    """A program that leaves in the middle of a cut, without leaving its context: everybody is open again."""
    servers_text = ", ".join(f'{{ name = "{name}", url = "{url}" }}' for name, url in servers.urls.items())
    config = tmp_path / "quiesce.toml"
    config.write_text(f'root = "root"\n[deployment.main]\nparticipants = [{servers_text}]\n')
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(config), TOKEN]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7
    assert "inside" in done.stdout
    assert all(line.startswith("event=") for line in done.stderr.splitlines()), done.stderr
    assert servers.everybody_accepts()
    assert list((tmp_path / "root" / "snapshots").iterdir()) == []
    (holder,) = (tmp_path / "root" / ".quiesce" / "epoch").glob("*/holder.json")
    assert Holder.model_validate_json(holder.read_bytes()).released
