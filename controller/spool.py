"""The request spool: how another program reaches the one controller that may act under a root.

Requests lie below ``.quiesce/requests/<epoch>/``, a folder for each tenure, so that nothing that was asked of a
controller which is gone is ever carried out by the next one. ``<request id>.request.json`` is what is asked,
``<request id>.answer.json`` what came of it. Both are written beside their place and renamed into it. Whatever in the
folder is not such a file, whole and of a known version, is ignored and named in the log.

The id of a request is the asker's own, so that asking twice is asking once (field cases F-50); it is remembered as
long as the tenure lasts.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, StrictInt, StrictStr, ValidationError

from quiesce.controller.errors import RequestConflict
from quiesce.controller.files import FileSystem, make_directories, remove_tree, storage_errors, write_durably
from quiesce.controller.root_layout import RootLayout
from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.identity import check_identity
from quiesce.participants.strict_json import NotStrictJson, parse
from quiesce.participants.validation import first_problems

__all__ = ["AskedAnswer", "AskedKind", "AskedRequest", "NotBelievable", "Spool", "spool_schemas"]

REQUEST_BYTES_MAX: Final = 256 << 10
ANSWER_BYTES_MAX: Final = 64 << 20
REQUEST_SUFFIX: Final = ".request.json"
ANSWER_SUFFIX: Final = ".answer.json"

M = TypeVar("M", bound=BaseModel)
Text = Annotated[StrictStr, Field(max_length=4096)]


class AskedKind(StrEnum):
    """What can be asked of a live controller."""

    CUT = "cut"
    ABORT = "abort"
    SETTLE = "settle"


class _Saved(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    request_id: Text


class AskedRequest(_Saved):
    """What is asked. ``host`` and ``pid`` say for people who asks; nothing is decided by them.

    ``label`` and ``metadata`` are a cut's; ``wire_id`` names what is to be aborted, or leaves it to what runs;
    ``give_up`` names participants (deployment/name) to whom nothing is owed any more once it is settled.
    """

    kind: AskedKind
    label: Text | None = None
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict)
    wire_id: Text | None = None
    give_up: tuple[Text, ...] = ()
    host: StrictStr
    pid: Annotated[StrictInt, Field(ge=0)]

    @classmethod
    def of_this_program(cls, kind: AskedKind, request_id: str, **fields: object) -> Self:
        """A request by this program.

        Raises:
            pydantic.ValidationError: a field cannot be used.
        """
        who = {"host": socket.gethostname(), "pid": os.getpid()}
        return cls.model_validate({"kind": kind, "request_id": request_id, **who, **fields})

    def asks_the_same(self, other: AskedRequest) -> bool:
        """Whether both ask for one thing, whoever does."""
        mine, others = (one.model_dump(exclude={"host", "pid"}) for one in (self, other))
        return mine == others


class AskedAnswer(_Saved):
    """What came of a request.

    ``result`` is what was asked for, as the command prints it. ``errors`` are the reasons why it did not come to
    that, each with its type; ``unproven`` says that somebody may still be closed, by name in them.
    """

    ok: StrictBool
    result: Mapping[str, JsonValue] = Field(default_factory=dict)
    errors: tuple[tuple[StrictStr, StrictStr], ...] = ()
    unproven: StrictBool = False


class NotBelievable(ValueError):
    """A file of the spool that is not what it should be, and why."""


class Spool:
    """The requests of one tenure, as files. All of its methods do file work."""

    def __init__(self, files: FileSystem, layout: RootLayout, epoch: int) -> None:
        self._files = files
        self._layout = layout
        self._folder = layout.requests / str(epoch)

    def prepare(self) -> None:
        """Make the folder, and remove those of tenures that are over.

        Raises:
            StorageFailed: it cannot be made. What cannot be removed does no harm.
        """
        with storage_errors("make the request spool", self._folder):
            make_directories(self._files, self._folder)
        for name in self._files.names(self._layout.requests):
            if name.isdecimal() and int(name) < int(self._folder.name):
                try:
                    remove_tree(self._files, self._layout.requests / name)
                except OSError:
                    continue

    def submit(self, request: AskedRequest) -> None:
        """Ask. Asked again with the same id, nothing is added.

        Raises:
            InvalidIdentity: the request's id may not become a file name.
            RequestConflict: under this id something else was asked.
            StorageFailed: it cannot be written, or no controller of this tenure looks there.
        """
        path = self._path(request.request_id, REQUEST_SUFFIX)
        with storage_errors("ask the controller", path):
            if self._files.status(self._folder) is None:
                raise OSError(errno.ENXIO, "the controller that holds the root takes no requests")
            if self._files.status(path) is None:
                write_durably(self._files, path, request.model_dump_json().encode())
        found = self.request(request.request_id)
        if not found.asks_the_same(request):
            raise RequestConflict(request.request_id, found.kind.value)

    def look(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Ids of the requests that have no answer yet, and names that are neither requests nor answers; both sorted.

        Raises:
            StorageFailed: the folder cannot be read.
        """
        with storage_errors("read the request spool", self._folder):
            names = frozenset(self._files.names(self._folder))
        asked = [name.removesuffix(REQUEST_SUFFIX) for name in names if name.endswith(REQUEST_SUFFIX)]
        waiting = [one for one in asked if f"{one}{ANSWER_SUFFIX}" not in names]
        known = (REQUEST_SUFFIX, ANSWER_SUFFIX)
        # what begins with a dot is still being written
        strangers = [name for name in names if not name.endswith(known) and not name.startswith(".")]
        return tuple(sorted(waiting)), tuple(sorted(strangers))

    def request(self, request_id: str) -> AskedRequest:
        """What was asked under an id.

        Raises:
            NotBelievable: the file is torn, of another kind or version, or says another id.
            StorageFailed: it cannot be read.
        """
        return self._read(request_id, REQUEST_SUFFIX, REQUEST_BYTES_MAX, AskedRequest)

    def answer(self, request_id: str) -> AskedAnswer | None:
        """What came of it; None while it is not there. Raises as :meth:`request`."""
        path = self._path(request_id, ANSWER_SUFFIX)
        with storage_errors("read the answer", path):
            if self._files.status(path) is None:
                return None
        return self._read(request_id, ANSWER_SUFFIX, ANSWER_BYTES_MAX, AskedAnswer)

    def reply(self, answer: AskedAnswer) -> None:
        """Write down what came of a request.

        Raises:
            StorageFailed: it cannot be written.
        """
        path = self._path(answer.request_id, ANSWER_SUFFIX)
        with storage_errors("answer a request", path):
            write_durably(self._files, path, answer.model_dump_json().encode())

    def _path(self, request_id: str, suffix: str) -> Path:
        return self._folder / f"{check_identity(request_id, field='request id')}{suffix}"

    def _read(self, request_id: str, suffix: str, limit: int, model: type[M]) -> M:
        try:
            path = self._path(request_id, suffix)
        except InvalidIdentity as error:
            raise NotBelievable(str(error)) from None
        with storage_errors("read the request spool", path):
            content = self._files.read(path, limit)
        try:
            parse(content)
            found = model.model_validate_json(content)
        except NotStrictJson as error:
            raise NotBelievable(str(error)) from None
        except ValidationError as error:
            raise NotBelievable(first_problems(error)) from None
        if getattr(found, "request_id", None) != request_id:
            raise NotBelievable("it says another request id than its name")
        return found


def spool_schemas() -> dict[str, dict[str, object]]:
    """The JSON Schemas of requests and answers, by the name under which they are published."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {
        "request-1": {**dialect, **AskedRequest.model_json_schema()},
        "answer-1": {**dialect, **AskedAnswer.model_json_schema()},
    }
