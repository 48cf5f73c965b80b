"""The repair of a log whose disk was full: tried again and again, until there is space (W8)."""

from collections.abc import Callable
from dataclasses import dataclass

from stelae.host.log_writer import LogWriter
from stelae.spi.errors import Full
from stelae.spi.ids import LogId, OpId


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRepair:
    """Repairs one log, on the event loop."""

    log: LogId
    writer: LogWriter
    later: Callable[[Callable[[], None]], None]  #: Calls what it is given after a pause, unless the replica has closed.
    on_repaired: Callable[[OpId], None]  #: Called with the durable end of the log.
    on_failed: Callable[[str], None]  #: Called with the reason why the log can never be repaired.

    def begin(self) -> None:
        """Begin the first attempt, after a pause."""
        self.later(self._attempt)

    def _attempt(self) -> None:
        self.writer.repair(self.log, self._ended)

    def _ended(self, result: object) -> None:
        if isinstance(result, OpId):
            self.on_repaired(result)
        elif isinstance(result, Full):
            self.begin()
        else:
            self.on_failed(f"the log cannot be repaired: {result}")
