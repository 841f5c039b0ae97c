"""The servers of a resolved NeMo Gym configuration: what the document says, before anybody is called.

A server stands three levels down: ``<server name>: {<component>: {<implementation>: {entrypoint, host, port, ...}}}``.
Everything else at the top level is settings. Not every entry with a component is a server, and neither Gym's own check
nor its list of started servers is the truth, so what is doubtful is said, and who is one in the end is decided by its
capabilities reply. Nothing is kept of the document but what a :class:`GymConfiguration` has: it holds keys in clear.

Sources: wire-protocol 1.1, 1.2, 7.2; docs/gym-configuration.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from quiesce.participants.capabilities import Component, InstanceRole
from quiesce.participants.gym_config_entries import Half, LeftOut, Placed, Unusable, entries_of, judged
from quiesce.participants.gym_config_interpolation import Interpolations, Unresolved
from quiesce.participants.gym_config_references import Reference, references_to
from quiesce.participants.gym_config_yaml import Document, Node, parse_document
from quiesce.participants.urls import check_base_url

__all__ = ["GymConfiguration", "GymServer", "read_gym_configuration"]

UPSTREAMS_MAX: Final = 10_000
URL_KEYS: Final = ("base_url", "openai_base_url")
ROLE_KEY: Final = "instance_role"
ROLE_LIKENESS: Final = 0.8
ROLE_KEYS_MAX: Final = 16
_STATED_ROLES: Final = tuple(role.value for role in InstanceRole)
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_ASKED: Final = frozenset(component.value for component in Component)


@dataclass(frozen=True, slots=True)
class GymServer:
    """One server, as the configuration has it.

    Attributes:
        name: its routing name, the top-level key.
        component: which kind of server it is, in Gym's words; a later Gym may have more kinds than we know.
        implementation: the folder of its code. It repeats, and it may equal the name of another server.
        host, port: where it listens. The host may be a wildcard or an empty text; a port of -1 was never allocated.
        num_workers: None where it is not stated, which means one.
        instance_role: as it is stated, proven to be nothing but text; None where it is not.
        upstream_key: the setting that names the endpoint which a model server forwards to; None where it has none.
        upstreams: that endpoint or these endpoints; empty where they are unknown.
        references: who names it.
        has_interpolated_port: Gym's own check denies such a server, and Gym starts it all the same.
        remarks: what is odd about it, each a sentence without a subject.
    """

    name: str
    component: str
    implementation: str
    host: str
    port: int
    num_workers: int | None = None
    instance_role: str | None = None
    upstream_key: str | None = None
    upstreams: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    has_interpolated_port: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def is_asked(self) -> bool:
        """Whether its component has a role in a checkpoint; an environment server has none."""
        return self.component in _ASKED


@dataclass(frozen=True, slots=True)
class GymConfiguration:
    """What a resolved configuration says about servers, all of it sorted by name.

    Attributes:
        source: what errors call it.
        servers: every server that has an address.
        left_out: entries with a component that are none.
        unusable: entries that may be running servers and cannot be told; each is a reason to refuse.
        policy_base_urls: the trainer's own policy endpoints; empty where they are unknown.
        head: host and port that the head server binds, where they are stated.
        default_host: the host that Gym fills in, where it is stated.
        notes: what could not be read and is not needed, each a sentence.
    """

    source: str
    servers: tuple[GymServer, ...]
    left_out: tuple[LeftOut, ...] = ()
    unusable: tuple[Unusable, ...] = ()
    policy_base_urls: tuple[str, ...] = ()
    head: tuple[str | None, int | None] = (None, None)
    default_host: str | None = None
    notes: tuple[str, ...] = ()


def read_gym_configuration(text: str, *, source: str) -> GymConfiguration:
    """Find the servers in a resolved configuration.

    Args:
        text: the YAML, or one JSON string that holds it.
        source: what errors call it.

    Raises:
        ConfigurationError: the text is none (see :func:`~quiesce.participants.gym_config_yaml.parse_document`).
            No error repeats a value of it.
    """
    document = parse_document(text, source=source)
    return _Reader(document, source, Interpolations(document)).read()


@dataclass(slots=True)
class _Reader:
    """Reads one document and collects what is odd."""

    document: Document
    source: str
    interpolations: Interpolations
    notes: list[str] = field(default_factory=list)

    def read(self) -> GymConfiguration:
        entries = list(entries_of(self.document))
        references = references_to(entries)
        servers: list[GymServer] = []
        left_out: list[LeftOut] = []
        unusable: list[Unusable] = []
        for entry in entries:
            match judged(entry, self.interpolations):
                case Placed() as placed:
                    servers.append(self._server(placed, references.get((placed.half.component, entry.name), ())))
                case LeftOut() as reason:
                    left_out.append(reason)
                case Unusable() as doubt if _ASKED.isdisjoint(entry.components):
                    left_out.append(LeftOut(entry.name, f"cannot be used: {doubt.problem}"))
                case Unusable() as doubt:
                    unusable.append(doubt)
        return GymConfiguration(
            source=self.source,
            servers=tuple(servers),
            left_out=tuple(left_out),
            unusable=tuple(unusable),
            policy_base_urls=self._endpoints("policy_base_url", self.document.get("policy_base_url")),
            head=self._head(),
            default_host=_text(self._quietly(self.document.get("default_host"))),
            notes=tuple(self.notes),
        )

    def _server(self, placed: Placed, references: tuple[Reference, ...]) -> GymServer:
        half = placed.half
        is_model = half.component == Component.MODEL.value
        url_key = next((key for key in URL_KEYS if half.settings.get(key) is not None), None) if is_model else None
        return GymServer(
            name=half.server,
            component=half.component,
            implementation=half.implementation,
            host=placed.host,
            port=placed.port,
            num_workers=self._workers(half),
            instance_role=self._role(half),
            upstream_key=url_key,
            upstreams=self._endpoints(half.path(url_key), half.settings[url_key]) if url_key else (),
            references=references,
            has_interpolated_port=placed.has_interpolated_port,
            remarks=placed.remarks,
        )

    def _workers(self, half: Half) -> int | None:
        path = half.path("num_workers")
        workers = self._known(path, half.settings.get("num_workers"))
        if workers is None or (isinstance(workers, int) and not isinstance(workers, bool)):
            return workers
        if isinstance(workers, str) and _COUNT.fullmatch(workers):
            return int(workers)
        self.notes.append(f"{path} is no whole number; its capabilities will say how many workers it has")
        return None

    def _role(self, half: Half) -> str | None:
        stated = self._known(half.path(ROLE_KEY), half.settings.get(ROLE_KEY))
        if ROLE_KEY not in half.settings:
            candidates = [key for key in half.settings if "role" in key.lower()][:ROLE_KEYS_MAX]
            near = get_close_matches(ROLE_KEY, candidates, n=1, cutoff=ROLE_LIKENESS)
            if near:
                self.notes.append(f"{half.path(near[0])} is no setting; {ROLE_KEY} is probably meant")
        elif half.component != Component.MODEL.value:
            self.notes.append(f"{half.path(ROLE_KEY)} is stated, but only model servers have one")
        elif stated is not None and stated not in _STATED_ROLES:
            self.notes.append(f"{half.path(ROLE_KEY)} is neither 'policy' nor 'auxiliary', and so it states nothing")
        return stated if isinstance(stated, str) and stated in _STATED_ROLES else None

    def _endpoints(self, path: str, node: Node) -> tuple[str, ...]:
        """The usable URLs of a setting that holds one or a list; all or none, since a part would compare wrongly."""
        whole = self._known(path, node)
        urls = [] if whole is None else [whole] if isinstance(whole, str) else whole
        if not isinstance(urls, Sequence) or len(urls) > UPSTREAMS_MAX:
            self.notes.append(f"{path} is neither a URL nor a list of URLs, so it is not compared")
            return ()
        found = [self._endpoint(path, url) for url in urls]
        return tuple(url for url in found if url) if all(found) else ()

    def _endpoint(self, path: str, node: Node) -> str:
        """A usable URL, or an empty text and a note."""
        url = self._known(path, node)
        if url is None:
            return ""
        try:
            return check_base_url(url if isinstance(url, str) else "")
        except ValueError:
            # its text would quote the URL, which may carry a key
            self.notes.append(f"{path} is no plain URL (it is not repeated here), so it is not compared")
            return ""

    def _head(self) -> tuple[str | None, int | None]:
        head = self.document.get("head_server")
        if not isinstance(head, Mapping):
            return None, None
        port = self._quietly(head.get("port"))
        return _text(self._quietly(head.get("host"))), port if isinstance(port, int) else None

    def _known(self, path: str, node: Node) -> Node:
        """What a setting resolves to; None and a note where that cannot be known."""
        try:
            return self.interpolations.value(node)
        except Unresolved as reason:
            self.notes.append(f"{path} {reason}; it is left out of account")
            return None

    def _quietly(self, node: Node) -> Node:
        try:
            return self.interpolations.value(node)
        except Unresolved:
            return None


def _text(node: Node) -> str | None:
    return node if isinstance(node, str) and node else None
