"""Which option of ``quiesce replay`` fits what is replayed. One that would be without effect is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Final

__all__ = ["FITS", "Way", "unfit"]


class Way(StrEnum):
    """What is replayed, and where; the value is how a refusal says it."""

    COUNTEREXAMPLE = "a counterexample of 'quiesce check'"
    IN_PROCESS = "a sequence of 'quiesce fuzz' without a URL"
    AT_URL = "a sequence of 'quiesce fuzz' at a URL"


_FUZZED: Final = frozenset({Way.IN_PROCESS, Way.AT_URL})
_LIVE: Final = frozenset({Way.AT_URL})
_CHECKED: Final = frozenset({Way.COUNTEREXAMPLE})

FITS: Final = {
    "url": ("a second argument (URL)", _FUZZED),
    "fence": ("--fence", frozenset({Way.IN_PROCESS})),
    "traffic": ("--traffic", _FUZZED),
    "checkpoint_dir": ("--checkpoint-dir", _LIVE),
    "allow_restore": ("--allow-restore", _LIVE),
    "live_work": ("--live-work", _LIVE),
    "token_variable": ("--token-variable", _LIVE),
    "as_pytest": ("--pytest", _CHECKED),
    "as_mermaid": ("--mermaid", _CHECKED),
    "as_json": ("--json", frozenset(Way)),
}
"""Parameter of the command to how it is written, and the ways that it has an effect on."""

_ALONE: Final = ("as_pytest", "as_mermaid", "as_json")
"""Each prints one thing and nothing else."""

_NEEDS: Final = {"allow_restore": ("checkpoint_dir", "restores load what was exported there")}
"""Parameter to another one without which it has no effect, and why."""


def unfit(given: Collection[str], way: Way) -> str:
    """Why these parameters, which were given, do not fit together or ``way``; empty where they do."""
    return next(_reasons(given, way), "")


def _reasons(given: Collection[str], way: Way) -> Iterator[str]:
    for name, (written, ways) in FITS.items():
        if name in given and way not in ways:
            others = " or ".join(other.value for other in Way if other in ways)
            yield f"{written} has no effect on {way.value}, which this is; it is for {others}"
    if len(alone := [FITS[name][0] for name in _ALONE if name in given]) > 1:
        yield f"{' and '.join(alone)} exclude each other: each prints one thing and nothing else; leave out all but one"
    for name, (needed, reason) in _NEEDS.items():
        if name in given and needed not in given:
            yield f"{FITS[name][0]} needs {FITS[needed][0]}: {reason}"
