"""Leadership being handed over: who waits for it."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from stelae.spi.consensus import Transfer
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId

TransferDone: TypeAlias = Callable[[StelaeError | None], None]


class LeadershipTransfers:
    """LeadershipTransfers of one replica that are under way, on the event loop."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens
        self._waiting: dict[int, TransferDone] = {}

    def request(self, to: NodeId | None, done: TransferDone) -> Transfer:
        """Return the event that begins a transfer; ``done`` once, with an error if this replica leads on."""
        token = next(self._tokens)
        self._waiting[token] = done
        return Transfer(token, to)

    def ended(self, token: int, error: StelaeError | None = None) -> bool:
        """Tell whoever waits; say whether anybody did."""
        done = self._waiting.pop(token, None)
        if done is not None:
            done(error)
        return done is not None

    def fail_all(self, error: StelaeError) -> None:
        """Nobody knows how they would have ended."""
        for token in list(self._waiting):
            self.ended(token, error)
