"""The leadership transfers of a replica that are in progress, and the callers that wait for them."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from stelae.host.rejection_errors import Asked
from stelae.spi.consensus_events import Transfer
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId

TransferDone: TypeAlias = Callable[[StelaeError | None], None]


class PendingTransfers:
    """The transfers of one replica, on the event loop."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens
        self._waiting: dict[int, TransferDone] = {}
        self._targets: dict[int, NodeId | None] = {}

    def request(self, to: NodeId | None, done: TransferDone) -> Transfer:
        """Return the event that starts a transfer.

        ``done`` is called once: with ``None`` when the transfer has succeeded, with an error if it has failed."""
        token = next(self._tokens)
        self._waiting[token], self._targets[token] = done, to
        return Transfer(token, to)

    def asked(self, token: int) -> Asked | None:
        """Return what a transfer in progress asks for, or ``None`` if there is no such transfer."""
        if token not in self._targets:
            return None
        to = self._targets[token]
        return Asked("hand over its leadership" if to is None else f"hand over its leadership to node {to}")

    def ended(self, token: int, error: StelaeError | None = None) -> bool:
        """Finish a transfer: call its caller. Return whether there was such a transfer."""
        done, _ = self._waiting.pop(token, None), self._targets.pop(token, None)
        if done is not None:
            done(error)
        return done is not None

    def fail_all(self, error: StelaeError) -> None:
        """Finish all transfers with an error. Whether they would have succeeded is not known."""
        for token in list(self._waiting):
            self.ended(token, error)
