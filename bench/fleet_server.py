"""Many drain-only policies in one process, each on a port of its own: just enough of a participant to be cut.

Prints its ports as one JSON line. It is the other side of a measurement, never what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from urllib.parse import parse_qs, urlsplit


class Participant(asyncio.Protocol):
    """One connection to one participant; ``fences`` holds the active id of each port."""

    def __init__(self, fences: dict[int, str | None]) -> None:
        self._fences = fences
        self._buffer = b""
        self._port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._port = transport.get_extra_info("sockname")[1]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].decode("latin-1")
            length = 0
            for line in head.split("\r\n")[1:]:
                name, _, value = line.partition(":")
                if name.lower() == "content-length":
                    length = int(value)
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._answer(head.split(" ", 2)[:2], body)

    def _answer(self, start: list[str], body: bytes) -> None:
        method, target = start
        path = urlsplit(target).path.removeprefix("/ng-control/v1/")
        sent = json.loads(body) if body else {}
        status, reply = self._reply(method, path, sent, target)
        content = json.dumps(reply).encode()
        self._transport.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode()
            + content
        )

    def _reply(self, method: str, path: str, sent: dict[str, object], target: str) -> tuple[int, dict[str, object]]:
        workers = {"acknowledged": 1, "expected": 1}
        if path == "capabilities":
            return 200, _capabilities(self._port, self._fences.get(self._port))
        asked = parse_qs(urlsplit(target).query) if path == "model-admission/status" else sent
        if not asked:
            return 422, {"detail": []}
        if path == "model-admission/pause":
            self._fences[self._port] = str(sent["checkpoint_id"])
            return 200, {"state": "paused", "workers": workers, "inflight_total": 0, "waiters_total": 0}
        if path == "model-admission/resume":
            self._fences[self._port] = None
            return 200, {"state": "accepting", "workers": workers, "released_waiters": 0}
        if path == "model-admission/status":
            return 409, {"error": {"code": "invalid_phase", "detail": "idle"}}
        return 404, {"detail": method}


def _capabilities(port: int, active: str | None) -> dict[str, object]:
    return {
        "component": "responses_api_models",
        "name": f"policy-{port}",
        "schema_version": 1,
        "admission_states": ["accepting", "draining", "paused"],
        "checkpoint_mode": "stateless",
        "concurrency_contract": "stateless",
        "multi_process": {"mode": "single_worker", "num_workers": 1},
        "instance_role": "policy",
        "features": ["external_storage_reference_index_v1"],
        "phase": "idle" if active is None else "prepared",
        "active_checkpoint_id": active,
        "deadline_ts": None,
    }


async def main(count: int) -> None:
    """Serve until standard input is closed."""
    loop = asyncio.get_running_loop()
    fences: dict[int, str | None] = {}
    servers = [await loop.create_server(lambda: Participant(fences), "127.0.0.1", 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
