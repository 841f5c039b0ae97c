"""Ctrl-C at each line that the waiting thread runs: a blocking controller leaves nobody closed."""

from __future__ import annotations

import contextlib
import gc
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Self

import pytest
from support.fleet import TOKEN, keep
from support.served_fleet import ServedFleet, served_fleet

from quiesce.controller import BlockingController
from quiesce.controller import blocking as blocking_module
from quiesce.controller import loop_thread as loop_thread_module
from quiesce.controller.epoch import Holder
from quiesce.controller.loop_thread import refuse_in_a_loop
from quiesce.transport import StaticTokenProvider

FILES = (blocking_module.__file__, loop_thread_module.__file__)


@pytest.fixture(scope="module")
def servers() -> Iterator[ServedFleet]:
    """Servers that stay while each of the interruptions is tried."""
    with served_fleet() as here:
        yield here


class Interrupting:
    """Raises KeyboardInterrupt at the n-th line that this thread runs in the files; knows where that was."""

    def __init__(self, at: int | None) -> None:
        self.lines = 0
        self.hit = ""
        self.is_between = False
        """Whether it came right after a context was entered or right before one is left: no code can see to that."""
        self._at = at
        self.begun: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Self | None:
        """What ``sys.settrace`` wants, for calls and for lines."""
        # an error that a tracer raises where another one is being handled stays that thread's present one for ever
        if frame.f_code.co_filename not in FILES or frame.f_code.co_name == refuse_in_a_loop.__name__:
            return None
        if event == "line":
            self.lines += 1
            if self.lines - 1 == self._at:
                self._interrupt(frame)
            self.begun.add(frame)
        return self

    def _interrupt(self, frame: FrameType) -> None:
        is_first = frame not in self.begun
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        self.hit = f"{frame.f_code.co_qualname}: {line}"
        self.is_between = line == "return self" or (is_first and frame.f_code.co_name in ("__exit__", "close"))
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupted(at: int | None) -> Iterator[Interrupting]:
    """Interrupt this thread once."""
    interrupting, before = Interrupting(at), sys.gettrace()
    sys.settrace(interrupting)
    try:
        yield interrupting
    finally:
        sys.settrace(before)
        interrupting.begun.clear()  # frames keep what they ran in


def cut_once(servers: ServedFleet, root: Path, at: int | None) -> Interrupting:
    """Take a cut that is interrupted at a line; then nobody is closed."""
    controller = BlockingController(servers.config(root), on_completed=keep, tokens=StaticTokenProvider(TOKEN))
    with contextlib.suppress(KeyboardInterrupt), interrupted(at) as interrupting, controller:
        try:
            with controller.cut("step-1"):
                pass
        finally:
            sys.settrace(None)
            assert interrupting.is_between or servers.everybody_accepts(), interrupting.hit
            sys.settrace(interrupting)
    if interrupting.is_between:
        controller.close()  # as the end of the interpreter does
    if interrupting.hit.startswith("LoopThread.__init__"):
        gc.collect()
    assert servers.everybody_accepts(), interrupting.hit
    return interrupting


# interrupted where it makes its loop, nobody gets a hold of that, and the collector closes it
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_cut_is_interrupted_at_every_line(servers: ServedFleet, tmp_path: Path) -> None:
    """At no line of entering and leaving, opening and closing, does an interruption leave somebody closed."""
    lines = cut_once(servers, tmp_path / "whole", None).lines
    hits = []
    for at in range(lines):
        root = tmp_path / str(at)
        interrupting = cut_once(servers, root, at)
        hits.append(interrupting.hit)
        for holder in (root / ".quiesce" / "epoch").glob("*/holder.json"):
            assert Holder.model_validate_json(holder.read_bytes()).released, interrupting.hit
    assert {where.split(":")[0] for where in hits} >= {
        "BlockingController.open",
        "BlockingController.close",
        "_Blocking.__enter__",
        "_Blocking.__exit__",
        "LoopThread.run",
        "_Awaited.wait",
    }
    assert sys.exc_info() == (None, None, None)
