"""Coordinator CPU per control call of whole cuts, over bare aiohttp doing the same calls in the same process."""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import structlog
from measured import Measured

from quiesce.controller import Controller
from quiesce.controller.config import parse_config

SIZES = (10, 100, 1000)
CALLS_A_PARTICIPANT = 4
"""Preflight, close, the reading before commit, resume."""
REACH = 3.0
REACH_GROWTH = 2.0
PREFIX = "/ng-control/v1/"


async def _start(count: int) -> tuple[asyncio.subprocess.Process, list[int]]:
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).parent / "fleet_server.py"),
        str(count),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    return server, json.loads(await server.stdout.readline())


async def _stop(server: asyncio.subprocess.Process) -> None:
    assert server.stdin is not None
    server.stdin.close()
    await server.wait()


async def _bare_round(session: aiohttp.ClientSession, ports: list[int], checkpoint_id: str) -> None:
    """The same calls in the same waves, each reply read as JSON."""

    async def call(port: int, method: str, path: str) -> None:
        body = None if method == "GET" else {"schema_version": 1, "checkpoint_id": checkpoint_id, "deadline_ts": 9e9}
        async with session.request(method, f"http://127.0.0.1:{port}{PREFIX}{path}", json=body) as reply:
            await reply.json()
            assert reply.status == 200  # noqa: PLR2004  # the status of success

    for method, path in (
        ("GET", "capabilities"),
        ("POST", "model-admission/pause"),
        ("GET", "capabilities"),
        ("POST", "model-admission/resume"),
    ):
        await asyncio.gather(*(call(port, method, path) for port in ports))


async def _per_call_us(ports: list[int], root: Path, rounds: int) -> tuple[float, float]:
    participants = ",".join(f'{{ name = "p{port}", url = "http://127.0.0.1:{port}" }}' for port in ports)
    text = f'root = "{root}"\n[deployment.main]\nparticipants = [{participants}]\n'
    config = parse_config(text, source="bench", directory=root, environment={})
    cuts: list[float] = []
    bare: list[float] = []
    calls = CALLS_A_PARTICIPANT * len(ports)
    connector = aiohttp.TCPConnector(limit=0)
    async with Controller(config) as controller, aiohttp.ClientSession(connector=connector) as session:
        for number in range(rounds):
            began_s = time.process_time()
            async with controller.cut(f"bench-{number}"):
                pass
            cuts.append((time.process_time() - began_s) / calls)
            began_s = time.process_time()
            await _bare_round(session, ports, f"bare-{number}")
            bare.append((time.process_time() - began_s) / calls)
    return statistics.median(cuts[1:]) * 1e6, statistics.median(bare[1:]) * 1e6


async def measure() -> list[Measured]:
    """One row a size, and the growth from the smallest to the largest."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    rows: list[Measured] = []
    spent: dict[int, float] = {}
    for count in SIZES:
        server, ports = await _start(count)
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            cut_us, bare_us = await _per_call_us(ports, Path(folder), rounds=max(6, 300 // count))
        await _stop(server)
        spent[count] = cut_us
        rows.append(Measured(f"coordinator CPU per call, N = {count}, over bare aiohttp", cut_us, bare_us, "µs", REACH))
    small, large = SIZES[0], SIZES[-1]
    rows.append(
        Measured(f"CPU per call at N = {large}, over N = {small}", spent[large], spent[small], "µs", REACH_GROWTH)
    )
    return rows
