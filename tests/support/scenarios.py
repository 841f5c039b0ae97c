"""Scenario files: a few steps and all that the servers of each fence answer to them, written by the servers themselves.

A file begins with lines of ``#`` that say what it is about and a line ``role ROLE`` (``owing``: a resource server that
was started to be restored), and goes on with one step a line (``quiesce.fuzz.steps``). Behind them stands, for each
fence of the role, everything that was answered. Only the part above the first ``==`` is written by hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FENCE, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options
from quiesce.fuzz.findings import Episode
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.line import Line
from quiesce.fuzz.rulebook import RULES
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.run import Run
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Bearer, Step, parse_step, render_step
from quiesce.fuzz.traffic import kit_traffic
from quiesce.fuzz.virtual_time import VirtualClock, run_virtual
from quiesce.fuzz.wording import Bindings, Durations
from quiesce.participants.errors import ConfigurationError
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.port import ControlRequest
from quiesce.transport.token import StaticTokenProvider

SCENARIOS = Path(__file__).parents[1] / "scenarios"
DURATIONS = Durations(short_s=2.0, work_s=20.0, grace_s=40.0)
NONCE = "scenario"


@dataclass(frozen=True)
class Scenario:
    """What a file asks for: the part that is written by hand, whose server, and the steps."""

    head: str
    role: Role
    owes_restore: bool
    steps: tuple[Step, ...]

    def text(self) -> str:
        """The whole file as it should be: the head, and what each fence answers."""
        played = [played_on(self, variant) for variant in FenceVariant if (variant, self.role) in FENCE]
        return "\n".join([self.head.rstrip(), *played]) + "\n"


class ScenarioInvalid(QuiesceError):
    """A scenario file cannot be used; the text names file and line."""

    def __init__(self, name: str, line: int, reason: str) -> None:
        super().__init__(f"{name}:{line}: {reason}")


def read(path: Path) -> Scenario:
    """The scenario of a file; only its head is looked at.

    Raises:
        ScenarioInvalid: a line of its head says nothing that can be, or one is missing.
    """
    try:
        return parse(path.read_bytes().decode(), path.name)
    except UnicodeDecodeError as error:
        raise ScenarioInvalid(path.name, 1, f"it is not UTF-8 text: {error.reason}") from None


def parse(text: str, name: str) -> Scenario:
    """The scenario that a text says; ``name`` is how errors call it.

    Raises:
        ScenarioInvalid: as ``read``.
    """
    head = f"\n{text}".partition("\n==")[0].removeprefix("\n")
    written = [(number, line.strip()) for number, line in enumerate(head.split("\n"), start=1)]
    lines = [(number, line) for number, line in written if line and not line.startswith("#")]
    if not lines:
        raise ScenarioInvalid(name, len(written), "it ends before a line 'role ROLE'")
    role, owes_restore = _role(name, *lines[0])
    steps = tuple(_step(name, number, line) for number, line in lines[1:])
    if not steps:
        raise ScenarioInvalid(name, lines[0][0], "no step follows")
    return Scenario(head, role, owes_restore, steps)


def _role(name: str, number: int, line: str) -> tuple[Role, bool]:
    verb, *words = line.split()
    if verb != "role" or not words or words[0] not in set(Role) or words[1:] not in ([], ["owing"]):
        roles = ", ".join(Role)
        raise ScenarioInvalid(name, number, f"a scenario begins with 'role ROLE' ({roles}), or 'role resources owing'")
    if words[1:] and words[0] != Role.RESOURCES:
        raise ScenarioInvalid(name, number, f"{words[0]} owes no restore; only resources can")
    return Role(words[0]), bool(words[1:])


def _step(name: str, number: int, line: str) -> Step:
    try:
        return parse_step(line)
    except ConfigurationError as error:
        raise ScenarioInvalid(name, number, str(error)) from None


@dataclass(slots=True)
class Tapped(Line):
    """A line that notes every answer, in the order in which they come; capabilities are in the trace anyway."""

    heard: list[str] = field(default_factory=list)

    async def send(self, request: ControlRequest, bearer: Bearer = Bearer.GOOD) -> Seen:
        """Send, and note what comes back."""
        seen = await Line.send(self, request, bearer)
        path = request.url.removeprefix(KIT_ORIGIN)
        if not path.endswith("/capabilities"):
            self.heard.append(f"    {request.method} {path}: {seen.status} {seen.body.decode()}")
        return seen


def played_on(scenario: Scenario, variant: FenceVariant) -> str:
    """What the kit's server with this fence answers, step by step; nothing of it is left out."""

    async def play(root: Path) -> str:
        async with _place(scenario, variant, root) as (run, line):
            bindings = Bindings(f"fuzz-{NONCE}-1", root)
            lines: list[str] = []
            for step in scenario.steps:
                line.heard.clear()
                await run.perform(step)
                lines += [f"> {render_step(step)}", *line.heard]
                lines.append(f"    {str(run.episode().trace[-1]).partition(' -> ')[2]}")
            line.heard.clear()
            await run.finish()
            lines += ["> the end", *line.heard] if line.heard else []
            await run.leave_open()
            return bindings.unnamed("\n".join([f"\n== {variant.value}", *lines, *_judged(run.episode())]))

    with tempfile.TemporaryDirectory(prefix="quiesce-scenario-") as folder:
        return run_virtual(play(Path(folder)))


@asynccontextmanager
async def _place(scenario: Scenario, variant: FenceVariant, root: Path) -> AsyncIterator[tuple[Run, Tapped]]:
    clock = VirtualClock()
    kit = build_kit_server(scenario.role, variant, clock=clock, restore_expected=scenario.owes_restore)
    transport = AsgiTransport({KIT_ORIGIN: kit.app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    line = Tapped(transport, clock)
    profile = Profile.STRICT if variant is FenceVariant.STRICT else Profile.GYM_A
    options = Options(
        nonce=NONCE,
        profile=profile,
        traffic=kit_traffic,
        root=root,
        allow_restore=True,
        durations=DURATIONS,
        rate=None,
        sends_any_header=True,
    )
    found, place = await arrive(KIT_ORIGIN, line, options)
    assert place is not None, found.reason
    # every rule is muted, so that the run goes on behind a broken one
    yield Run(place, muted=[rule.id for rule in RULES]), line
    await transport.aclose()


def _judged(episode: Episode) -> Iterator[str]:
    """What was broken on the way, and whether the server could be left open."""
    broken = {finding.rule.id: finding for finding in reversed(episode.muted)}
    for finding in reversed(broken.values()):
        known = f", known as {finding.known}" if finding.known else ""
        yield f"= breaks {finding.rule.id}{known}: expected {finding.expected}; got {finding.got}"
    if not broken:
        yield "= keeps every rule"
    if episode.verdict is not None:
        yield f"= {episode.verdict.value}: {episode.gone}"
