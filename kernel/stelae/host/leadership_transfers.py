"""The leadership transfers of a replica that are in progress, and the callers that wait for them."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from stelae.spi.consensus_events import Transfer
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId

TransferDone: TypeAlias = Callable[[StelaeError | None], None]


class PendingTransfers:
    """The transfers of one replica, on the event loop."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens
        self._waiting: dict[int, TransferDone] = {}

    def request(self, to: NodeId | None, done: TransferDone) -> Transfer:
        """Return the event that starts a transfer.

        ``done`` is called once: with ``None`` when the transfer has succeeded, with an error if it has failed."""
        token = next(self._tokens)
        self._waiting[token] = done
        return Transfer(token, to)

    def ended(self, token: int, error: StelaeError | None = None) -> bool:
        """Finish a transfer: call its caller. Return whether there was such a transfer."""
        done = self._waiting.pop(token, None)
        if done is not None:
            done(error)
        return done is not None

    def fail_all(self, error: StelaeError) -> None:
        """Finish all transfers with an error. Whether they would have succeeded is not known."""
        for token in list(self._waiting):
            self.ended(token, error)
