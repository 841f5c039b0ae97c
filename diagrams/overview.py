"""One whole cut at a glance: a lane for each kind of server, and in it what PHASES says happens to it, wave by wave.

Every wave is drawn equally wide, since this is about order and not about time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from quiesce.diagrams.svg import document, line, rectangle, text
from quiesce.fsm.tables.participant import ParticipantEvent
from quiesce.fsm.tables.phases import DrainMode, Milestone, PhasePlan, Wave, plan_for
from quiesce.fsm.vocabulary import Phase, Role

__all__ = ["overview_svg"]

TITLE: Final = "One cut: drained, paused, exported, published, resumed"

_LANES: Final[Mapping[Role, tuple[str, str, str]]] = {
    Role.POLICY: ("policy", "drains", "exports"),
    Role.AGENT: ("agents", "park", "export"),
    Role.RESOURCES: ("tools", "freeze", "export"),
    Role.AUXILIARY: ("judge", "", ""),
}
_LEFT, _TOP, _UNIT, _LANE, _BAR = 76.0, 62.0, 62.0, 34.0, 26.0
_RENAMING: Final = 1
"""How many units the rename takes that publishes."""
_COLORS: Final = {"serve": ("band", "faint"), "close": ("draining", "print"), "pause": ("paused", "page")}
_WRITING: Final = ("committed", "page")


def overview_svg() -> str:
    """The picture as one ``<svg>`` element, ending in a line break."""
    prepare, commit, resume = (
        plan_for(phase, DrainMode.OVERLAPPED) for phase in (Phase.PREPARE, Phase.COMMIT, Phase.RESUME)
    )
    exports = [wave for wave in commit.waves if wave.event is ParticipantEvent.EXPORT_DUE]
    closed_at = 1
    commit_at = closed_at + len(prepare.waves)
    published_at = commit_at + len(exports)
    resume_at = published_at + _RENAMING
    end = resume_at + len(resume.waves) + 1
    width, height = _LEFT + end * _UNIT + 16, _TOP + len(_LANES) * _LANE + 14
    parts = [rectangle(0, 0, width, height, "page"), text(16, 24, TITLE, size=15, bold=True)]
    for at, words in ((closed_at, "close"), (commit_at, "commit"), (published_at, "publish"), (resume_at, "resume")):
        parts += _mark(at, words, height)
    for number, role in enumerate(_LANES):
        y = _TOP + number * _LANE
        parts.append(text(16, y + 17, _LANES[role][0], size=12, bold=True))
        begins = _first(prepare.waves, role)
        if begins is None:
            parts.append(_stretch(0, end, y, "serves throughout", *_COLORS["serve"]))
            continue
        still = closed_at + _still(prepare, begins, role)
        writes = commit_at + (_first(exports, role) or 0)
        opens = resume_at + (_first(resume.waves, role) or 0)
        _, closing, writing = _LANES[role]
        parts += [
            _stretch(0, closed_at + begins, y, "serves", *_COLORS["serve"]),
            _stretch(closed_at + begins, still, y, closing, *_COLORS["close"]),
            _stretch(still, writes, y, "paused", *_COLORS["pause"]),
            _stretch(writes, writes + 1, y, writing, *_WRITING),
            _stretch(writes + 1, opens, y, "paused", *_COLORS["pause"]),
            _stretch(opens, end, y, "serves", *_COLORS["serve"]),
        ]
    return document(width, height, TITLE, parts)


def _first(waves: tuple[Wave, ...] | list[Wave], role: Role) -> int | None:
    return next((number for number, wave in enumerate(waves) if role in wave.roles), None)


def _still(plan: PhasePlan, begins: int, role: Role) -> int:
    """In which unit this role stands still: where a later wave waits for it, else at the end of the phase."""
    waiting = (number for number, wave in enumerate(plan.waves) if (role, Milestone.PAUSED) in wave.waits_for)
    return max(begins + 1, next(waiting, len(plan.waves)))


def _mark(at: int, words: str, height: float) -> Iterator[str]:
    x = _LEFT + at * _UNIT
    yield line(x, _TOP - 18, x, height - 8, "rule", dash="2 4")
    yield text(x + 4, _TOP - 10, words, size=11, fill="faint")


def _stretch(begin: int, end: int, y: float, words: str, fill: str, ink: str) -> str:
    if begin == end:
        return ""
    x, width = _LEFT + begin * _UNIT, (end - begin) * _UNIT
    box = rectangle(x + 1, y, width - 2, _BAR, fill, radius=4)
    return box + text(x + width / 2, y + 17, words, size=11, fill=ink, anchor="middle")
