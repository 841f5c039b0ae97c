"""For authors of servers: one call that tests an application of theirs, in process, in seconds.

    from quiesce.fuzz import assert_conforms

    def test_my_server_keeps_the_protocol():
        assert_conforms(make_app(), token="secret")

With ``traffic`` the data plane is driven as well. With ``fresh``, a function that makes an application, each sequence
gets a new one, so that restores can be tested and nothing is left over from one to the next.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from quiesce.controller.clock import Clock, SystemClock
from quiesce.fsm.errors import QuiesceError
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import examine
from quiesce.fuzz.errors import Nonconforming
from quiesce.fuzz.lifespan import lifespan
from quiesce.fuzz.options import Options
from quiesce.fuzz.replays import replay_of, replay_text
from quiesce.fuzz.report import ParticipantReport, text_of
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.survey import CHECK_URL
from quiesce.fuzz.traffic import Traffic, no_traffic
from quiesce.fuzz.virtual_time import NothingCanHappen, VirtualClock, VirtualLoop
from quiesce.fuzz.wording import ANSWER_S, Durations, check_checkpoint_dir
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import printable
from quiesce.transport.inprocess import AsgiApplication, AsgiTransport
from quiesce.transport.token import StaticTokenProvider

__all__ = ["Settings", "assert_conforms", "check_replay_folder", "conformance", "save_replays"]

ORIGIN: Final = "http://app.invalid"
CALLS_MAX: Final = 3000
CALLS_MIN: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an application is tested.

    Attributes:
        token: the control token that it was given; None where it has none.
        profile: ``strict``, or ``gym-a`` to have known deviations of real servers reported as known.
        seed: decides the random sequences; the same seed gives the same test.
        traffic: drives the data plane (``quiesce.fuzz.traffic``).
        allow_restore: restores are sent as well.
        allow_live_work: the application is tested although it has live work.
        calls_max: calls at most, in round numbers.
        checkpoint_dir: where exports are written; a temporary folder where none is named.
        durations: how long things take; measured where they are not given.
        answer_s: how long a call that does not wait may take to be answered, where ``durations`` do not say it.
        grace_s: how long after its deadline an incomplete prepare may be held at most; None: not waited for.
        in_virtual_time: time passes only when nothing else can happen. The application's clock must then be that
            of the running loop (``quiesce.fuzz.virtual_time.VirtualClock``).
    """

    token: str | None = None
    profile: str = Profile.STRICT.value
    seed: int = 0
    traffic: Traffic = no_traffic
    allow_restore: bool = False
    allow_live_work: bool = False
    calls_max: int = CALLS_MAX
    checkpoint_dir: Path | None = None
    durations: Durations | None = None
    answer_s: float = ANSWER_S
    grace_s: float | None = None
    in_virtual_time: bool = False

    def options(self, root: Path, *, nonce: str) -> Options:
        """The same for a campaign.

        Raises:
            ConfigurationError: a setting cannot be; the text names it.
        """
        self.check()
        return Options(
            nonce=nonce,
            profile=Profile(self.profile),
            seed=self.seed,
            traffic=self.traffic,
            root=root,
            allow_restore=self.allow_restore,
            allow_live_work=self.allow_live_work,
            calls_max=self.calls_max,
            ids_max=self.calls_max,
            rate=None,
            durations=self.durations,
            grace_s=self.grace_s,
            answer_s=self.answer_s,
            mistakable=SystemClock() if self.in_virtual_time else VirtualClock(),
            sends_any_header=True,
        )

    def check(self) -> None:
        """Every setting can be.

        Raises:
            ConfigurationError: one cannot; the text names it, what it is, and what it must be.
        """
        durations = self.durations
        demands = {
            "token": (self.token is None or isinstance(self.token, str), "a text, or None"),
            "profile": (self.profile in list(Profile), f"there are {', '.join(Profile)}"),
            "seed": (_is_whole(self.seed), "a whole number"),
            "traffic": (callable(self.traffic), "a function of role, kind and attempt"),
            "allow_restore": (isinstance(self.allow_restore, bool), "True or False"),
            "allow_live_work": (isinstance(self.allow_live_work, bool), "True or False"),
            "answer_s": (_is_positive(self.answer_s), "seconds above 0"),
            "calls_max": (_is_whole(self.calls_max) and self.calls_max >= CALLS_MIN, f"at least {CALLS_MIN}"),
            "checkpoint_dir": (self.checkpoint_dir is None or isinstance(self.checkpoint_dir, Path), "a Path, or None"),
            "durations": (durations is None or isinstance(durations, Durations), "Durations, or None"),
            "grace_s": (self.grace_s is None or _is_positive(self.grace_s), "seconds above 0, or None"),
            "in_virtual_time": (isinstance(self.in_virtual_time, bool), "True or False"),
        }
        for name, (holds, wanted) in demands.items():
            if not holds:
                shown = "given" if name == "token" else repr(getattr(self, name))
                said = wanted if name == "profile" else f"it must be {wanted}"
                raise ConfigurationError(f"the setting {name} is {shown}; {said}")
        if self.checkpoint_dir is not None:
            check_checkpoint_dir(self.checkpoint_dir)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def assert_conforms(
    app: AsgiApplication | None = None,
    *,
    fresh: Callable[[], AsgiApplication] | None = None,
    replays: Path | None = None,
    settings: Settings | None = None,
    **given: object,
) -> ParticipantReport:
    """Test an application, and fail with every broken rule and its minimal calls.

    ``given`` are members of :class:`Settings`. ``replays``: a folder for a replay file of each violation.

    Raises:
        Nonconforming: a rule of severity error is broken, or it could not be tested. Also an AssertionError.
        ConfigurationError: what was asked for cannot be.
    """
    wanted = _settings(settings, given)
    if replays is not None:
        check_replay_folder(replays)
    loop_factory = VirtualLoop if wanted.in_virtual_time else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            report = runner.run(conformance(app, fresh=fresh, settings=wanted))
        except NothingCanHappen as error:
            raise ConfigurationError(
                f"in virtual time nothing goes on any more ({error}): the application waits for something outside of "
                "its event loop, or by another clock than quiesce.fuzz.VirtualClock(); leave in_virtual_time out"
            ) from error
    if replays is not None:
        save_replays([report], replays)
    if not report.conforms:
        raise Nonconforming(text_of([report]))
    return report


