"""What a node takes from the machine it runs on: disk, clocks, threads, turns of the event loop.

The kernel says what it needs and drives none of it; ``stelae.machine`` has the real ones, tests have others."""

import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from stelae.host.log_writer import LogWriter
from stelae.host.ports import BlockingPool, LogReader, Turns
from stelae.host.settings import LogSettings
from stelae.spi.services import Clock, Files, Metrics, Workers
from stelae.spi.wal import WalEngine
from stelae.wire.faults import FaultSeam as FaultSeam


class NodeTurns(Turns, Protocol):
    """Turns of the event loop, with a place for what sends everything that a turn produced."""

    def defer_last(self, call: Callable[[], None]) -> None:
        """Run ``call`` at the end of this turn, after all that was deferred."""


class Pool(BlockingPool, Workers, Protocol):
    """Threads for work of engines (in any order) and of tablets (in order per key)."""


class LogDriver(Protocol):
    """Drains ``writer`` into a log engine, of which it is the only user but for ``reader``."""

    @property
    def writer(self) -> LogWriter: ...
    @property
    def reader(self) -> LogReader: ...

    def stop(self) -> None:
        """End after the work in hand; blocks. Call it when the writer has closed."""


class LogPath(Protocol):
    """How a node's log is written; the one place that knows of ``[log] fast``."""

    def engine(self, engine: type[WalEngine]) -> type[WalEngine]:
        """Return the class to open for the engine of the settings."""

    def drive(self, engine: WalEngine, pool: Pool) -> LogDriver:
        """Drive an engine that was opened, from now on; ``pool`` runs reads."""


class Machine(Protocol):
    """One node's share of a machine. ``start`` first; all is called on the event loop, but for ``stop``."""

    files: Files
    clock: Clock
    metrics: Metrics  #: The node's own.
    pid: int  #: Names the process to whoever finds the directory locked.
    network_faults: FaultSeam | None  #: Stands where messages enter and leave; outside of tests there is none.
    rng: random.Random  #: Nobody can foresee it: what it draws names this run of the node.

    def start(self, on_defect: Callable[[BaseException], None]) -> NodeTurns:
        """Begin on the running loop, whose lag is measured from now on as ``loop_lag_ms``. ``on_defect`` is called on
        the loop with what nobody may raise: a deferred call, or a log engine."""

    def pool(self, name: str, threads_max: int) -> Pool:
        """Make a pool that ``stop`` ends."""

    def log_path(self, settings: LogSettings) -> LogPath:
        """Choose how the log is written: plainly, or by the fast preset if the settings ask for it."""

    def off_loop(self, work: Callable[[], Any]) -> Awaitable[Any]:
        """Run work that blocks beside the loop, which goes on; its result or exception is the answer's."""

    def settle(self) -> None:
        """Recovery is over: what is in memory now stays."""

    def stop(self) -> None:
        """Finish what the pools have taken and end them; blocks, and is called off the loop."""
