"""Which top-level entries of a resolved NeMo Gym configuration are servers, and why the others are not.

Accepted is one component, one implementation, an entrypoint and an address. Where one of two components alone has an
address, that one is the server: Gym starts it. What may run and cannot be told is refused, since nobody would pause
it; what has no address is left out with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quiesce.participants.capabilities import Component
from quiesce.participants.gym_config_interpolation import Interpolations, Unresolved, is_interpolated
from quiesce.participants.gym_config_yaml import Document, Node, key_path

__all__ = ["DIRECTIVES", "ENVIRONMENT", "Entry", "Half", "LeftOut", "Placed", "Unusable", "entries_of", "judged"]

ENVIRONMENT: Final = "environment_servers"
"""The fourth component, from Gym 0.7.0 on; it has no role in wire generation A."""
DIRECTIVES: Final = ("_copy", "_inherit_from", "_delete_key")
"""Directives of Gym's parser, which takes them out; they stay in what it did not complete."""

NAMED_MAX: Final = 4
"""Implementations that one sentence names."""

_COMPONENTS: Final = (*(component.value for component in Component), ENVIRONMENT)
_PORT: Final = re.compile(r"\s*[+-]?[0-9]{1,9}\s*")


@dataclass(frozen=True, slots=True)
class Half:
    """One implementation of an entry, with its settings."""

    server: str
    component: str
    implementation: str
    settings: Mapping[str, Node]

    @property
    def has_entrypoint(self) -> bool:
        entrypoint = self.settings.get("entrypoint")
        return isinstance(entrypoint, str) and bool(entrypoint)

    @property
    def has_port(self) -> bool:
        """Whether a port is written down. Gym treats a null, a 0 and an absent one alike: none."""
        port = self.settings.get("port")
        return port not in (None, "", "0") and (port != 0 or isinstance(port, bool))

    def path(self, *keys: str) -> str:
        """The path of keys to it, or to a setting of it."""
        return key_path([self.server, self.component, self.implementation, *keys])


@dataclass(frozen=True, slots=True)
class Entry:
    """A top-level entry that names a component.

    Attributes:
        name: the server's name.
        components: the components that it names.
        halves: the implementations below them; none for a component without a mapping.
        directive: a directive of Gym's parser that was left in it, or an empty text.
        first_key: its first key.
    """

    name: str
    components: tuple[str, ...]
    halves: tuple[Half, ...]
    directive: str
    first_key: str


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry that is a server.

    Attributes:
        half: what it is.
        host, port: as they resolve; the host may be a wildcard or an empty text (a copy of the configuration may lack
            it), the port -1 or out of range.
        has_interpolated_port: whether the port is written as an interpolation, which Gym's own check denies.
        remarks: what is odd about it, each a sentence without a subject.
    """

    half: Half
    host: str
    port: int
    has_interpolated_port: bool
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry with a component that is no server.

    Attributes:
        name: of the entry.
        reason: why not, a sentence without a subject.
        is_leftover: a mere leftover of overrides, which is no mistake.
    """

    name: str
    reason: str
    is_leftover: bool = False


@dataclass(frozen=True, slots=True)
class Unusable:
    """An entry that may be a running server and cannot be told.

    Attributes:
        name: of the entry.
        problem: a sentence with the path of keys, without any value.
    """

    name: str
    problem: str


class _Bad(Exception):
    """An address cannot be used; the message is the sentence."""


def entries_of(document: Document) -> Iterator[Entry]:
    """Every entry that names a component, sorted by name: the order of the document is that of merging."""
    for name in sorted(document):
        value = document[name]
        if isinstance(value, Mapping):
            components = tuple(key for key in value if key in _COMPONENTS) or _unknown_component(value)
            if components:
                yield _entry(name, value, components)


def judged(entry: Entry, interpolations: Interpolations) -> Placed | LeftOut | Unusable:
    """What an entry is."""
    if not entry.halves:
        return LeftOut(entry.name, f"has nothing below {_named(entry.components)}", is_leftover=True)
    startable = [half for half in entry.halves if half.has_entrypoint]
    if not startable:
        left = f" and {entry.directive} was left over" if entry.directive else ""
        reason = f"has no entrypoint{left}: an override whose base was not loaded"
        return LeftOut(entry.name, reason, is_leftover=True)
    addressed = [half for half in startable if half.has_port]
    if not addressed:
        return LeftOut(entry.name, _without_address(startable))
    if len(addressed) > 1 or sum(half.component == addressed[0].component for half in startable) > 1:
        return Unusable(entry.name, _several(entry, startable))
    try:
        return _placed(entry, addressed[0], interpolations)
    except _Bad as bad:
        return Unusable(entry.name, str(bad))


