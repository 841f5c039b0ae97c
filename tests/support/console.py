"""A shell in which the console blocks of a page run one after the other, as a reader would type them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

_SERVED = re.compile(r"(?:serve\b|uvicorn\b).*--port[ =](\d+)")
_VARYING = re.compile(r"\.\.\.| {2,}|-[0-9a-f]{8}\b|\d+(?:[.,]\d+)*(?: m?s\b)?")
_GROUPED = r"\d{1,3}(?:,\d{3})*"
_UNGROUPED = r"\d+(?:\.\d+)*"
_SHORT = 3
"""Digits that are written alike whether or not thousands are set apart."""
_OBITUARY = re.compile(r"\S*bash: line \d+: +\d+ Killed")
PATIENCE_S = 60.0


class Console:
    """One bash without a user's settings, in a folder of its own, with ``quiesce`` on the path.

    Ends whatever was started in it.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        programs = folder / ".programs"
        programs.mkdir()
        _shim(programs / "quiesce", f'exec "{sys.executable}" -m quiesce.cli.main "$@"')
        _shim(programs / "python", f'exec "{sys.executable}" "$@"')
        _shim(programs / "uvicorn", f'exec "{sys.executable}" -m uvicorn "$@"')
        _shim(programs / "pip", "exit 0  # everything is there")
        _shim(programs / "pytest", f'exec "{sys.executable}" -m pytest -p no:cacheprovider "$@"')
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._shell = subprocess.Popen(
            ["/bin/bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**os.environ, **variables, "PATH": path, "COLUMNS": "120"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        self._starting: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    def run(self, command: str) -> tuple[int, str]:
        """The exit status of a command and what it wrote; servers that were started before it accept connections.

        Raises:
            AssertionError: it did not end, or its server did not come up, within a minute.
        """
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        if not command.rstrip().endswith("&"):
            self._await_servers()
        end = f"--end-of-{os.urandom(8).hex()}--"
        # the status of the command stays what a following `echo $?` sees
        self._shell.stdin.write(f"{command}\n__status=$?; echo; echo {end} $__status; (exit $__status)\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        watch = threading.Timer(PATIENCE_S, lambda: os.killpg(self._shell.pid, signal.SIGKILL))
        watch.start()
        try:
            for line in self._shell.stdout:
                if line.startswith(end):
                    break
                lines.append(line)
            else:
                raise AssertionError(f"{command!r} did not end; it wrote:\n{''.join(lines)}")
        finally:
            watch.cancel()
        if command.rstrip().endswith("&"):
            self._starting += [int(served[1]) for served in _SERVED.finditer(command)]
        wrote = "".join(line for line in lines if not _OBITUARY.match(line))
        return int(line.split()[1]), wrote.removesuffix("\n")

    def _await_servers(self) -> None:
        while self._starting:
            _wait_until_served(self._starting.pop())


def shows(shown: str, wrote: str) -> bool:
    """Whether a page's output is what was written, but for numbers, nonces, and whatever an ellipsis stands for.

    A number may be another one, but not be written in another way: with or without commas between thousands.
    """
    return re.fullmatch(_pattern(_trimmed(shown)), _trimmed(wrote), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    """Without blanks at the ends of lines, which nobody sees."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _pattern(shown: str) -> str:
    parts, at = [], 0
    for found in _VARYING.finditer(shown):
        parts += [re.escape(shown[at : found.start()]), _stands_for(found[0])]
        at = found.end()
    return "".join((*parts, re.escape(shown[at:])))


def _stands_for(found: str) -> str:
    if found.startswith((".", " ", "-")):
        return {".": ".*", " ": " +", "-": "-[0-9a-f]{8}"}[found[0]]
    if found.endswith("s"):
        return f"{_UNGROUPED} m?s"
    if "," in found:
        return _GROUPED
    return f"(?:{_GROUPED}|{_UNGROUPED})" if len(found) <= _SHORT else _UNGROUPED


def _shim(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def _wait_until_served(port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens on port {port}")
