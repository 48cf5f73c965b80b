"""How a node's log is written, as ``[log] fast`` says: plainly, which is the default, or by the fast preset."""

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
    """The plain way: the engine's own class, whose commits run on a thread.

    Args:
        settings: bounds of the log writer.
        turns: where completions run.
        clock, metrics: every group is timed and counted.
        on_crash: called on the loop if the engine raised what its contract does not allow."""

    settings: LogSettings
    turns: LoopTurns
    clock: Clock
    metrics: Metrics
    on_crash: Callable[[BaseException], None]

    def engine(self, engine: type[WalEngine]) -> type[WalEngine]:
        """Return the class to open for an engine."""
        return engine

    def drive(self, engine: WalEngine, pool: Pool) -> EngineDriver:
        """Drive an open engine from now on; ``pool`` runs reads."""
        return self.driven_by(EngineDriver, engine, pool)

    def driven_by(self, driver: Callable[..., EngineDriver], engine: WalEngine, pool: Pool) -> EngineDriver:
        """Drive an open engine by another driver of the same arguments."""
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
