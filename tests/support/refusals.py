"""What a test expects of a refusal."""

from __future__ import annotations

import pytest

from quiesce.participants.server.errors import ControlRefusal, RefusalCode


def refused(code: RefusalCode, text: str = ".") -> pytest.RaisesExc[ControlRefusal]:
    """The block must be refused with this code and say this (a regular expression)."""
    return pytest.RaisesExc(ControlRefusal, match=text, check=lambda error: error.code is code)
