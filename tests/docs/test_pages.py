"""Every code block of README and the documentation runs, page by page, as a reader would go through it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.console import Console, shows
from support.page_sceneries import (
    CONFIGURATION,
    VARIABLES,
    agent_server,
    begin_rollouts,
    free_port,
    names,
    served_fleet,
)
from support.pages import DRAWN, RUN, Block, blocks, exchanges, file_name, page_name, pages

from quiesce.controller.config import parse_config

SHOWN_MAX = 8
"""How many blocks may be shown without being run, in all pages together."""
_PORT = re.compile(r"(?<!\d)81\d\d(?!\d)")


@pytest.fixture(scope="session")
def fleet() -> Iterator[dict[int, int]]:
    """Servers that pages share which do not end them."""
    with served_fleet() as ports:
        yield ports


class Reader:
    """Goes through one page: one folder, one namespace, one shell, one event loop."""

    def __init__(
        self,
        folder: Path,
        shared_fleet: Callable[[], dict[int, int]],
        stack: contextlib.ExitStack,
        variables: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._variables = variables
        self._shared_fleet = shared_fleet
        self._stack = stack
        self._ports: dict[int, int] = {}
        self._names: dict[str, Any] = {"__name__": "page", **names()}  # Any: whatever the page defines
        self._runner = stack.enter_context(asyncio.Runner())
        self._console: Console | None = None
        self._sceneries: dict[str, Callable[[], None]] = {
            "fleet": lambda: self._meet(self._shared_fleet()),
            "fresh fleet": lambda: self._meet(self._stack.enter_context(served_fleet(expects_restore=True))),
            "rollouts": self._begin_rollouts,
            "agent server": lambda: self._names.update(agent_server()),
        }

    def read(self, block: Block) -> None:
        """Do what a block says.

        Raises:
            AssertionError: it comes to something else than the page says.
        """
        for scenery in block.scenery:
            self._sceneries[scenery]()
        text = self._with_real_ports(block.text)
        name = file_name(block)
        if name is not None:
            (self._folder / name).write_text(text, encoding="utf-8")
            if block.language == "python":
                self._import(name.removesuffix(".py"))
        if block.language == "toml":
            self._read_toml(text, block)
        elif block.language == "console":
            self._type(text, block)
        elif block.language == "yaml":
            self._work_off(yaml.safe_load(text), block)
        elif name is None:
            self._execute(text, block)

    def _import(self, module: str) -> None:
        importlib.invalidate_caches()
        importlib.import_module(module)
        self._stack.callback(lambda: sys.modules.pop(module, None))

    def _with_real_ports(self, text: str) -> str:
        return _PORT.sub(lambda found: str(self._ports.setdefault(int(found[0]), free_port())), text)

    def _meet(self, ports: dict[int, int]) -> None:
        self._ports.update(ports)
        (self._folder / "quiesce.toml").write_text(self._with_real_ports(CONFIGURATION), encoding="utf-8")

    def _begin_rollouts(self) -> None:
        tasks = self._runner.run(begin_rollouts(f"http://127.0.0.1:{self._ports[8103]}"))
        self._stack.callback(lambda: [task.cancel() for task in tasks])

    def _execute(self, text: str, block: Block) -> None:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        # as many lines before it as there are in the page, so that a traceback names the line of the page
        code = compile("\n" * block.line + text, block.page, "exec", flags=flags)
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(eval(code, self._names))  # noqa: S307 - our own page
        else:
            exec(code, self._names)  # noqa: S102 - our own page

    def _type(self, text: str, block: Block) -> None:
        console = self._shell()
        typed = exchanges(text)
        for number, exchange in enumerate(typed):
            status, wrote = console.run(exchange.command)
            last = number == len(typed) - 1
            asked_for = not last and typed[number + 1].command.startswith("echo $?")
            expected = status if asked_for else block.exit_status if last else 0
            assert status == expected, f"{block}: {exchange.command!r} ended with {status}:\n{wrote}"
            if exchange.output:
                assert shows(exchange.output, wrote), f"{block}: {exchange.command!r} wrote:\n{wrote}"

    def _shell(self) -> Console:
        if self._console is None:
            self._console = self._stack.enter_context(Console(self._folder, self._variables))
        return self._console

    def _work_off(self, workflow: dict[str, Any], block: Block) -> None:
        """Do what a workflow of continuous integration runs, with what its runner gives it."""
        console = self._shell()
        for job in workflow["jobs"].values():
            given = {**job.get("env", {}), "RUNNER_TEMP": tempfile.mkdtemp(dir=self._folder)}
            lines = [f"export {name}={shlex.quote(str(value))}" for name, value in given.items()]
            for command in [*lines, *(step["run"] for step in job["steps"] if "run" in step)]:
                status, wrote = console.run(command.rstrip())
                assert status == 0, f"{block}: {command!r} ended with {status}:\n{wrote}"

    def _read_toml(self, text: str, block: Block) -> None:
        document = tomllib.loads(text)
        if "tool" in document:
            return
        # a configuration of other addresses names nobody whom one could call
        if {"root", "deployment"} <= set(document) and "://127.0.0.1" in text:
            (self._folder / "quiesce.toml").write_text(text, encoding="utf-8")
        parse_config(whole_configuration(document, text), source=str(block), directory=self._folder, environment={})


def whole_configuration(document: dict[str, Any], text: str) -> str:  # Any: a TOML document
    """A part of a configuration, with what it lacks to be one put before and behind it."""
    head = "" if "root" in document else 'root = "/checkpoints"\n'
    if "participants" in document:
        return f"{head}[deployment.main]\n{text}"
    tail = "" if "deployment" in document else '\n[deployment.main]\ngym_config = "resolved.yaml"\n'
    return f"{head}{text}{tail}"


def all_blocks() -> list[Block]:
    """Every block of every page."""
    return [block for path in pages() for block in blocks(path.read_text(encoding="utf-8"), page_name(path))]


def test_the_pages_have_blocks_of_each_kind() -> None:
    """The walk finds pages, and blocks of every language that runs; one that is not known would silently not run."""
    found = Counter(block.language for block in all_blocks())
    assert set(RUN) <= set(found)
    assert set(found) <= {*RUN, *DRAWN}


def test_few_blocks_are_only_shown() -> None:
    """What does not run is listed here, has a reason, and there is little of it."""
    shown = {str(block): block.shown_because for block in all_blocks() if block.shown_because}
    print(*(f"{where}: {reason}" for where, reason in shown.items()), sep="\n")  # noqa: T201 - the list
    assert len(shown) <= SHOWN_MAX
    assert [where for where, reason in shown.items() if len(reason.split()) < 3] == []


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_a_page_does_what_it_says(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Its Python, commands and workflows run and write what is shown, and its configurations are accepted."""
    found = [block for block in blocks(path.read_text(encoding="utf-8"), page_name(path)) if block.language in RUN]
    run = [block for block in found if not block.shown_because]
    if not run:
        return
    if any(re.search(r"\bcurl\b", block.text) for block in run) and not shutil.which("curl"):
        pytest.skip("needs curl: apt-get install curl")
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(tmp_path))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.syspath_prepend(tmp_path)
        # whoever meets servers that were there before has their token; a page that starts its own says how it is set
        has_token = any(block.scenery for block in run)
        for name, value in VARIABLES.items():
            if has_token:
                patch.setenv(name, value)
            else:
                patch.delenv(name, raising=False)
        variables = VARIABLES if has_token else {}
        reader = Reader(tmp_path, lambda: request.getfixturevalue("fleet"), stack, variables)
        for block in run:
            reader.read(block)


