"""Looks up the members of tablets again when they may have changed (``LeaderTracker.on_lost``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias
from weakref import WeakSet, WeakValueDictionary

import msgspec

from stelae.client.leader_tracker import LeaderTracker
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_messages import TabletPlace
from stelae.protocol.tablet_messages import DESCRIBE, DescribeRequest, Description
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.wire.messenger import Response


class TabletMembers(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a tablet, as somebody knows them."""

    members: tuple[tuple[NodeId, str], ...]
    leader: NodeId | None
    config: OpId  #: The op id of the config with these members.


PlaceOf: TypeAlias = Callable[[], Awaitable[TabletPlace | TabletMembers | None]]
"""Returns where the masters have a tablet; ``None``: it is gone. Raises ``StelaeError`` if they do not answer."""


class AskedNodes(Protocol):
    """The part of the connection that lookups need."""

    @property
    def nodes(self) -> Sequence[NodeId]:
        """The nodes that have answered."""
        ...

    async def ask(self, node: NodeId, kind: str, body: bytes) -> Response:
        """Send one request to one node."""
        ...

    def add_peers(self, members: Sequence[tuple[NodeId, str]]) -> None:
        """Keep links to nodes, at their present addresses."""
        ...


class FollowedTablet:
    """What the trackers of a tablet share. It ends with the last of them."""

    def __init__(self) -> None:
        self.place: PlaceOf | None = None
        self.config = ZERO  #: The op id of the newest config that any node or master has named.


class MemberLookup:
    """The lookups of one connection, at most one at a time for each tracker."""

    def __init__(self, connection: AskedNodes) -> None:
        self._connection = connection
        self._under_way: dict[LeaderTracker, asyncio.Task[None]] = {}
        self._followed: WeakValueDictionary[TabletId, FollowedTablet] = WeakValueDictionary()
        self.trackers: WeakSet[LeaderTracker] = WeakSet()
        """The trackers that somebody uses. Links to their members are kept."""

    def ask_masters(self, tablet_id: TabletId, place: PlaceOf) -> None:
        """Ask the masters, too, when no node that the client knows can name a new member of a tablet with a tracker.

        All of its replicas may have moved to servers that the client has never heard of."""
        if (followed := self._followed.get(tablet_id)) is not None:
            followed.place = place

    def tracker(self, tablet_id: TabletId, members: Sequence[tuple[NodeId, str]]) -> LeaderTracker:
        """Return a tracker for a tablet with these members, which follows changes of them."""
        self._connection.add_peers(members)
        return self.follow(tablet_id, LeaderTracker([node_id for node_id, _ in members]))

    def follow(self, tablet_id: TabletId, tracker: LeaderTracker) -> LeaderTracker:
        """Let a tracker follow changes of the members of its tablet, and return it."""
        followed = self._followed.setdefault(tablet_id, FollowedTablet())
        self.trackers.add(tracker)
        tracker.on_lost = lambda: self._look_up(tablet_id, followed, tracker)
        return tracker

    def learn(
        self, tracker: LeaderTracker, members: Sequence[tuple[NodeId, str]], leader: NodeId | None = None
    ) -> None:
        """Give a tracker the present members of its tablet, with their addresses."""
        self._connection.add_peers(members)
        tracker.learn([node_id for node_id, _ in members], leader)

    def close(self) -> None:
        """End the lookups that are under way."""
        for task in list(self._under_way.values()):
            task.cancel()

    def _look_up(self, tablet_id: TabletId, followed: FollowedTablet, tracker: LeaderTracker) -> None:
        if tracker not in self._under_way:
            task = asyncio.get_running_loop().create_task(self._ask_all(tablet_id, followed, tracker))
            self._under_way[tracker] = task
            task.add_done_callback(lambda _done: self._under_way.pop(tracker, None))

    async def _ask_all(self, tablet_id: TabletId, followed: FollowedTablet, tracker: LeaderTracker) -> None:
        """Give the tracker the newest config that a node has, or else the members by the masters."""
        known = {*tracker.members}
        request, nodes = encode(DescribeRequest(tablet_id)), {*tracker.members, *self._connection.nodes}
        calls = (self._connection.ask(node, DESCRIBE, request) for node in nodes)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        found = [decode(a.body[0], Description) for a in answers if not isinstance(a, BaseException)]
        newest = max(found, key=lambda one: one.config, default=None)
        if newest is not None and newest.members and newest.config >= followed.config:
            followed.config = newest.config
            self.learn(tracker, newest.members, newest.leader)
        if known.issuperset(tracker.members) and followed.place is not None:
            await self._ask_masters(followed.place, followed, tracker)

    async def _ask_masters(self, place_of: PlaceOf, followed: FollowedTablet, tracker: LeaderTracker) -> None:
        """Give the tracker the members by the masters, unless a node has named a newer config than the masters know."""
        try:
            place = await place_of()
        except StelaeError:
            return  # The tracker calls again.
        if place is None or place.config < followed.config:
            return
        followed.config = place.config
        if any(node_id not in tracker.members for node_id, _ in place.members):
            self.learn(tracker, place.members, place.leader)
