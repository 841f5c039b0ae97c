"""One worker of a model service: its gate, what its coordinator tells it, and how it can be told to go wrong.

What it is told it does in order, and acknowledges with the number of the order (wire-protocol 5.4). One that was silent
or slow does late what it was told: it closes, then reopens by itself (F18).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from quiesce.participants.errors import ConfigurationError
from quiesce.participants.server.policy_gate import PolicyGate

__all__ = ["Order", "Worker"]

Order = Callable[[PolicyGate], object]


@dataclass(eq=False)
class Worker:
    """One worker: its gate, and how it stands with its coordinator.

    Attributes:
        name: its id.
        connected: whether the coordinator has a connection to it; without one it serves nothing new.
        acknowledged: the number of the last order that it acknowledged.
        silent: it does nothing that it is told and acknowledges nothing, until it is woken; it goes on serving.
        lag_s: how long it takes before it does what it is told.
    """

    name: str
    _changed: Callable[[], None]
    connected: bool = False
    acknowledged: int = 0
    silent: bool = False
    lag_s: float = 0.0
    _gate: PolicyGate | None = None
    _orders: deque[tuple[int, Order]] = field(default_factory=deque)
    _timer: asyncio.TimerHandle | None = None

    @property
    def gate(self) -> PolicyGate:
        """Its gate: an ASGI application.

        Raises:
            ConfigurationError: no coordinator was mounted over it yet.
        """
        if self._gate is None:
            raise ConfigurationError(f"worker {self.name!r} serves nothing yet; mount a coordinator over its workers")
        return self._gate

    @property
    def serves(self) -> bool:
        """Whether it has a gate yet."""
        return self._gate is not None

    @property
    def inflight(self) -> int:
        """Calls in flight at it."""
        return 0 if self._gate is None else len(self._gate.inflight())

    # what it can be told to be

    def leave(self) -> None:
        """Lose the connection, as a worker that died: nothing new comes to it, and it is told nothing more."""
        self.connected = False
        self._drop_orders()
        self._changed()

    def fall_silent(self) -> None:
        """Do nothing that it is told and acknowledge nothing, but serve on."""
        self.silent = True
        self._stop_timer()

    def wake(self) -> None:
        """Do all that it was told meanwhile, in order, and acknowledge it."""
        self.silent = False
        self._go_on()

    def slow_down(self, lag_s: float) -> None:
        """Take so long from now on before each thing that it is told; 0 for none."""
        self.lag_s = lag_s
        self._stop_timer()
        self._go_on()

    # the coordinator's side of the connection

    def serve_at(self, gate: PolicyGate) -> None:
        """The gate that is its own from now on."""
        gate.on_drained = self._changed
        self._gate = gate

    def tell(self, number: int, order: Order) -> None:
        """Give it an order, if it is connected."""
        if self.connected:
            self._orders.append((number, order))
            self._go_on()

    def _go_on(self) -> None:
        while self._orders and not self.silent and self._timer is None:
            if self.lag_s > 0:
                self._timer = asyncio.get_running_loop().call_later(self.lag_s, self._after_lag)
                return
            self._obey()

    def _after_lag(self) -> None:
        self._timer = None
        if self._orders:
            self._obey()
        self._go_on()

    def _obey(self) -> None:
        number, order = self._orders.popleft()
        order(self.gate)
        self.acknowledged = number
        self._changed()

    def _drop_orders(self) -> None:
        self._orders.clear()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
