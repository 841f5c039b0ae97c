"""What one run has asked of a participant and been told that it did. Ids, attempts and directories are letters here."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

__all__ = ["Account"]


@dataclass(slots=True)
class Account:
    """The account of one run.

    Attributes:
        first_replies: the body of the first success of each operation, by (id, operation).
        written: which id was exported into a directory.
        restored: whether a restore has succeeded: a process takes one in its life.
        open_ids: ids that were asked to close something and are not known to be used up.
        used_up: wire ids whose resume has succeeded.
        receipts: what an agent reported of finished results, by attempt.
        acknowledged: attempts whose result was acknowledged.
        aborted: attempts that an abort_inflight has fenced.
        polled: the last prepare was incomplete, and nothing has ended that since.
    """

    first_replies: dict[tuple[Hashable, Hashable], object] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    restored: bool = False
    open_ids: list[str] = field(default_factory=list)
    used_up: set[str] = field(default_factory=set)
    receipts: dict[str, Mapping[str, object]] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    polled: bool = False
