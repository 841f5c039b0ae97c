"""Tables in the pages that repeat what the program knows are what the program knows."""

from __future__ import annotations

import re

import pytest
from support.house import ROOT
from support.proof_page import bounds_table, reduced_table, sweeps_table, verdicts_table
from support.routes_page import routes_table
from support.settings_page import overridable, settings_tables
from support.sweeps import SWEPT, setups_of

from quiesce.cli.main import COMMANDS
from quiesce.controller.config import Config
from quiesce.participants.server import RefusalCode
from quiesce.transport import TOKEN_VARIABLES

_COMMAND = re.compile(r"^\| `quiesce ([a-z]+)", re.MULTILINE)


def page(name: str) -> str:
    """The text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/guide/operate.md"])
def test_every_command_is_told_of(name: str) -> None:
    """The table of commands has each of them once, in the order of the help text, and no other."""
    assert tuple(_COMMAND.findall(page(name))) == COMMANDS


def test_the_proof_counts_what_is_pinned() -> None:
    """The page on the proof holds the tables that the pinned searches make (python -m support.proof_page)."""
    text = page("docs/proof.md")
    for table in (bounds_table(), verdicts_table(), sweeps_table(), reduced_table()):
        assert table in text
    for kind in ("two, pairs", "three"):
        assert SWEPT[kind].cuts + SWEPT[kind].restores == SWEPT[kind].searches == len(list(setups_of(kind)))


def test_every_setting_is_told_of() -> None:
    """The page on the configuration holds the tables that the settings make (python -m support.settings_page)."""
    assert settings_tables() in page("docs/configuration.md")
    assert set(overridable()) == set(Config.model_fields) - {"deployment"}


def test_every_route_is_told_of() -> None:
    """The page on the wire holds the table that the routes make (python -m support.routes_page)."""
    assert routes_table() in page("docs/wire.md")


def test_every_refusal_is_told_of() -> None:
    """The page on the wire names each code that the kit sends, and the variables of the token in their order."""
    text = page("docs/wire.md")
    inside = {"worker_registration_rejected"}  # said by a coordinator to its workers, never to a controller
    assert [code.value for code in RefusalCode if f"`{code.value}`" not in text and code.value not in inside] == []
    assert re.findall(r"^\d\. .*`(NEMO_GYM_\w+)`", text, re.MULTILINE) == list(TOKEN_VARIABLES)
