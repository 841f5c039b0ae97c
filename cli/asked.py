"""What commands do where a live controller holds the root: ask it, and give back its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quiesce.cli.output import ExitCode
from quiesce.controller.asking import Asker, new_request_id
from quiesce.controller.config import Config
from quiesce.controller.errors import RootHeld
from quiesce.controller.spool import AskedAnswer, AskedKind
from quiesce.fsm.errors import QuiesceError

__all__ = ["AskedInVain", "asked"]

_USAGE = frozenset({"ConfigurationError", "InvalidIdentity", "RequestConflict", "TopologyError"})


class AskedInVain(QuiesceError):
    """The controller that holds the root was asked, and answered that it could not be done.

    Attributes:
        answer: what it said.
    """

    def __init__(self, answer: AskedAnswer, held: RootHeld) -> None:
        self.answer = answer
        who = f" ({held.host}, process {held.pid})" if held.pid is not None else ""
        super().__init__(f"the controller that holds the root{who}: {'; '.join(text for _, text in answer.errors)}")

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that the command would have had, had it acted itself."""
        if self.answer.unproven:
            return ExitCode.IN_DOUBT
        return ExitCode.USAGE if {kind for kind, _ in self.answer.errors} <= _USAGE else ExitCode.FAILED


async def asked(
    config: Config, held: RootHeld, kind: AskedKind, *, request_id: str | None = None, **fields: object
) -> Mapping[str, Any]:
    """What the controller that holds the root (``held``) makes of it.

    Raises:
        AskedInVain: it could not do it.
        ControllerGone: it is gone before it answered.
        QuiesceError: it could not be asked.
    """
    answer = await Asker(config.root).ask(kind, request_id or new_request_id(), **fields)
    if not answer.ok:
        raise AskedInVain(answer, held)
    return answer.result
