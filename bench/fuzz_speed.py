"""The fuzzer: CPU a call, and for each planted bug how long it takes to find and how few calls show it.

All of it in process and in virtual time, where seconds are those of the computation. ``python bench/fuzz_speed.py``
prints a row for each bug.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # folders of scripts, no packages
sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))

from measured import Measured
from support.planted import PLANTED, Planted

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import examine_kit, kit_source, serving
from quiesce.fuzz.kit import KIT_ORIGIN
from quiesce.fuzz.virtual_time import run_virtual
from quiesce.transport.port import ControlRequest

CALLS = 3000
SHRUNK_MAX = 8


@dataclass(frozen=True, slots=True)
class Found:
    """One planted bug: CPU seconds and calls until it was found, CPU seconds with shrinking, steps before and after."""

    bug: str
    rule: str
    calls: int
    found_s: float
    shrunk_s: float
    before: int
    after: int


def measure() -> list[Measured]:
    """Calls, and all planted bugs. The largest minimal sequence has a reach; the others inform."""
    found = [search(planted) for planted in PLANTED]
    seconds = [one.shrunk_s for one in found]
    bugs = f"{len(found)} planted bugs"
    return [
        *calls(),
        Measured(
            f"fuzzer, CPU to find and shrink one of {bugs}, median, beside the longest",
            statistics.median(seconds),
            max(seconds),
            "s",
            None,
        ),
        Measured(
            f"fuzzer, calls that show one of {bugs}, the most, over what is allowed",
            max(one.after for one in found),
            SHRUNK_MAX,
            "calls",
            1.0,
        ),
    ]


def calls() -> list[Measured]:
    """CPU a call of a whole campaign on the strict kit, over the same server called bare."""
    rows = []
    for role in (Role.POLICY, Role.AGENT, Role.RESOURCES):
        began_s = time.process_time()
        report = examine_kit(kit_source(role), calls_max=CALLS)
        each_us = (time.process_time() - began_s) / report.calls * 1e6
        what = (
            f"fuzzer, CPU a call on a {role.value} in process ({1e6 / each_us:,.0f} calls a second), over a bare call"
        )
        rows.append(Measured(what, each_us, _bare_call_us(role), "µs", None))
    return rows


def search(planted: Planted) -> Found:
    """Look for one bug until it is found and shrunk, and for how long the first finding took."""
    began_s = time.process_time()
    report = examine_kit(planted.source, stop_after=1)
    shrunk_s = time.process_time() - began_s
    violation = report.errors[0]
    # found_after_s is virtual; what was computed until then is in proportion to the calls
    found_s = shrunk_s * violation.at_call / report.calls
    return Found(
        planted.name,
        violation.rule.id,
        violation.at_call,
        found_s,
        shrunk_s,
        violation.found_in,
        len(violation.steps),
    )


def _bare_call_us(role: Role) -> float:
    async def call() -> float:
        async with serving(kit_source(role)) as (transport, _, _):
            url = f"{KIT_ORIGIN}/ng-control/v1/capabilities"
            request = ControlRequest(participant="bare", method="GET", url=url, timeout_s=10.0)
            began_s = time.process_time()
            for _ in range(CALLS):
                await transport.send(request)
            return (time.process_time() - began_s) / CALLS * 1e6

    return run_virtual(call())


def main() -> None:
    """Print a row for each planted bug."""
    print("| planted bug | rule | found at call | CPU to find | CPU with shrinking | steps found in | after |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for one in map(search, PLANTED):
        print(
            f"| {one.bug} | `{one.rule}` | {one.calls} | {one.found_s:.2f} s | {one.shrunk_s:.2f} s "
            f"| {one.before} | {one.after} |"
        )


if __name__ == "__main__":
    main()
