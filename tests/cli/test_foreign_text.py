"""Nothing that a server says moves the cursor, colours the terminal, turns its text around, or has no end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import Command
from support.threaded import threaded
from support.workload import TOKEN
from typer.testing import CliRunner, Result

from quiesce.cli.main import app
from quiesce.cli.output import LINE_CHARS_MAX, LINES_MAX, emit_json, tell
from quiesce.participants import server
from quiesce.participants.server.answers import ASGIApp, Message, Receive, Scope, Send

HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\nquiesce: all is well\u202egnol\u2028\x7f\x00[bold]" + "x" * 30_000
JSON_CHARS_MAX = 400_000

Spoil = Callable[[int, dict[str, Any]], tuple[int, bytes]]


@pytest.fixture(autouse=True)
def _with_token(quiesce: Command) -> None:
    """The token of the workload is in the environment."""
    del quiesce


def shown(*arguments: str) -> Result:
    """The command as on a terminal that takes colours: nothing is taken out on the way."""
    return CliRunner().invoke(app, list(arguments), color=True)


def check_terminal(text: str) -> None:
    """What came of it can be shown: lines with an end, of characters that print."""
    odd = {character for character in text if not character.isprintable()} - {"\n"}
    assert odd == set(), (odd, text[:2000])
    assert "\nquiesce: all is well" not in text
    longest = max(len(line) for line in text.split("\n"))
    assert longest <= JSON_CHARS_MAX if text.startswith("{") else longest <= LINE_CHARS_MAX, longest


# ---- the one place


@given(st.text(st.characters(codec=None)) | st.text("\x1b\x9b\u202e\r\n\x07[m"))
def test_whatever_is_told_can_be_shown(text: str) -> None:
    """Of text, what does not print is blank; its own lines stay lines."""
    with capturing() as lines:
        tell(text)
    assert len(lines) == 1
    assert all(line.isprintable() for line in lines[0].split("\n"))
    assert lines[0].count("\n") == text.count("\n")
    assert all(a == b for a, b in zip(text, lines[0], strict=True) if a.isprintable())


@given(st.text(st.characters(codec=None, exclude_categories=["Cs"])))
def test_an_object_can_be_shown_and_says_the_same(text: str) -> None:
    """What does not print is escaped, so that nothing of it is lost."""
    with capturing() as lines:
        emit_json({text: [text, {"inner": text}]})
    assert lines[0].isprintable()
    assert json.loads(lines[0]) == {text: [text, {"inner": text}]}


def test_what_has_no_end_is_given_one() -> None:
    """Long lines and many of them."""
    with capturing() as lines:
        tell("x" * (LINE_CHARS_MAX * 3) + "\n" * (LINES_MAX * 3))
    assert max(len(line) for line in lines[0].split("\n")) == LINE_CHARS_MAX
    assert lines[0].count("\n") == LINES_MAX


@contextmanager
def capturing() -> Iterator[list[str]]:
    """What is printed meanwhile."""
    printed: list[str] = []

    def echo(text: str, **_more: object) -> None:
        printed.append(text)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("quiesce.cli.output.typer.echo", echo)
        yield printed


# ---- whole commands


def everywhere(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Every text of a value is hostile, and so is the name of a field more."""
    if isinstance(value, dict):
        return {**{name: everywhere(member) for name, member in value.items()}, HOSTILE: HOSTILE}
    if isinstance(value, list):
        return [everywhere(member) for member in value]
    return HOSTILE if isinstance(value, str) else value


def in_field(name: str) -> Spoil:
    """One field of whatever has it is hostile."""
    return lambda status, fields: (
        status,
        json.dumps({**fields, **({name: HOSTILE} if name in fields else {})}).encode(),
    )


def _refusals(status: int, fields: dict[str, Any]) -> tuple[int, bytes]:
    return status, json.dumps(fields if status == 200 else everywhere(fields)).encode()


def _resumes_refused(status: int, fields: dict[str, Any]) -> tuple[int, bytes]:
    if "released_waiters" in fields:
        return 409, json.dumps({"error": {"code": HOSTILE, "detail": HOSTILE}}).encode()
    return status, json.dumps(fields).encode()


def _crashes(status: int, fields: dict[str, Any]) -> tuple[int, bytes]:
    is_open = fields.get("phase") is not None
    return (status, json.dumps(fields).encode()) if is_open else (500, HOSTILE.encode())


def _later_name(status: int, fields: dict[str, Any]) -> tuple[int, bytes]:
    closed = fields.get("phase") not in {None, "idle"}
    return status, json.dumps({**fields, "name": HOSTILE} if closed else fields).encode()


SPOILS: dict[str, Spoil] = {
    "everything": lambda status, fields: (status, json.dumps(everywhere(fields)).encode()),
    "a field more": lambda status, fields: (status, json.dumps({**fields, HOSTILE: HOSTILE}).encode()),
    "its name": in_field("name"),
    "its name, later": _later_name,
    "who holds it": in_field("active_checkpoint_id"),
    "its phase": in_field("phase"),
    "its mode": in_field("checkpoint_mode"),
    "its features": lambda status, fields: (
        status,
        json.dumps({**fields, **({"features": [HOSTILE]} if "features" in fields else {})}).encode(),
    ),
    "the id of a status": in_field("checkpoint_id"),
    "the state of a reply": in_field("state"),
    "refusals": _refusals,
    "the refusal of a resume": _resumes_refused,
    "crashes": _crashes,
    "no JSON": lambda _status, _fields: (200, HOSTILE.encode()),
}
EACH = pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)


@EACH
def test_a_hostile_server_is_told_of_in_plain_text(spoil: Spoil, tmp_path: Path) -> None:
    """By discover, fuzz and replay, as text and as an object, on both outputs."""
    with hostile(spoil) as url:
        config = tmp_path / "quiesce.toml"
        config.write_text(f'root = "root"\n[deployment.main]\nparticipants = [{{ name = "p", url = "{url}" }}]\n')
        replays = tmp_path / "replays"
        fuzz = ("fuzz", url, "--rate=100000", "--calls=100", f"--replays={replays}", f"--junit={tmp_path / 'out.xml'}")
        results = [
            shown(*asked, *more) for asked in (("discover", f"--config={config}"), fuzz) for more in ((), ("--json",))
        ]
        for file in [*replays.iterdir()][:3] if replays.exists() else []:
            results += [shown("replay", str(file), url), shown("replay", str(file), url, "--json")]
    for result in results:
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        check_terminal(result.stdout)
        check_terminal(result.stderr)


def hostile(spoil: Spoil) -> AbstractContextManager[str]:
    """A policy of the kit whose replies are spoiled, over HTTP."""

    async def model(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}", "more_body": False})

    kit = server.mount_policy(model, ledger=server.ModelLedger("policy_model"), token=TOKEN)
    return threaded(_spoiled(kit, spoil))


def _spoiled(kit: ASGIApp, spoil: Spoil) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        started: list[Message] = []

        async def spoiling(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
                return
            try:
                fields = json.loads(message["body"])
            except ValueError:
                fields = {}
            status, body = spoil(started[0]["status"], fields)
            await send({**started[0], "status": status, "headers": [(b"content-type", b"application/json")]})
            await send({"type": "http.response.body", "body": body, "more_body": False})

        await kit(scope, receive, spoiling)

    return app
