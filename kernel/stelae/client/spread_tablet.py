"""Reads one tablet from its nearest replica, where a read need not be linearizable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.found_parts import FoundPart
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.nearness import Nearness
from stelae.client.page_rows import PageRows
from stelae.protocol.tablet_messages import ScanPage, SplitKeys
from stelae.rows.operation_encoding import Operation
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.write import OpResult


class SpreadTablet:
    """A tablet whose leader serves writes and linearizable reads, and whose replicas all serve other reads."""

    def __init__(self, tablet: ConnectedTablet, connection: Connection, nearness: Nearness) -> None:
        self._tablet = tablet
        self._nearness = nearness
        self._member_lookup = connection.member_lookup
        self._rng = connection.rng
        self.tablet_id = tablet.tablet_id
        self._replicas = self._shuffled()
        self._lookups = connection.lookups(tablet.tablet_id, tablet.schema)

    @property
    def retries(self) -> Mapping[str, int]:
        """How many times an operation was sent again, by the code of the error that made it necessary."""
        return self._tablet.retries

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send an operation to the leader. With ``follows``, it is in the same request as the operation before."""
        return self._tablet.send(encoded, timeout_s, follows=follows)

    async def page(
        self, spec: ScanSpec, *, at: int | None, at_least: int | None, reader: PageRows, timeout_s: float
    ) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        """Read a page. With ``at`` or ``at_least``, any replica may serve it."""
        if spec.after is None:
            # Each scan starts at a random replica among the nearest. Otherwise all readers would end up at the leader:
            # a reader moves to the next replica when one refuses it, and the leader does not refuse.
            self._replicas = self._shuffled()
        ask = None if at is None and at_least is None else self._replicas
        return await self._tablet.page(spec, at=at, at_least=at_least, ask=ask, reader=reader, timeout_s=timeout_s)

    def look_up(self, keys: Sequence[bytes], *, at: int | None, timeout_s: float) -> Awaitable[Sequence[FoundPart]]:
        """Look up keys. With ``at``, any replica may serve them."""
        return self._lookups.add(keys, at, timeout_s, self._leader if at is None else self._shuffled)

    async def split_keys(self, spec: ScanSpec, bytes_max: int, *, timeout_s: float) -> SplitKeys:
        """Return keys that divide the key range of a scan; see ``ConnectedTablet.split_keys``."""
        return await self._tablet.split_keys(spec, bytes_max, timeout_s=timeout_s)

    def _leader(self) -> LeaderTracker:
        return self._tablet.leader

    def _shuffled(self) -> LeaderTracker:
        nearest_first = LeaderTracker(self._nearness.ordered(self._tablet.leader.members, self._rng))
        return self._member_lookup.follow(self.tablet_id, nearest_first)
