"""The pytest plugin, as a server author's own test run sees it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TEST = """
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz import kit_traffic
from quiesce.fuzz.kit import KIT_TOKEN, build_kit_server

def test_mine(quiesce_conforms):
    app = build_kit_server(Role.POLICY, FenceVariant.{fence}).app
    report = quiesce_conforms(app, token=KIT_TOKEN, traffic=kit_traffic, in_virtual_time=True{more})
    print("asked", report.calls, "seed", report.seed, report.profile.value)
"""


@pytest.fixture
def author(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with nothing but the plugin in it, which is not installed where the tests run from source."""
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nasyncio_default_fixture_loop_scope = function\n")
    pytester.plugins = []
    return pytester


def outcome(author: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A test run of the author's, in this process."""
    named = ["-p", "quiesce.fuzz.plugin"] if not is_installed() else []
    return author.runpytest_inprocess(*named, *arguments)


def is_installed() -> bool:
    """Whether the plugin is found by its entry point."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - only here

    return any(point.value == "quiesce.fuzz.plugin" for point in entry_points(group="pytest11"))


def test_a_server_that_conforms_passes(author: pytest.Pytester) -> None:
    """The fixture needs nothing but the application; options are defaults."""
    author.makepyfile(TEST.format(fence="STRICT", more=""))
    result = outcome(author, "-s", "--quiesce-calls", "200", "--quiesce-seed", "5", "--quiesce-profile", "gym-a")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*asked 2* seed 5 gym-a*"])


def test_what_a_test_gives_itself_wins(author: pytest.Pytester) -> None:
    """An option of the command line does not override what the author wrote."""
    author.makepyfile(TEST.format(fence="STRICT", more=", seed=9, calls_max=100"))
    result = outcome(author, "-s", "--quiesce-calls", "2000", "--quiesce-seed", "5")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*asked 1* seed 9 strict*"])


def test_a_server_that_does_not_conform_fails_with_the_rule(author: pytest.Pytester) -> None:
    """Rule, calls and replay files: all that is needed to see it again."""
    author.makepyfile(TEST.format(fence="GYM_A_SINGLE", more=""))
    result = outcome(author, "--quiesce-replays", "replays", "--quiesce-calls", "500")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Nonconforming*", "*error fence.drain:*", "*work begin p -> in flight*"])
    saved = {path.name: json.loads(path.read_text()) for path in (author.path / "replays").iterdir()}
    assert saved["policy-model-fence.drain.json"]["violation"]["rule"] == "fence.drain"


def test_a_wrong_option_is_refused(author: pytest.Pytester) -> None:
    """A profile that is none fails the test that uses it, and says which there are."""
    author.makepyfile(TEST.format(fence="STRICT", more=""))
    result = outcome(author, "--quiesce-profile", "gym-b")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*there are strict, gym-a*"])


def test_the_options_are_in_the_help(author: pytest.Pytester) -> None:
    """In a group of their own."""
    result = outcome(author, "--help")
    result.stdout.fnmatch_lines(["*conformance of checkpoint participants (quiesce)*", "*--quiesce-replays=DIR*"])


def test_who_does_not_use_it_does_not_pay_for_it() -> None:
    """Importing the plugin imports nothing else of ours: every test run of every user does so."""
    ours = "('quiesce', 'pydantic', 'httpx', 'hypothesis')"
    code = f"import sys, quiesce.fuzz.plugin; print(*sorted(m for m in sys.modules if m.startswith({ours})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["quiesce", "quiesce.fuzz", "quiesce.fuzz.plugin"]
