"""What is planned for a server that is one process throughout: races more than once, the restore first and once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.virtual_loop import virtual_time

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options
from quiesce.fuzz.fresh import is_restore
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.line import Line
from quiesce.fuzz.plans import RACES, Planner, abilities_of
from quiesce.fuzz.shrinking import races
from quiesce.fuzz.steps import parse_step
from quiesce.fuzz.traffic import kit_traffic
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

RACE = tuple(map(parse_step, ("prepare a", "commit a send=at_once", "resume a")))
EACH = pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES])


async def planner(role: Role, root: Path, *, lasting: bool) -> Planner:
    """For a server of the kit that may be restored."""
    clock = VirtualClock()
    app = build_kit_server(role, clock=clock).app
    line = Line(AsgiTransport({KIT_ORIGIN: app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN))), clock)
    options = Options(nonce="n", traffic=kit_traffic, root=root, allow_restore=True, rate=None)
    _, place = await arrive(KIT_ORIGIN, line, options)
    assert place is not None
    return Planner(place.subject, abilities_of(place, lasting=lasting), 0)


@EACH
@virtual_time
async def test_a_race_is_tried_more_than_once_on_one_process(role: Role, tmp_path: Path) -> None:
    """The line decides anew each time who comes first; where the seed decides it, once is enough."""
    lasting, fresh = [
        Counter((await planner(role, tmp_path, lasting=lasting)).systematic()) for lasting in (True, False)
    ]
    assert (lasting[RACE], fresh[RACE]) == (RACES, 1)
    calm = [steps for steps in fresh if not races(steps)]
    assert [lasting[steps] for steps in calm] == [fresh[steps] for steps in calm]


@EACH
@virtual_time
async def test_the_restore_of_a_fresh_process_is_planned_where_there_is_only_one(role: Role, tmp_path: Path) -> None:
    """It has no step that the role has no route for."""
    [steps] = (await planner(role, tmp_path, lasting=True)).of_the_fresh()
    assert sum(map(is_restore, steps)) == 3
    assert (parse_step("discard b p") in steps) is (role is Role.AGENT)
    assert [*(await planner(role, tmp_path, lasting=False)).of_the_fresh()] == []
