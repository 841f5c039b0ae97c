"""Every parser, fuzzed with coverage as the guide. Run by hand, where atheris is installed; no dependency of ours.

    pip install atheris
    PYTHONPATH=tests python tests/fuzz/coverage_guided.py -max_total_time=60 FOLDER

``FOLDER`` keeps what was found to reach new code. The tests proper use hypothesis (``test_parsers.py``): atheris has
wheels for Linux only, and instruments a whole process.
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-untyped]  # not installed where types are checked

with atheris.instrument_imports(include=["quiesce"]):
    from support.parsers import PARSERS

    from quiesce.fsm.errors import QuiesceError

_ALL = list(PARSERS.values())


def once(content: bytes) -> None:
    """Give the content to the parser that its first byte chooses; anything but an error of ours is a finding."""
    if not content:
        return
    try:
        _ALL[content[0] % len(_ALL)](content[1:])
    except QuiesceError:
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, once)
    atheris.Fuzz()