async def conformance(
    app: AsgiApplication | None = None,
    *,
    fresh: Callable[[], AsgiApplication] | None = None,
    settings: Settings | None = None,
    **given: object,
) -> ParticipantReport:
    """Test an application and report; for code that runs in an event loop already.

    Raises:
        ConfigurationError: what was asked for cannot be.
    """
    wanted = _settings(settings, given)
    if (app is None) is (fresh is None):
        raise ConfigurationError("give either an application or a function that makes a fresh one")
    wanted.check()
    clock: Clock = VirtualClock() if wanted.in_virtual_time else SystemClock()
    async with AsyncExitStack() as stack:
        transport = AsgiTransport(tokens=FuzzedTokens(StaticTokenProvider(wanted.token)))
        stack.push_async_callback(transport.aclose)
        root = wanted.checkpoint_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = _Served(transport, stack, fresh)
        if app is not None:
            await served.put(app)
        # the seed decides the names too where nobody can know them: in fresh applications, below a folder of their own
        is_alone = fresh is not None and wanted.checkpoint_dir is None
        nonce = f"seed-{wanted.seed}" if is_alone else secrets.token_hex(4)
        renew = None if fresh is None else served.renew
        report = await examine(ORIGIN, transport, clock, wanted.options(root, nonce=nonce), renew=renew)
    return _named(report, _name_of(app or fresh))


def _named(report: ParticipantReport, name: str) -> ParticipantReport:
    """The report on an application in this process, under a name of its own instead of an address that is none."""
    return replace(
        report,
        url=name,
        reason=report.reason.replace(ORIGIN, name).replace(CHECK_URL, "; give the application that has them"),
        notes=tuple(note.replace(ORIGIN, name) for note in report.notes),
    )


def _name_of(given: object) -> str:
    """How the application is called: by its function or class, and the module of that."""
    made = given if hasattr(given, "__qualname__") else type(given)
    name = f"{getattr(made, '__module__', '?')}:{getattr(made, '__qualname__', '?')}"
    return f"the application {printable(name, 120)}"


class _Served:
    """The application that answers now."""

    def __init__(
        self, transport: AsgiTransport, stack: AsyncExitStack, fresh: Callable[[], AsgiApplication] | None
    ) -> None:
        self._transport = transport
        self._outer = stack
        self._fresh = fresh
        self._own: AsyncExitStack | None = None

    async def put(self, app: AsgiApplication) -> None:
        """Start an application and let it answer."""
        if self._own is None:
            self._outer.push_async_callback(self._end)
        else:
            await self._own.aclose()
        self._own = AsyncExitStack()
        await self._own.enter_async_context(lifespan(app))
        self._transport.mount(ORIGIN, app)

    async def renew(self) -> None:
        """Put a fresh application in the place of the old one."""
        if self._fresh is None:
            return
        made: object = self._fresh()
        if not callable(made):
            raise ConfigurationError(f"fresh returned {made!r}; it must return an ASGI application")
        await self.put(made)

    async def _end(self) -> None:
        if self._own is not None:
            await self._own.aclose()


def check_replay_folder(folder: Path) -> None:
    """Replay files can be written there; the folder is made.

    Raises:
        ConfigurationError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"{folder}: replay files cannot be written there: {reason}") from error


def save_replays(reports: list[ParticipantReport], folder: Path) -> list[Path]:
    """Write a replay file for each violation; their paths.

    Raises:
        QuiesceError: the folder cannot be written.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for report in reports:
            for violation in report.violations:
                if report.role is None:
                    continue
                stem = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{report.name}-{violation.rule.id}")
                path = folder / f"{stem}.json"
                path.write_text(replay_text(replay_of(report, violation)), encoding="utf-8")
                written.append(path)
    except OSError as error:
        raise QuiesceError(f"{folder}: replay files cannot be written: {error.strerror or error}") from error
    return written


def _settings(settings: Settings | None, given: Mapping[str, object]) -> Settings:
    known = set(Settings.__dataclass_fields__)
    if unknown := sorted(set(given) - known):
        raise ConfigurationError(f"there is no setting {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return replace(settings or Settings(), **given)  # type: ignore[arg-type]  # names are checked above, types by users
