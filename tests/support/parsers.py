"""Every parser of what others wrote or sent: bytes in, and nothing out but a value or an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from quiesce.controller.config import parse_config
from quiesce.controller.files import FileSystem
from quiesce.controller.journal import JournalReading, read_journal
from quiesce.fsm.vocabulary import Role, Verb
from quiesce.fuzz.counterexample import parse_counterexample
from quiesce.fuzz.replays import parse_replay
from quiesce.participants.dialects.base import CallSpec
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.gym_config import read_gym_configuration
from quiesce.participants.manifest import load_manifest

__all__ = ["PARSERS", "journal_of"]


@dataclass
class OneFile:
    """A file system that holds one file."""

    content: bytes

    def read(self, _path: Path, bytes_max: int) -> bytes:
        """The content."""
        return self.content[:bytes_max]


def journal_of(content: bytes) -> JournalReading:
    """A journal of this content, read."""
    return read_journal(Path("j.ndjson"), files=cast("FileSystem", OneFile(content)))


def _reply(verb: Verb, role: Role, status: int) -> Callable[[bytes], object]:
    spec = CallSpec(verb, role, checkpoint_id="a")
    return lambda body: GymA().read(spec, status, {}, body)


PARSERS: Final[dict[str, Callable[[bytes], object]]] = {
    "capabilities": _reply(Verb.INSPECT, Role.AGENT, 200),
    "pause": _reply(Verb.CLOSE, Role.POLICY, 200),
    "agent prepare": _reply(Verb.AWAIT_CUT, Role.AGENT, 200),
    "refusal": _reply(Verb.CLOSE, Role.POLICY, 409),
    "manifest": load_manifest,
    "journal": journal_of,
    "replay": lambda body: parse_replay(body, source="f"),
    "counterexample": lambda body: parse_counterexample(body.decode("latin-1")),
    "configuration": lambda body: parse_config(body.decode("latin-1"), source="f", directory=Path(), environment={}),
    "gym configuration": lambda body: read_gym_configuration(body.decode("latin-1"), source="f"),
}
