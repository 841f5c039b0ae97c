"""Options that would be without effect are refused, so that nobody believes in one that was ignored."""

from __future__ import annotations

import pytest
from support.command import Command, last_object


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("recover", "--dry-run", "--retry"), "--dry-run only reads and --retry acts"),
        (("trace", "latest", "--all", "--format", "html"), "--all has no effect on html"),
        (("check", "--witnesses"), "--witnesses needs --counterexample-dir"),
        (("diagram", "--check", "--update"), "take one of them"),
        (("fuzz", "http://127.0.0.1:9", "--allow-restore"), "--allow-restore needs --checkpoint-dir"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_option_without_effect_is_refused(quiesce: Command, arguments: tuple[str, ...], says: str) -> None:
    """Before anything is read or done, with the reason, also as an object: exit 2."""
    result = quiesce(*arguments, "--json")
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert says in str(last_object(result)["error"])