def _unknown_component(value: Mapping[str, Node]) -> tuple[str, ...]:
    """A component of a later Gym: one key, one implementation below it, and what makes a server below that."""
    if len(value) != 1:
        return ()
    [(component, implementations)] = value.items()
    if not isinstance(implementations, Mapping) or len(implementations) != 1:
        return ()
    [settings] = implementations.values()
    is_server = isinstance(settings, Mapping) and {"entrypoint", "host", "port"} <= settings.keys()
    return (component,) if is_server else ()


def _entry(name: str, value: Mapping[str, Node], components: tuple[str, ...]) -> Entry:
    halves = tuple(half for component in components for half in _halves(name, component, value[component]))
    keys = {*value, *(key for half in halves for key in half.settings)}
    return Entry(
        name=name,
        components=components,
        halves=halves,
        directive=next((directive for directive in DIRECTIVES if directive in keys), ""),
        first_key=next(iter(value)),
    )


def _halves(name: str, component: str, implementations: Node) -> Iterator[Half]:
    if isinstance(implementations, Mapping):
        for implementation, settings in implementations.items():
            if isinstance(settings, Mapping):
                yield Half(name, component, implementation, settings)


def _without_address(startable: Sequence[Half]) -> str:
    twice = len({half.component for half in startable}) < len(startable)
    what = "has two implementations under one component, and no port" if twice else "has no port"
    return (
        f"{what}: what Gym starts for it cannot be addressed. In the source of a configuration that is normal; the "
        "process that starts the servers fills it in"
    )


def _several(entry: Entry, startable: Sequence[Half]) -> str:
    several = _named([half.path() for half in startable[:NAMED_MAX]])
    return (
        f"{key_path([entry.name])} could be any of {several}: Gym starts one of them under this name, and which one "
        "cannot be told; keep one"
    )


def _placed(entry: Entry, half: Half, interpolations: Interpolations) -> Placed | LeftOut:
    host = _resolved(half, "host", interpolations)
    port = _port(half, _resolved(half, "port", interpolations))
    if port == 0:
        return LeftOut(entry.name, _without_address([half]))
    if not isinstance(host, str | None):
        raise _Bad(f"{half.path('host')} is no text; write the address that the server has")
    has_interpolated_port = is_interpolated(half.settings.get("port"))
    return Placed(half, (host or "").strip(), port, has_interpolated_port, _remarks(entry, half))


def _resolved(half: Half, key: str, interpolations: Interpolations) -> Node:
    try:
        return interpolations.value(half.settings.get(key))
    except Unresolved as reason:
        raise _Bad(f"{half.path(key)} {reason}: write it out there, or list the servers under participants") from None


def _port(half: Half, port: Node) -> int:
    if port is None or port == "":
        return 0
    if isinstance(port, bool) or not isinstance(port, int | str):
        raise _Bad(f"{half.path('port')} is no whole number")
    if isinstance(port, str) and not _PORT.fullmatch(port):
        raise _Bad(f"{half.path('port')} is a text that is no port number")
    return int(port)


def _remarks(entry: Entry, half: Half) -> tuple[str, ...]:
    remarks = []
    others = [component for component in entry.components if component != half.component]
    if others:
        remarks.append(f"also names {_named(others)}, without an address: only {half.component} is asked")
    if entry.first_key not in entry.components:
        # what is neither a component nor a word of Gym's own may be anything, a secret that lost its place as well
        first = entry.first_key if entry.first_key in DIRECTIVES else "another key (it is not repeated)"
        remarks.append(
            f"begins with {first}: Gym starts a server only where the component comes first, so it may not run"
        )
    if is_interpolated(half.settings.get("port")):
        remarks.append("has an interpolated port: Gym warns that it will not start such a server, and starts it")
    if entry.directive:
        remarks.append(f"still holds {entry.directive}: it may not have been completed")
    return tuple(remarks)


def _named(words: Iterable[str]) -> str:
    return " and ".join(words)
