"""``quiesce abort``, and a cut on demand: at a live controller, or by the command itself where there is none."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.command import Command, last_object
from support.servers import closed_port
from support.workload import TOKEN, Deployment, deployment
from typer.testing import Result

from quiesce.controller import BlockingController, Controller, Cut, load_config
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.transport import HttpTransport, StaticTokenProvider

TOKENS = StaticTokenProvider(TOKEN)


@pytest.fixture(scope="module", params=[FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE], ids=str)
def servers(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """Servers on which nothing runs."""
    with deployment(fence=request.param) as here:
        yield here


@pytest.fixture
def config(servers: Deployment, tmp_path: Path) -> Path:
    """A configuration over them with a root of its own."""
    return servers.write_config(tmp_path)


def save(cut: Cut) -> None:
    """The trainer's own part."""
    (cut.directory / "trainer" / "weights").write_text("w")


def test_a_live_controller_is_asked_for_the_cut(quiesce: Command, config: Path) -> None:
    """It takes it, with its own part, once for one request id; without its consent it takes none."""
    arguments = ("checkpoint", "--config", str(config), "--request-id", "q1", "--json")
    with BlockingController.from_config(
        load_config(config), on_completed=lambda _: (), on_asked_cut=save
    ) as controller:
        first = quiesce(*arguments)
        assert first.exit_code == 0, first.stderr
        assert last_object(first) == last_object(quiesce(*arguments))
        (entry,) = controller.store.list()
        assert (entry.wire_id, entry.label) == (last_object(first)["wire_id"], "cut-q1")
        assert [file.path for file in controller.store.load("cut-q1").trainer] == ["trainer/weights"]
        other = quiesce("checkpoint", "--config", str(config), "--request-id", "q1", "--label", "else")
        assert (other.exit_code, "used before" in other.stderr) == (1, True)
        shown = quiesce("checkpoint", "--config", str(config))
        assert shown.stdout.startswith("published cut-2")
    with BlockingController(load_config(config), tokens=TOKENS):
        refused = quiesce("checkpoint", "--config", str(config), "--json")
        assert refused.exit_code == 1
        assert last_object(refused)["errors"][0]["type"] == "CutNotOffered"
        assert f"process {os.getpid()}" in refused.stderr
        assert "on_asked_cut" in refused.stderr


@pytest.mark.parametrize("offers_cuts", [True, False], ids=["that takes cuts on demand", "that takes none"])
@pytest.mark.parametrize("command", ["checkpoint", "settle"])
def test_a_command_beside_a_cut_that_runs_says_whose_it_is(
    quiesce: Command, config: Path, command: str, *, offers_cuts: bool
) -> None:
    """A plain race is no wrong usage: the exit code is 1, the text names the cut and the process."""
    asked_for = save if offers_cuts else None
    with (
        BlockingController(load_config(config), tokens=TOKENS, on_asked_cut=asked_for) as controller,
        controller.cut("step-1") as cut,
    ):
        refused = quiesce(command, "--config", str(config), "--json")
        assert refused.exit_code == 1, refused.stderr
        assert last_object(refused)["errors"][0]["type"] == "TransactionRunning"
        assert f"is running: {cut.wire_id}" in refused.stderr
        assert f"process {os.getpid()}" in refused.stderr
        assert "on_asked_cut" not in refused.stderr


def test_a_live_controllers_cut_is_aborted(quiesce: Command, config: Path, servers: Deployment) -> None:
    """The command asks; the program's cut fails, and everybody is open."""
    ended: list[BaseException] = []
    inside, go = threading.Event(), threading.Event()

    def program() -> None:
        try:
            with BlockingController(load_config(config), tokens=TOKENS) as controller, controller.cut("step-1"):
                inside.set()
                go.wait(30)
        except Exception as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    thread = threading.Thread(target=program)
    thread.start()
    assert inside.wait(30)
    assert servers.phases() != {"idle"}
    aborted = quiesce("abort", "--config", str(config))
    assert aborted.exit_code == 0, aborted.stderr
    assert "is aborted; everybody accepts work" in aborted.stdout
    assert servers.phases() == {"idle"}
    go.set()
    thread.join(30)
    assert "aborted on request" in str(ended[0])


