"""What a participant is: identity, role, capabilities, topology, dialects, manifest. No files, no sockets."""

from __future__ import annotations

__all__: list[str] = []
