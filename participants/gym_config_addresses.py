"""Where the servers of a resolved NeMo Gym configuration can be reached from here, and what speaks against it.

A host may be a wildcard, which is an address to bind and not one to connect to; loopback, which is useless from another
machine; and two entries may have one address. All of it is found before anybody is called.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from re import compile as pattern
from typing import Final

from quiesce.participants.excerpts import escaped
from quiesce.participants.gym_config import GymConfiguration, GymServer
from quiesce.participants.gym_config_yaml import key_path
from quiesce.participants.urls import check_base_url

__all__ = ["Located", "is_loopback", "is_wildcard", "located"]

PORT_MAX: Final = 65_535
UNALLOCATED: Final = -1
LOOPBACK: Final = "127.0.0.1"

_HOST_NAME: Final = pattern(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_.])?")


@dataclass(frozen=True, slots=True)
class Located:
    """Servers with the URL of each, and what was noticed.

    Attributes:
        urls: the base URL of each server's control routes, by server name; all of them only without problems.
        problems: why this configuration cannot be used from here, each a sentence.
        notes: what was assumed, each a sentence.
    """

    urls: dict[str, str]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def is_wildcard(host: str) -> bool:
    """Whether ``host`` means every address of a machine."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == "*"


def is_loopback(host: str) -> bool:
    """Whether ``host`` means the machine itself, whichever it is."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def located(configuration: GymConfiguration, *, head_host: str | None) -> Located:
    """Every server's URL; ``head_host`` is the host at which the head server was asked, None for a file."""
    return _Locating(configuration, head_host).run()


class _Locating:
    def __init__(self, configuration: GymConfiguration, head_host: str | None) -> None:
        self._configuration = configuration
        self._servers = configuration.servers
        self._head_host = head_host
        self._connected: dict[str, str] = {}
        self._problems: list[str] = []
        self._notes: list[str] = []

    def run(self) -> Located:
        urls = {server.name: url for server in self._servers if (url := self._url(server))}
        self._problems += _shared(self._servers, self._connected)
        return Located(urls, tuple(self._problems), tuple(self._notes))

    def _url(self, server: GymServer) -> str | None:
        """The URL, or None and a problem where the server would be asked."""
        host, problem = self._host(server)
        url = f"http://{_in_url(host)}:{server.port}"
        problem = problem or _port_problem(server) or _url_problem(server, url)
        if problem:
            if server.is_asked:
                self._problems.append(problem)
            return None
        self._connected[server.name] = host
        return url

    def _host(self, server: GymServer) -> tuple[str, str]:
        """What to connect to, or an empty text and a problem."""
        where = f"{_path(server)}.host"
        host = server.host
        if not host or is_wildcard(host):
            is_what = f"is {host}, which is an address to bind" if host else "is not stated"
            host, because = self._fallback(by_default=not host)
            if not host:
                return "", (
                    f"{where} {is_what}, and nothing says what to connect to: ask the head server (gym_head), or list "
                    "the server under participants"
                )
            if server.is_asked:
                self._notes.append(f"{where} {is_what}: {host} is asked, {because}")
        if not _is_host(host):
            return "", f"{where} is no host name and no IP address"
        if self._head_host is not None and is_loopback(host) and not is_loopback(self._head_host):
            return "", (
                f"{where} is {host}, which from here is this machine and not the head server's "
                f"({escaped(self._head_host)}): set default_host (or use_absolute_ip: true) in Gym; if Gym runs on "
                "this machine, write gym_head with 127.0.0.1"
            )
        return host, ""

    def _fallback(self, *, by_default: bool) -> tuple[str, str]:
        """What to connect to in place of a wildcard or of a host that is not stated, and why; or empty texts."""
        default = (self._configuration.default_host, "which is the configuration's default_host")
        candidates = [
            (self._head_host, "where the head server is"),
            (self._configuration.head[0], "where the configuration has its head server"),
        ]
        for host, because in [default, *candidates] if by_default else [*candidates, default]:
            if host is not None and _is_host(host) and not is_wildcard(host):
                return host, because
        return "", ""


def _port_problem(server: GymServer) -> str:
    where = f"{_path(server)}.port"
    if server.port == UNALLOCATED:
        return (
            f"{where} is -1: none was allocated, as where Gym has only inspected the configuration (offline); "
            "take it from the process that starts the servers (gym_head)"
        )
    return "" if 1 <= server.port <= PORT_MAX else f"{where} is not between 1 and {PORT_MAX}"


def _url_problem(server: GymServer, url: str) -> str:
    """What the shared rules for base URLs have against it, which is nothing where its parts are in order."""
    try:
        check_base_url(url)
    except ValueError:
        return f"{_path(server)} has an address that makes no URL"
    return ""


def _shared(servers: Sequence[GymServer], connected: Mapping[str, str]) -> Iterator[str]:
    """A problem for each set of servers that have one address; a wildcard has the loopback address too."""
    names: dict[tuple[str, int], set[str]] = defaultdict(set)
    for server in servers:
        host = connected.get(server.name)
        for each in () if host is None else {host, LOOPBACK} if is_wildcard(server.host) else {host}:
            names[LOOPBACK if is_loopback(each) else each.lower().strip("[]"), server.port].add(server.name)
    told: set[frozenset[str]] = set()
    for (host, port), sharing in names.items():
        if len(sharing) > 1 and frozenset(sharing) not in told:
            told.add(frozenset(sharing))
            who = " and ".join(key_path([name]) for name in sorted(sharing))
            yield f"{who} have the same address {host}:{port}: give each server a port of its own"


def _is_host(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return _HOST_NAME.fullmatch(host) is not None
    return True


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _path(server: GymServer) -> str:
    return key_path([server.name, server.component, server.implementation])
