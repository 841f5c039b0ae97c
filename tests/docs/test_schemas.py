"""The published schema of the journal is the one that the code reads and writes by."""

from __future__ import annotations

import json

import pytest
from support.house import ROOT

from quiesce.controller.journal_lines import journal_schema

pytestmark = pytest.mark.source

SCHEMA = ROOT / "docs" / "schemas" / "journal-1.schema.json"


def test_the_published_schema_of_the_journal_is_that_of_the_code() -> None:
    """``docs/schemas`` holds it word for word; every kind of line forbids unknown fields and has the version."""
    schema = journal_schema()
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    lines = [found for found in definitions.values() if "schema_version" in found.get("properties", {})]
    assert len(lines) >= 3
    assert [line["title"] for line in lines if line["additionalProperties"] is not False] == []
