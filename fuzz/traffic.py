"""What drives a participant's data plane while its control routes are fuzzed.

A traffic is a function from (role, kind, attempt) to the call to make, or None where there is no such call. The fuzzer
sends it over its own transport with the identity headers of the attempt, and reads from the replies what was
admitted, refused or cut off. ``kit_traffic`` fits the servers of ``quiesce serve``; for others write one::

    def traffic(role: Role, kind: WorkKind, attempt: AttemptId) -> WorkCall | None:
        if role is Role.POLICY and kind in {WorkKind.BEGIN, WorkKind.PROBE}:
            return WorkCall("/v1/responses", {"model": "m", "input": "hello"})
        return None

and name it on the command line as ``--traffic my_module:traffic``. Without traffic the rules that need it are not
tested, and the report says which.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.steps import WorkKind
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import escaped, printable
from quiesce.participants.identity import AttemptId

__all__ = ["Traffic", "WorkCall", "kit_traffic", "load_traffic", "no_traffic", "work_call"]

LONG_RUN_TURNS: Final = 1000
_OBSERVATION: Final = "0" * 64


@dataclass(frozen=True, slots=True)
class WorkCall:
    """One POST of the data plane; ``body`` is sent as JSON."""

    path: str
    body: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not str(self.path).startswith("/"):
            raise ConfigurationError(
                f"the path of a call of the data plane is {escaped(str(self.path))}; it must begin with a slash"
            )

    def content(self) -> bytes:
        """The body as it is sent."""
        return json.dumps(dict(self.body), allow_nan=False).encode()


Traffic: TypeAlias = Callable[[Role, WorkKind, AttemptId], WorkCall | None]
"""Which call of the data plane is of this kind, for this role and attempt; None: there is none."""


def work_call(traffic: Traffic, role: Role, kind: WorkKind, attempt: AttemptId) -> WorkCall | None:
    """What a traffic names, looked at: it is code of somebody else.

    Raises:
        ConfigurationError: it raises, or gives what can be no call; the text names it.
    """
    asked = f"the traffic {_name_of(traffic)}, asked for {kind.value!r} of {role.value!r},"
    try:
        found: object = traffic(role, kind, attempt)
        if isinstance(found, WorkCall):
            found.content()
    except Exception as error:  # it is foreign code: whatever it raises is what is wrong with it
        reason = printable(f"{type(error).__name__}: {error}", 200)
        raise ConfigurationError(f"{asked} cannot be used: {reason}") from error
    if found is None or isinstance(found, WorkCall):
        return found
    if asyncio.iscoroutine(found):
        found.close()
        raise ConfigurationError(f"{asked} is a coroutine function; write a plain function that returns a WorkCall")
    raise ConfigurationError(f"{asked} gives {type(found).__name__}; it must give a WorkCall, or None for no such call")


def _name_of(traffic: Traffic) -> str:
    name = getattr(traffic, "__qualname__", type(traffic).__name__)
    return f"{getattr(traffic, '__module__', '?')}:{name}"


def no_traffic(_role: Role, _kind: WorkKind, _attempt: AttemptId) -> WorkCall | None:
    """No data plane at all."""
    return None


def kit_traffic(role: Role, kind: WorkKind, _attempt: AttemptId) -> WorkCall | None:
    """The data plane of the servers that ``quiesce serve`` runs, and of ``quiesce.fuzz.kit``."""
    return _KIT.get((role, kind))


_ASK_POLICY: Final = WorkCall("/v1/responses", {"task": "fuzz", "observation": _OBSERVATION})
_ASK_JUDGE: Final = WorkCall("/v1/responses", {"task": "fuzz", "texts": ["one"]})
_SEED: Final = WorkCall("/seed_session", {"task": "fuzz"})
_APPEND: Final = WorkCall("/append", {"text": "fuzz"})
_KIT: Final[Mapping[tuple[Role, WorkKind], WorkCall]] = {
    (Role.POLICY, WorkKind.BEGIN): _ASK_POLICY,
    (Role.POLICY, WorkKind.PROBE): _ASK_POLICY,
    (Role.POLICY, WorkKind.HALF_NAMED): _ASK_POLICY,
    (Role.AUXILIARY, WorkKind.PROBE): _ASK_JUDGE,
    (Role.AGENT, WorkKind.BEGIN): WorkCall("/run", {"task": "fuzz", "turns": LONG_RUN_TURNS}),
    (Role.AGENT, WorkKind.PROBE): WorkCall("/run", {"task": "fuzz", "turns": LONG_RUN_TURNS}),
    (Role.AGENT, WorkKind.FINISH): WorkCall("/run", {"task": "fuzz", "turns": 1}),
    (Role.AGENT, WorkKind.HALF_NAMED): WorkCall("/run", {"task": "fuzz", "turns": 1}),
    (Role.RESOURCES, WorkKind.SEED): _SEED,
    (Role.RESOURCES, WorkKind.PROBE): _SEED,
    (Role.RESOURCES, WorkKind.BEGIN): _APPEND,
    (Role.RESOURCES, WorkKind.END): WorkCall("/verify", {"turns": 0}),
    (Role.RESOURCES, WorkKind.HALF_NAMED): _SEED,
}


def load_traffic(name: str) -> Traffic:
    """The traffic that a command line names: ``none``, ``kit``, or ``module:function``.

    Raises:
        ConfigurationError: there is no such module or function, or it is none.
    """
    known = {"none": no_traffic, "kit": kit_traffic}
    if name in known:
        return known[name]
    module_name, separator, function_name = name.partition(":")
    if not separator or not module_name or not function_name:
        raise ConfigurationError(f"the traffic {name!r} is neither none nor kit nor module:function")
    try:
        with _in_current_directory():
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # importing is running foreign code: what it raises is what is wrong
        reason = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"the traffic {name!r} cannot be loaded: {reason}") from error
    found = getattr(module, function_name, None)
    if not callable(found):
        raise ConfigurationError(f"the module {module_name!r} has no function {function_name!r}")
    return found  # type: ignore[no-any-return]  # what it returns is checked when it is called


@contextmanager
def _in_current_directory() -> Iterator[None]:
    """Modules of the current directory are found last, as ``python -m`` would find them first."""
    sys.path.append(str(Path.cwd()))
    try:
        yield
    finally:
        sys.path.remove(str(Path.cwd()))