@pytest.mark.parametrize(
    ("shown", "wrote", "same"),
    [
        ("published first-6899b7b1 in .../first-6899b7b1", "published first-00000000 in /a/b/first-11111111\n", True),
        ("paused for 0.56 s", "paused for 12 ms", True),
        ("a   b", "a b", True),
        ("14 files, 1,223 bytes", "9 files, 7 bytes", True),
        ("14 files, 1223 bytes", "9 files, 2,223 bytes", False),
        ("14 files, 1,223 bytes", "9 files, 2223 bytes", False),
        ("14 files, 1,223 bytes", "9 files, 1.2 KiB", False),
        ("3 rollouts", "3 rollouts at a boundary", False),
        ("first-6899b7b1 is good", "first-6899b7b1 is bad", False),
        ("$ and (x)", "$ and (y)", False),
        ("left ...", "right and more", False),
    ],
)
def test_output_is_compared_but_for_what_varies(shown: str, wrote: str, same: bool) -> None:  # noqa: FBT001 - a table
    """Numbers with their units, nonces, columns and what an ellipsis stands for may differ; words may not."""
    assert shows(shown, wrote) is same


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_a_page_tells_one_size_of_a_snapshot(path: Path) -> None:
    """What two commands print of the same snapshot is the same figure, written the same way."""
    sizes: dict[str, set[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        snapshot, size = re.search(r"\b[\w.-]+-[0-9a-f]{8}\b", line), re.search(r"[\d.,]+ bytes\b", line)
        if snapshot and size:
            sizes.setdefault(snapshot[0], set()).add(size[0])
    assert {snapshot: told for snapshot, told in sizes.items() if len(told) > 1} == {}
