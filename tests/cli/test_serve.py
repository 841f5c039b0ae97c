"""``quiesce serve`` in a process of its own: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from quiesce.cli.serve import _listening
from quiesce.participants.control_token import TOKEN_VARIABLES

TOKEN = "secret-of-the-test"
CALL = b"POST /v1/responses HTTP/1.1\r\nhost: policy\r\ncontent-length: 99\r\nexpect: 100-continue\r\n\r\n"


@contextmanager
def served(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A server that is ended, by its pid, whatever the test does."""
    environment = {name: value for name, value in os.environ.items() if name not in TOKEN_VARIABLES} | variables
    child = subprocess.Popen(
        [sys.executable, "-m", "quiesce.cli.main", "serve", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


def announced(child: subprocess.Popen[str]) -> dict[str, Any]:  # Any: a JSON object
    """The first line of a server."""
    assert child.stdout is not None
    found: dict[str, Any] = json.loads(child.stdout.readline())
    return found


def test_a_server_says_where_it_is_and_ends_well() -> None:
    """Its first line is JSON with the URL at which it serves; a signal ends it with 0 and in silence, work or not."""
    options = ("--port", "0", "--name", "my_policy", "--latency-s", "3600")
    with served("policy", *options, **{TOKEN_VARIABLES[1]: TOKEN}) as child:
        line = announced(child)
        assert (line["role"], line["name"], line["pid"]) == ("policy", "my_policy", child.pid)
        capabilities = httpx.get(f"{line['url']}/ng-control/v1/capabilities", timeout=60).json()
        assert (capabilities["name"], capabilities["checkpoint_mode"]) == ("my_policy", "export_restore")
        with socket.create_connection(("127.0.0.1", int(line["url"].rpartition(":")[2]))) as caller:
            caller.sendall(CALL)
            assert caller.recv(100).startswith(b"HTTP/1.1 100 Continue")  # the server reads the body: it is at work
            child.send_signal(signal.SIGTERM)
            output, errors = child.communicate(timeout=60)
    assert child.returncode == 0
    assert output == ""
    assert TOKEN not in errors
    assert "Traceback" not in errors


def test_a_server_ends_with_whoever_started_it() -> None:
    """With ``--until-eof`` the end of standard input is the end of the server."""
    with served("resources", "--until-eof", "--token-variable", "MY_TOKEN", MY_TOKEN=TOKEN) as child:
        announced(child)
        assert child.stdin is not None
        child.stdin.close()
        child.stdin = None  # so that nobody writes to it again
        assert child.wait(timeout=60) == 0


def test_a_server_without_token_takes_part_in_nothing() -> None:
    """It says so on standard error and in its capabilities; another one on its port is wrong usage."""
    with served("auxiliary") as child:
        url = announced(child)["url"]
        assert httpx.get(f"{url}/ng-control/v1/capabilities", timeout=60).json()["checkpoint_mode"] == "stateless"
        port = str(url).rpartition(":")[2]
        with served("auxiliary", "--port", port) as other:
            errors = other.communicate(timeout=60)[1]
        assert other.returncode == 2
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in errors
        child.send_signal(signal.SIGINT)
        errors = child.communicate(timeout=60)[1]
    assert child.returncode == 0
    assert "takes part in no checkpoint" in errors


def test_a_reply_waits_for_no_acknowledgement() -> None:
    """Head and body of a reply are two writes: without TCP_NODELAY each call would last as long as a delayed ACK."""
    with _listening(0, None) as listening:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_leased_server_opens_by_itself() -> None:
    """Held by somebody who is gone it opens, and refuses that id; a lease that cannot be is wrong usage."""
    with served("resources", "--lease", "0.2", **{TOKEN_VARIABLES[0]: TOKEN}) as child:
        control = f"{announced(child)['url']}/ng-control/v1"
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert "quiesce_lease_v1" in httpx.get(f"{control}/capabilities", timeout=60).json()["features"]
        held: dict[str, object] = {}
        statuses: list[int] = []
        for ahead_s in (0.2, 2.0, 20.0):  # on a busy machine a call may come after a deadline that is near
            held = {"checkpoint_id": "x", "deadline_ts": time.time() + ahead_s}
            closed = httpx.post(f"{control}/resources-checkpoint/prepare", json=held, headers=bearer, timeout=60)
            statuses.append(closed.status_code)
            if closed.status_code == 200:
                break
        assert statuses[-1] == 200
        while httpx.get(f"{control}/capabilities", timeout=60).json()["phase"] != "idle":
            pass
        late = httpx.post(f"{control}/resources-checkpoint/prepare", json=held, headers=bearer, timeout=60)
        assert late.json()["error"]["code"] == "stale_checkpoint"
    for wrong in (
        ("resources", "--lease", "0"),
        ("auxiliary", "--lease", "5"),
        ("policy", "--lease", "5", "--fence", "gym_a_single"),
    ):
        with served(*wrong) as child:
            assert "lease" in child.communicate(timeout=60)[1]
        assert child.returncode == 2
