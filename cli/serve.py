"""``quiesce serve``: one participant server of the kit, with a small real workload, on this machine's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic import AnyHttpUrl, TypeAdapter, ValidationError

from quiesce.cli.output import ExitCode, fail
from quiesce.cli.running import run
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.errors import ConfigurationError

if TYPE_CHECKING:
    import uvicorn

    from quiesce.cli.workload import ServerSettings

__all__ = ["ServedFence", "register"]

HOST: Final = "127.0.0.1"
BACKLOG: Final = 1024
GRACE_S: Final = 2
LATENCY_S_MAX: Final = 3600.0
WORKERS_MAX: Final = 64
_HTTP_URL: Final = TypeAdapter(AnyHttpUrl)


class ServedFence(StrEnum):
    """How the fence of a served participant behaves."""

    STRICT = FenceVariant.STRICT.value
    GYM_A_SINGLE = FenceVariant.GYM_A_SINGLE.value
    GYM_A_COORDINATOR = FenceVariant.GYM_A_COORDINATOR.value


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("serve")(_serve)


def _serve(  # noqa: PLR0913 - one parameter an option
    role: Annotated[Role, typer.Argument(help="What the server is.")],
    *,
    port: Annotated[int, typer.Option(help="Where to listen; 0 takes a free port.", min=0, max=65535)] = 0,
    name: Annotated[str, typer.Option(help="The server's own name (by default that of its role).")] = "",
    fence: Annotated[
        ServedFence,
        typer.Option(
            help="strict: the kit's own; the others: as recorded servers behave, behind a coordinator or not."
        ),
    ] = ServedFence.STRICT,
    workers: Annotated[
        int, typer.Option(help="policy with --fence gym_a_coordinator: how many workers.", min=1, max=WORKERS_MAX)
    ] = 1,
    upstream: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=URL", help="A server that this one calls: policy, auxiliary, resources."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="policy: keep the lineage in this folder.", file_okay=False)
    ] = None,
    expect_restore: Annotated[
        bool, typer.Option("--expect-restore", help="resources: serve nothing before a restore.")
    ] = False,
    lease: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="policy, agent, resources: open by itself so long after the controller was last heard of.",
        ),
    ] = None,
    latency_s: Annotated[
        float | None,
        typer.Option(help="How long one call takes (agent: the pause before a turn).", min=0, max=LATENCY_S_MAX),
    ] = None,
    token_variable: Annotated[
        str | None, typer.Option(help=f"The variable that holds the control token (by default {TOKEN_VARIABLES[0]}).")
    ] = None,
    inherited: Annotated[
        int | None, typer.Option("--fd", help="Serve on a socket that is open and listens.", hidden=True, min=0)
    ] = None,
    until_eof: Annotated[bool, typer.Option("--until-eof", help="End with standard input.", hidden=True)] = False,
) -> None:
    """Run one participant server until it is interrupted. Its first line of output is a JSON object with its URL."""
    try:
        from quiesce.cli.workload import ServerSettings  # noqa: PLC0415 - it needs an extra, which may be missing
    except ModuleNotFoundError as error:
        fail(f"`quiesce serve` needs {error.name}: pip install 'quiesce[server]'", ExitCode.USAGE)
    try:
        settings = ServerSettings(
            role=role,
            name=name,
            token=_token(token_variable),
            fence=FenceVariant(fence.value),
            workers=workers,
            latency_s=latency_s,
            upstreams=_upstreams(upstream or []),
            ledger=ledger,
            expects_restore=expect_restore,
            lease_s=lease,
        )
        server, listening = _prepared(settings), _listening(port, inherited)
    except ConfigurationError as error:
        fail(str(error), ExitCode.USAGE)
    if settings.token is None:
        typer.echo(f"quiesce: no control token is set ({TOKEN_VARIABLES[0]}): it takes part in no checkpoint", err=True)
    run(lambda: _run(server, listening, settings, until_eof=until_eof), as_json=False)


def _token(variable: str | None) -> str | None:
    if variable is not None:
        if not os.environ.get(variable):
            raise ConfigurationError(f"the token variable {variable} is not set; export it or name another")
        return os.environ[variable]
    return next((os.environ[name] for name in TOKEN_VARIABLES if os.environ.get(name)), None)


def _upstreams(given: list[str]) -> Mapping[Role, tuple[str, ...]]:
    found: dict[Role, tuple[str, ...]] = {}
    for one in given:
        name, separator, url = one.partition("=")
        if not separator or name not in set(Role):
            raise ConfigurationError(
                f"--upstream {one}: write it as ROLE=URL, for example policy=http://127.0.0.1:8100"
            )
        if not _is_base_url(url):
            raise ConfigurationError(f"--upstream {one}: {url!r} is no http(s) URL of a server")
        found[Role(name)] = (*found.get(Role(name), ()), url)
    return found


def _is_base_url(text: str) -> bool:
    try:
        url = _HTTP_URL.validate_python(text)
    except ValidationError:
        return False
    return not url.query and not url.fragment


def _prepared(settings: ServerSettings) -> uvicorn.Server:
    import uvicorn  # noqa: PLC0415 - as above

    from quiesce.cli.workload import build_server  # noqa: PLC0415 - as above

    app = build_server(settings)
    return uvicorn.Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, ws="none", lifespan="on", timeout_graceful_shutdown=GRACE_S
        )
    )


def _listening(port: int, inherited: int | None) -> socket.socket:
    try:
        listening = (
            socket.create_server((HOST, port), backlog=BACKLOG)
            if inherited is None
            else socket.socket(fileno=inherited)
        )
        # accepted connections inherit it; a socket of create_server names no protocol, so that asyncio would not set
        # it, and each reply (head and body) would wait 40 ms for an acknowledgement
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"cannot listen on {HOST}:{port}: {reason}; choose another --port") from error
    return listening


async def _run(server: uvicorn.Server, listening: socket.socket, settings: ServerSettings, *, until_eof: bool) -> None:
    """Serve until a signal cancels this, which is how a server is meant to end."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listening])
    if server.should_exit:
        raise QuiesceError(f"the {settings.role.value} server could not start")
    if until_eof:
        _end_with_input(server)
    url = f"http://{HOST}:{listening.getsockname()[1]}"
    typer.echo(json.dumps({**settings.announced(url), "pid": os.getpid()}))
    sys.stdout.flush()
    with contextlib.suppress(asyncio.CancelledError):
        await server.main_loop()
    logging.getLogger("uvicorn.error").disabled = True  # calls that the end cuts off are no faults
    await server.shutdown(sockets=[listening])


def _end_with_input(server: uvicorn.Server) -> None:
    """End the server once whoever started it is gone and its end of the pipe with it."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            server.should_exit = True

    loop.add_reader(sys.stdin.fileno(), read)
