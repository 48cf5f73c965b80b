"""Keeps the session of a complete copy open until the copied replica has caught up with its source.

The session keeps the log that follows the copy at the source (``durability.md`` rule 25). It may end once the replica
hears a leader, and its own log has durably reached what the source knew as committed after the copy: from there on the
leader's log continues, with an anchor of its own. If the session ended when the leader was heard first, the leader
could collect the entries in between, and the replica would be copied again.

If the source does not tell what it knew, the session is kept as long as it lives, and for an hour at most. A member
that was removed meanwhile hears no leader, and must not hold the log of its source for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.lifecycle.kept_sessions import KeptSessions
from stelae.spi.copy_plan import CopyOffer
from stelae.spi.ids import TabletId

LOOK_US_MIN, LOOK_US_MAX = 20_000, 200_000
"""How long to wait for the next look whether a copied replica has caught up, in microseconds.

Each wait is twice as long as the one before. A small replica catches up at once, and its session takes a slot of the
source as long as it is kept."""

ASK_US = 2_000_000
"""How often to ask a source again that did not tell what it knows as committed, in microseconds."""

KEPT_US_MAX = 3_600_000_000
"""The longest time for which a session is kept after a copy, in microseconds."""


@dataclass(eq=False)
class _Copied:
    offer: CopyOffer
    until_us: int
    ask_us: int  #: When to ask the source next.
    look_us: int = LOOK_US_MIN  #: How long to wait for the next look.
    needed: int | None = None  #: The index that the log must reach; ``None`` while it is not known.
    timer: Timer | None = None


class CopiedReplicas:
    """The replicas of one node that were just copied, on its event loop."""

    def __init__(self, node: Node, sessions: KeptSessions) -> None:
        self._node = node
        self._sessions = sessions
        self._copied: dict[TabletId, _Copied] = {}

    def add(self, tablet_id: TabletId, offer: CopyOffer) -> None:
        """Keep the session of a copy that is complete, until its replica has caught up."""
        self.release(tablet_id)
        now_us = self._node.turns.now_us()
        self._copied[tablet_id] = _Copied(offer, now_us + KEPT_US_MAX, now_us)
        self._look(tablet_id)

    def release(self, tablet_id: TabletId) -> None:
        """End the session of an earlier copy of a tablet, if one is kept.

        A new copy must not join it: the session would end with the earlier copy. A request that the guards refuse is
        not one: a leader asks again until it hears that the replica is there."""
        if (one := self._copied.pop(tablet_id, None)) is not None:
            if one.timer is not None:
                one.timer.cancel()
            self._sessions.end(one.offer)

    def stop(self) -> None:
        """Wait for nothing any more, because the node stops."""
        for one in self._copied.values():
            if one.timer is not None:
                one.timer.cancel()
        self._copied.clear()

    def _look(self, tablet_id: TabletId) -> None:
        one, turns = self._copied[tablet_id], self._node.turns
        now_us = turns.now_us()
        if now_us >= one.until_us or not self._sessions.keeps(one.offer) or self._is_done(tablet_id, one):
            self.release(tablet_id)
            return
        if one.needed is None and now_us >= one.ask_us:
            one.ask_us = now_us + ASK_US
            self._sessions.committed_index(one.offer, tablet_id, partial(_told, one))
        one.timer = turns.call_at(now_us + one.look_us, partial(self._look, tablet_id))
        one.look_us = min(2 * one.look_us, LOOK_US_MAX)

    def _is_done(self, tablet_id: TabletId, one: _Copied) -> bool:
        """Return whether the replica has caught up, or is gone and needs no log."""
        replica = self._node.replicas.get(tablet_id)
        if replica is None or replica.failure:
            return True
        status = replica.status
        return status.leader is not None and one.needed is not None and status.durable_index >= one.needed


def _told(one: _Copied, found: int | Exception) -> None:
    if isinstance(found, int):
        one.needed = found
