"""Other people's programs that read what we draw: where they are, and the reason for a skip where they are not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

DOT = "dot"
PLANTUML = "plantuml"
QSCXMLC = "qscxmlc"
CHROMIUM = "chromium"

HEADLESS = ("--headless", "--no-sandbox", "--disable-gpu", "--dump-dom")
"""What makes chromium print a page after its scripts have run; each run has a profile of its own besides."""

_PACKAGES = {DOT: "graphviz", PLANTUML: "plantuml", QSCXMLC: "libqt5scxml5-bin", CHROMIUM: "chromium"}
_PLACES = {QSCXMLC: ("/usr/lib/qt5/bin/qscxmlc",)}


def found(program: str) -> str | None:
    """Where a program is, also where Debian keeps it off the path."""
    return shutil.which(program) or next((place for place in _PLACES.get(program, ()) if Path(place).exists()), None)


def needs(program: str) -> pytest.MarkDecorator:
    """A mark that skips without the program, and names the Debian package that has it."""
    return pytest.mark.skipif(found(program) is None, reason=f"needs {program}: apt-get install {_PACKAGES[program]}")


def needs_npm(*packages: str) -> pytest.MarkDecorator:
    """A mark that skips without node or where ``NODE_PATH`` has not all of these packages of npm."""
    return pytest.mark.skipif(
        not all(map(_has_npm, packages)),
        reason=f"needs node and NODE_PATH with: npm install {' '.join(packages)}",
    )


def run_program(program: str, *arguments: str, given: str = "", timeout_s: float = 100) -> str:
    """What a program writes when it is given a text; its own complaint is the failure."""
    path = found(program)
    assert path is not None
    done = subprocess.run([path, *arguments], input=given.encode(), capture_output=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, (done.stderr + done.stdout).decode(errors="replace")[-2000:]
    return done.stdout.decode()


def run_node(script: str, given: object, *, module: bool = False) -> object:
    """What a script of node prints as JSON, when it reads ``given`` as JSON from its standard input."""
    kind = ["--input-type=module"] if module else []
    return json.loads(run_program("node", *kind, "-e", script, given=json.dumps(given)))


@cache
def node_folder(package: str) -> Path | None:
    """Where a package of npm is installed."""
    places = [Path(place) / package for place in os.environ.get("NODE_PATH", "").split(os.pathsep) if place]
    return next((place for place in places if (place / "package.json").exists()), None)


def _has_npm(package: str) -> bool:
    return shutil.which("node") is not None and node_folder(package.partition("@")[0]) is not None
