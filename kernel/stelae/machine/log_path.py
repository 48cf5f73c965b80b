"""The plain log path, which is the default. ``[log] fast`` chooses between it and ``stelae.machine.fast_log``."""

from collections.abc import Callable
from dataclasses import dataclass

from stelae.host.machine import Pool
from stelae.host.settings import LogSettings
from stelae.machine.log_driver import EngineDriver
from stelae.machine.loop_turns import LoopTurns
from stelae.spi.services import Clock, Metrics
from stelae.spi.wal import WalEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLogPath:
    """The plain path: the engine's own class, whose commits run on a thread.

    Args:
        settings: bounds of the log writer.
        turns: runs completions on the loop.
        clock, metrics: measure every group.
        on_crash: called on the loop if the engine raises an error that its contract does not allow."""

    settings: LogSettings
    turns: LoopTurns
    clock: Clock
    metrics: Metrics
    on_crash: Callable[[BaseException], None]

    def engine(self, engine: type[WalEngine]) -> type[WalEngine]:
        """Return the class to open for an engine."""
        return engine

    def drive(self, engine: WalEngine, pool: Pool) -> EngineDriver:
        """Return the driver of an open engine; ``pool`` runs reads."""
        return self.driven_by(EngineDriver, engine, pool)

    def driven_by(self, driver: Callable[..., EngineDriver], engine: WalEngine, pool: Pool) -> EngineDriver:
        """Return another driver of an open engine, with the same arguments."""
        return driver(
            engine,
            pool=pool,
            turns=self.turns,
            clock=self.clock,
            metrics=self.metrics,
            queue_bytes_max=self.settings.queue_bytes_max,
            group_bytes_max=self.settings.group_bytes_max,
            on_crash=self.on_crash,
        )
