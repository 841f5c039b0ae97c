"""Whole scenarios in virtual time: the loop and the clock that ``quiesce.fuzz`` ships, and a decorator for tests.

Use it as a decorator, also under ``@given``::

    @virtual_time
    async def test_something() -> None: ...

or call ``run_virtual(scenario())``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from quiesce.fuzz.virtual_time import NothingCanHappen, VirtualClock, VirtualLoop, run_virtual

__all__ = ["NothingCanHappen", "VirtualClock", "VirtualLoop", "run_virtual", "virtual_time"]

P = ParamSpec("P")
T = TypeVar("T")


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turn a coroutine test into a plain one that runs in virtual time; fixtures and ``@given`` see its parameters."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs))

    return run
