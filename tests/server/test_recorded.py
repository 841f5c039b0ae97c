"""Every recorded exchange, driven through our kit: a single-worker server's in both variants, and a coordinator's.

``gym_a_single`` and ``gym_a_coordinator`` answer as recorded. ``strict`` does too, except where
``docs/fence-differences.md`` says otherwise: that page is read here, each of its rows must be a difference that is
there, and there may be no other.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from support.asgi import Caller
from support.house import ROOT
from support.recorded_calls import route_of
from support.recorded_comparison import differences
from support.recorded_stage import COORDINATOR_SETUPS, SETUPS, Stage
from support.recordings import Exchange, all_exchanges, exchanges_of, scenarios, trees
from support.stores import settle
from support.virtual_loop import run_virtual

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.dialects.gym_a.wire import ErrorEnvelope

SINGLE = [name for name in scenarios() if all(exchange.component != "coordinator" for exchange in exchanges_of(name))]
COORDINATED = [name for name in scenarios() if name not in SINGLE]

PAGE = ROOT / "docs" / "fence-differences.md"

Differences = dict[tuple[str, str, str], tuple[str, str]]


async def _replay(stage: Stage) -> list[tuple[Exchange, Caller]]:
    """Send the requests of a scenario in their order; a slow one is answered where its recording says."""
    exchanges = list(exchanges_of(stage.scenario))
    replies: list[Caller] = []
    for number, exchange in enumerate(exchanges):
        if stage.last_but is not None and number == len(exchanges) - stage.last_but:
            for earlier in replies:
                await earlier.done()
        if exchange.before:
            await stage.prepare(exchange.before)
        replies.append(stage.send(exchange))
        await (replies[-1].done() if stage.last_but is None else settle())
    for call in replies:
        await call.done()
    await stage.close()
    return list(zip(exchanges, replies, strict=True))


def _replayed(scenario: str, variant: FenceVariant, directory: Path) -> list[tuple[Exchange, Caller]]:
    """Each exchange of a scenario with the kit's reply."""

    async def play() -> list[tuple[Exchange, Caller]]:
        return await _replay(Stage(scenario, variant, directory))

    return run_virtual(play())


def _play(scenario: str, variant: FenceVariant, directory: Path) -> Differences:
    """Where the kit's replies differ: (scenario, step, component) to what was recorded and what the kit said."""
    found: Differences = {}
    for exchange, call in _replayed(scenario, variant, directory):
        different = differences(exchange, call, exchange.reply)
        if different is not None:
            found[scenario, exchange.step, exchange.component] = different
    return found


def _files(directory: Path) -> dict[str, bytes]:
    """What lies in a checkpoint directory, without what differs on every run: when a session was taken."""
    found = {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*.json*")}
    return {name: _untimed(name, content) for name, content in found.items()}


def _untimed(name: str, content: bytes) -> bytes:
    if not name.startswith("resources/"):
        return content
    pattern = rb"[0-9a-f]{64}" if name.endswith("manifest.json") else rb'"created_at": [0-9.]+'
    return re.sub(pattern, b"*", content)


def _documented() -> Differences:
    """The rows of the page's table."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(row) == 6 and row[5] for row in cells), "each row has six cells, the last one a reason"
    return {(row[0].strip("`"), row[1].strip("`"), row[2]): (row[3], row[4]) for row in cells}


def test_there_are_recordings_to_replay() -> None:
    """The single-worker scenarios are all but those that a coordinator answered."""
    assert len(SINGLE) == 29
    assert all("coordinator" in name for name in COORDINATED)


def test_every_set_up_text_is_mapped() -> None:
    """Each ``before`` of a recording is one of the set-ups, a coordinator's among its own; none is left over."""
    texts = {exchange.before for exchange in all_exchanges() if exchange.before}
    coordinated = {exchange.before for exchange in all_exchanges() if exchange.component == "coordinator"} - {""}
    assert coordinated == set(COORDINATOR_SETUPS)
    assert texts - coordinated == set(SETUPS)
    assert len(texts) == 28


@pytest.mark.parametrize("scenario", SINGLE)
def test_the_recorded_fence_answers_as_recorded(scenario: str, tmp_path: Path) -> None:
    """With ``gym_a_single`` status, error code, phase and fields are the recorded ones, exchange by exchange."""
    assert _play(scenario, FenceVariant.GYM_A_SINGLE, tmp_path) == {}


@pytest.mark.parametrize("scenario", COORDINATED)
def test_the_recorded_coordinator_answers_as_recorded(scenario: str, tmp_path: Path) -> None:
    """With ``gym_a_coordinator`` status, error code, phase and fields are the recorded ones, exchange by exchange."""
    assert _play(scenario, FenceVariant.GYM_A_COORDINATOR, tmp_path) == {}


@pytest.mark.parametrize("variant", [FenceVariant.GYM_A_SINGLE, FenceVariant.STRICT])
@pytest.mark.parametrize("place", trees())
def test_a_replayed_scenario_leaves_the_recorded_files(place: str, variant: FenceVariant, tmp_path: Path) -> None:
    """What a scenario writes is what was recorded, byte for byte, but for the time at which sessions were taken."""
    scenario = place.partition("/")[0]
    _play(scenario, variant, tmp_path)
    recorded = {name: _untimed(name, content) for name, content in trees()[place].items()}
    assert _files(tmp_path) == recorded


@pytest.mark.parametrize("scenario", SINGLE)
def test_strict_differs_only_where_the_page_says_so(scenario: str, tmp_path: Path) -> None:
    """With ``strict`` each difference stands in the page, as it is, and each row of the page is a difference."""
    documented = {place: row for place, row in _documented().items() if place[0] == scenario}
    assert _play(scenario, FenceVariant.STRICT, tmp_path) == documented


@pytest.mark.parametrize(
    ("scenario", "variant"),
    [
        *product(SINGLE, [FenceVariant.GYM_A_SINGLE, FenceVariant.STRICT]),
        *product(COORDINATED, [FenceVariant.GYM_A_COORDINATOR]),
    ],
)
def test_our_own_client_believes_every_reply(scenario: str, variant: FenceVariant, tmp_path: Path) -> None:
    """Each success has the shape of its route's reply model, and each refusal that of the error envelope."""
    for exchange, call in _replayed(scenario, variant, tmp_path):
        if call.status == 200:
            route = route_of(exchange)
            coordinated = exchange.component == "coordinator" and route.coordinator_reply
            (coordinated or route.reply).model_validate_json(call.raw)
        elif call.status == 409:
            assert ErrorEnvelope.model_validate_json(call.raw).error.detail


def test_the_page_names_recorded_exchanges_only() -> None:
    """No row of the page is about an exchange that does not exist."""
    places = {(exchange.scenario, exchange.step, exchange.component) for exchange in all_exchanges()}
    assert _documented().keys() <= places
    assert len(_documented()) > 5
