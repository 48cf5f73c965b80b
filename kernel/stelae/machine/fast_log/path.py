"""The log path of ``[log] fast = true``: the engine's fast class, whose commits are written by ``io_uring``."""

import asyncio
import logging
from functools import partial

from stelae.host.machine import Pool
from stelae.machine.fast_log.io_uring import IoUring
from stelae.machine.fast_log.ring_driver import RingDriver
from stelae.machine.fast_log.ring_writes import ENTRIES, RingWrites
from stelae.machine.faulty_files import DiskFaultSeam
from stelae.machine.log_driver import EngineDriver
from stelae.machine.log_path import PlainLogPath
from stelae.spi.wal import WalEngine

log = logging.getLogger(__name__)


class FastLogPath:
    """The fast path where it is available; otherwise the plain path, with one warning that gives the reason.

    The fast path is not available if this process cannot use ``io_uring``, or the engine has no fast class.

    Args:
        plain: the plain path, and what both paths need.
        faults: the fault seam of the disk, if this node has one."""

    def __init__(self, plain: PlainLogPath, faults: DiskFaultSeam | None = None) -> None:
        self._plain = plain
        self._faults = faults
        self._ring = _open_ring()

    def engine(self, engine: type[WalEngine]) -> type[WalEngine]:
        """Return the class to open for an engine: its fast class if the fast path is available."""
        if self._ring is None:
            return engine
        fast = engine.fast()
        if fast is None:
            self._ring.close()
            self._ring = None
            _warn(f"log engine {engine.name!r} has no fast kind")
            return engine
        return fast

    def drive(self, engine: WalEngine, pool: Pool) -> EngineDriver:
        """Return the driver of an open engine, on the running loop; ``pool`` runs reads."""
        plain = self._plain
        plain.metrics.gauge("log_fast", self._ring is not None)
        if self._ring is None:
            return plain.drive(engine, pool)
        ring = RingWrites(self._ring, asyncio.get_running_loop(), pool, plain.on_crash)
        return plain.driven_by(partial(RingDriver, ring, self._faults), engine, pool)


def _open_ring() -> IoUring | None:
    try:
        return IoUring(ENTRIES)
    except OSError as error:
        _warn(f"io_uring cannot be used: {error.strerror or error}")
        return None


def _warn(reason: str) -> None:
    log.warning("[log] fast = true is not available here: %s; the log is written plainly", reason)
