"""A journal record in a group of 100 that share one barrier, over append + fdatasync of one."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from measured import Measured

from quiesce.controller.journal import JournalFile
from quiesce.controller.records import JournalRecord
from quiesce.fsm.trace import TraceRecord

GROUP = 100
ROUNDS = 30
REACH = 0.15


def _record(number: int) -> JournalRecord:
    trace = TraceRecord("PARTICIPANT", f"main/p{number}", "idle", "close_due", "unknown", ("call_close",), (), "why")
    return JournalRecord(1e9, "bench-00000000", trace)


async def measure() -> list[Measured]:
    """Wall time, since a sync is waited for; both write to the same folder."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        single: list[float] = []
        with (Path(folder) / "single").open("ab", buffering=0) as file:
            line = b"x" * 400 + b"\n"
            for _ in range(ROUNDS):
                began_s = time.perf_counter()
                file.write(line)
                os.fdatasync(file.fileno())
                single.append(time.perf_counter() - began_s)
        journal = JournalFile(Path(folder) / "group.ndjson")
        grouped: list[float] = []
        for _ in range(ROUNDS):
            began_s = time.perf_counter()
            for number in range(GROUP):
                await journal.append(_record(number), barrier=number == GROUP - 1)
            grouped.append((time.perf_counter() - began_s) / GROUP)
        await journal.close()
    record_us, single_us = statistics.median(grouped) * 1e6, statistics.median(single) * 1e6
    return [Measured("journal record in a group of 100, over append + fdatasync", record_us, single_us, "µs", REACH)]
