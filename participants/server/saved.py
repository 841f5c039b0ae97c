"""Reading a participant's part of a save back, proven, before anything of it is installed (wire-protocol 6.2, 6.7).

Every file is read once: what was verified is what is installed, whatever happens to the directory meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_reading import Source
from quiesce.participants.artefact_records import AgentManifest, ModelManifest, ResourcesManifest
from quiesce.participants.artefact_writing import sha256_hex
from quiesce.participants.artefacts import VerifiedExport, verify_export
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.layout import manifest_path, participant_folder
from quiesce.participants.replies import ExportReceipt
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.publication import ExportConflict
from quiesce.participants.server.storage import FilePort

__all__ = ["SavedExport", "SnapshotDirectory", "refusing"]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
SAVED_BYTES_MAX: Final = 4 << 30


class SnapshotDirectory:
    """Reads below one checkpoint directory and keeps what it has read, up to 4 GiB in all."""

    def __init__(self, files: FilePort, root: Path) -> None:
        self._files = files
        self._root = root
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0

    def read_bytes(self, relative_path: str, bytes_max: int) -> bytes:
        """As ``ArtefactReader`` asks. A path that leaves the directory through a link is not read."""
        content = self._kept.get(relative_path)
        if content is None:
            content = self._read(relative_path, bytes_max)
            self._kept[relative_path] = content
            self._kept_bytes += len(content)
        return content

    def _read(self, relative_path: str, bytes_max: int) -> bytes:
        path = self._root / relative_path
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._root)):
            raise OSError(errno.ELOOP, "leads out of the checkpoint directory", relative_path)
        return self._files.read(path, bytes_max=min(bytes_max, SAVED_BYTES_MAX - self._kept_bytes))


class SavedExport:
    """One participant's verified part of a save, with the bytes of its files.

    Raises, when made:
        SnapshotInvalid: there is no manifest, or anything below it is not what it says.
    """

    def __init__(self, files: FilePort, directory: Path, role: Role, name: str) -> None:
        self._folder = participant_folder(role, name)
        self._source = Source(name or role.value, SnapshotDirectory(files, directory))
        path = manifest_path(role, name)
        content = self._source.content(path)
        digest = sha256_hex(content)
        manifest, _ = self._source.manifest(path, *_MANIFESTS[role], digest)
        self.checkpoint_id: str = manifest.checkpoint_id
        """The id of the save, not of the restore."""
        self.verified: VerifiedExport = verify_export(
            participant=self._source.subject,
            role=role,
            participant_name=name,
            checkpoint_id=self.checkpoint_id,
            receipt=ExportReceipt(path, digest, None),
            reader=self._source.reader,
        )

    def content(self, name: str) -> bytes:
        """The verified bytes of a file in the participant's folder."""
        return self._source.content(f"{self._folder}/{name}")

    def record(self, name: str, model: type[M]) -> M:
        """A verified record of the participant's folder."""
        return self._source.parsed(name, self.content(name), model)


_MANIFESTS: Final[dict[Role, tuple[type[AgentManifest | ModelManifest | ResourcesManifest], int]]] = {
    Role.AGENT: (AgentManifest, 1),
    Role.POLICY: (ModelManifest, 2),
    Role.RESOURCES: (ResourcesManifest, 1),
}


def refusing(code: RefusalCode, work: Callable[[], T], *, storage: RefusalCode | None = None) -> T:
    """Do file work; what is wrong with the directory becomes a refusal instead of a crash.

    ``code`` is for what the files say, ``storage`` (as ``code`` unless given) for what the file system refuses.
    """
    try:
        return work()
    except (SnapshotInvalid, ExportConflict) as error:
        raise ControlRefusal(code, str(error)) from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ControlRefusal(storage or code, f"{error.strerror or type(error).__name__}{where}") from error
    except ValueError as error:
        raise ControlRefusal(code, f"the directory cannot be used: {error}") from error
