"""Generation A behind the dialect port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Phase, Role
from quiesce.participants.dialects.base import CallSpec, Reading, WireCall
from quiesce.participants.dialects.gym_a.calls import NAME, build_call, build_progress_call
from quiesce.participants.dialects.gym_a.probing import build_probes, read_probe_reply
from quiesce.participants.dialects.gym_a.readings import read_progress_reply, read_reply

__all__ = ["GymA"]


@dataclass(frozen=True, slots=True)
class GymA:
    """The role-specific routes of generation A (wire-protocol part one). Stateless; one serves all participants."""

    name: str = NAME

    def call(self, spec: CallSpec) -> WireCall:
        return build_call(spec)

    def read(self, spec: CallSpec, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
        return read_reply(spec, status, headers, body)

    def progress_call(self, spec: CallSpec) -> WireCall:
        return build_progress_call(spec)

    def read_progress(self, spec: CallSpec, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
        return read_progress_reply(spec, status, headers, body)

    def probes(self, role: Role, phases: Sequence[Phase]) -> tuple[WireCall, ...]:
        return build_probes(role, phases)

    def read_probe(
        self, probe: WireCall, status: int, headers: Mapping[str, str], body: bytes, *, participant: str
    ) -> QuiesceError | None:
        return read_probe_reply(probe, status, headers, body, participant)
