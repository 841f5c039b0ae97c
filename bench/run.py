"""Every row of the numbers to reach that this version measures, as one Markdown table.

Each row is a ratio against a baseline that is measured in the same run on the same machine. Run it on a quiet machine:
``make bench``. ``--json`` prints one object a row instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # a folder of scripts, no package

import control_cpu
import diagram_speed
import explorer_speed
import fuzz_speed
import journal_groups
import reply_memory
import spin_beside
import table_step
from measured import Measured


def main() -> int:
    """Measure everything; the exit code says whether every reach was met."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", action="store_true", help="one JSON object a row")
    as_json = arguments.parse_args().json
    rows: list[Measured] = [
        *table_step.measure(),
        *asyncio.run(control_cpu.measure()),
        *asyncio.run(reply_memory.measure()),
        *asyncio.run(journal_groups.measure()),
        *explorer_speed.measure(),
        *spin_beside.measure(),
        *diagram_speed.measure(),
        *fuzz_speed.measure(),
    ]
    if as_json:
        for row in rows:
            print(json.dumps(row.to_json()))
    else:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}\n")
        print("| what | measured | baseline | ratio | reach | |\n| --- | --- | --- | --- | --- | --- |")
        for row in rows:
            print(row.to_markdown())
    return 0 if all(row.is_reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