def test_who_is_held_by_an_unknown_id_is_named_and_then_reopened(
    quiesce: Command, config: Path, servers: Deployment, tmp_path: Path
) -> None:
    """Without an id nobody is touched; with it whoever it holds is reopened."""

    async def leave_held() -> str:
        elsewhere = load_config(config).model_copy(update={"root": tmp_path / "elsewhere"})
        network = HttpTransport(TOKENS)
        controller = Controller(elsewhere, transport=network)
        await controller.open()
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        wire_id = cut.wire_id
        await cut.close()
        await network.aclose()
        return wire_id

    wire_id = asyncio.run(leave_held())
    named = quiesce("abort", "--config", str(config), "--json")
    assert named.exit_code == 3
    ((held, who),) = last_object(named)["held"].items()
    assert (held, sorted(who)) == (wire_id, ["main/agent", "main/policy_model", "main/tools"])
    assert servers.phases() != {"idle"}
    aborted = quiesce("abort", wire_id, "--config", str(config))
    assert aborted.exit_code == 0, aborted.stderr
    assert servers.phases() == {"idle"}
    assert "main/agent was held and is open now" in aborted.stdout
    nothing = quiesce("abort", "--config", str(config))
    assert nothing.stdout == "nothing is open; nobody is held by a checkpoint\n"


async def leave(config: Path) -> str:
    """A cut whose controller goes away inside it; its id."""
    controller = Controller(load_config(config), tokens=TOKENS)
    await controller.open()
    cut = await controller.begin_cut("left")
    await cut.prepare()
    await cut.close()
    await controller.close()
    return cut.wire_id


def test_who_does_not_answer_keeps_nobody_closed_and_is_named(
    quiesce: Command, config: Path, servers: Deployment
) -> None:
    """An id of which nobody else knows may hold it; not one whose journal names others, nor if it takes no part."""
    left = asyncio.run(leave(config))
    text = config.read_text().replace(servers.urls[Role.AUXILIARY], f"http://127.0.0.1:{closed_port()}")
    config.write_text(text)
    aborted = quiesce("abort", left, "--config", str(config))
    assert aborted.exit_code == 0, aborted.stderr
    assert servers.phases() == {"idle"}
    named = quiesce("abort", "--config", str(config))
    assert (named.exit_code, "main/judge did not answer, and may be held" in named.stderr) == (3, True)
    config.write_text(text.replace('name = "judge"', 'name = "judge", role = "auxiliary"'))
    assert quiesce("abort", "--config", str(config)).stdout == "nothing is open; nobody is held by a checkpoint\n"


def test_another_id_than_the_open_one_never_touches_it(quiesce: Command, config: Path, servers: Deployment) -> None:
    """Neither a cut that was left nor one that runs; the message names the id that is open, and that one is aborted."""
    left = asyncio.run(leave(config))
    refused = quiesce("abort", "bogus-id", "--config", str(config), "--json")
    assert refused.exit_code == 3
    assert f"{left} is open and holds" in refused.stderr
    assert last_object(refused)["still_open"] == [left]
    assert servers.phases() == {"idle", "prepared"}
    shown = quiesce("abort", "bogus-id", "--config", str(config))
    assert shown.stdout == "nothing is open under bogus-id\n"
    assert quiesce("abort", left, "--config", str(config)).exit_code == 0
    assert servers.phases() == {"idle"}
    with BlockingController(load_config(config), tokens=TOKENS) as controller, controller.cut("runs") as cut:
        other = quiesce("abort", "bogus-id", "--config", str(config))
        assert other.exit_code == 3
        assert f"{cut.wire_id} is open: name that id to abort it" in other.stderr
        assert servers.phases() != {"idle"}
    assert cut.result.wire_id == cut.wire_id


@pytest.mark.parametrize("damaged", ["", ".quiesce"], ids=["the root is a file", "its state is a file"])
def test_where_the_root_cannot_be_used_it_says_what_works(
    quiesce: Command, config: Path, servers: Deployment, damaged: str
) -> None:
    """The command that is told runs as it stands: without an ID it names who is held, with it those are reopened."""
    wire_id = asyncio.run(leave(config))
    place = load_config(config).root / damaged
    place.rename(config.parent / "moved")
    place.write_text("")
    named = told_by(quiesce, "abort", "--config", str(config))
    assert (named.exit_code, wire_id in named.stderr) == (3, True)
    assert servers.phases() != {"idle"}
    aborted = told_by(quiesce, "abort", wire_id, "--config", str(config))
    assert aborted.exit_code == 0, aborted.stderr
    assert "main/agent was held and is open now" in aborted.stdout
    assert servers.phases() == {"idle"}


def told_by(quiesce: Command, *arguments: str) -> Result:
    """A command that cannot do it, and then the one that it tells, as a shell would run it."""
    refused = quiesce(*arguments)
    assert refused.exit_code == 3
    (told,) = re.findall(r'`quiesce (abort.*"\$\(mktemp -d\)")`', refused.stderr)
    with TemporaryDirectory() as empty:
        return quiesce(*(empty if word == "$(mktemp -d)" else word for word in shlex.split(told)))


def test_an_id_that_cannot_be_one_is_wrong_usage(quiesce: Command, config: Path) -> None:
    """Nobody is called."""
    assert quiesce("abort", "../x", "--config", str(config)).exit_code == 2
    assert quiesce("checkpoint", "--request-id", "a/b", "--config", str(config)).exit_code == 2
