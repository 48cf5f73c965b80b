"""The interface between a node and its machine: disk, clocks, threads, and turns of the event loop.

``stelae.machine`` implements it for production; tests and the simulator have other implementations."""

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
    """Turns of the event loop. The messenger sends the messages of a turn with ``defer_last``."""

    def defer_last(self, call: Callable[[], None]) -> None:
        """Run ``call`` at the end of this turn, after all deferred calls."""


class Pool(BlockingPool, Workers, Protocol):
    """Threads for the work of engines (in any order) and of tablets (in order per key)."""


class LogDriver(Protocol):
    """Commits the work of ``writer`` with a log engine. Only it and ``reader`` use the engine."""

    @property
    def writer(self) -> LogWriter: ...
    @property
    def reader(self) -> LogReader: ...

    def stop(self) -> None:
        """Stop after the current work. Blocks. Called once the writer is closed."""


class LogPath(Protocol):
    """How the log of a node is written. Only its implementations know about ``[log] fast``."""

    def engine(self, engine: type[WalEngine]) -> type[WalEngine]:
        """Return the class to open for the engine that the settings name."""

    def drive(self, engine: WalEngine, pool: Pool) -> LogDriver:
        """Start to drive an opened engine. ``pool`` runs the reads."""


class Machine(Protocol):
    """The machine of one node. ``start`` is called first. All methods but ``stop`` are called on the event loop."""

    files: Files
    clock: Clock
    metrics: Metrics  #: The metrics of this node.
    pid: int  #: The process id. It is written into the lock file.
    #: Loses, delays or repeats packets in tests; ``None`` in production.
    network_faults: FaultSeam | None
    rng: random.Random  #: Unpredictable random numbers, for the incarnation id and the seeds of this node.

    def start(self, on_defect: Callable[[BaseException], None]) -> NodeTurns:
        """Start on the running event loop, and measure its lag as ``loop_lag_ms`` from now on.

        ``on_defect`` is called on the loop with an exception that must not happen, of a deferred call or of a log
        engine."""

    def pool(self, name: str, threads_max: int) -> Pool:
        """Make a thread pool. ``stop`` ends it."""

    def log_path(self, settings: LogSettings) -> LogPath:
        """Return the way to write the log: the plain one, or the fast one if the settings ask for it."""

    def off_loop(self, work: Callable[[], Any]) -> Awaitable[Any]:
        """Run blocking work off the event loop. The awaitable gives its result or raises its exception."""

    def settle(self) -> None:
        """Called when recovery is complete. Objects that exist now are long-lived."""

    def stop(self) -> None:
        """Finish the work of the pools and end them. Blocks. Called off the event loop."""
