"""The sessions of a source: who may read which snapshot, until when, and how many at a time. Pure.

A key goes through these states: *being taken* (``admit`` has returned ``None``), *open* (``opened``), *ended* (``end``,
``end_all`` or ``expire``). A key that is being taken or open uses a slot. An ended session serves nothing. Its contents
are returned once, for release, when none of its requests is being served any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from stelae.spi.copy import CopyContent, SessionKey
from stelae.spi.copy_plan import CopySessionEnded
from stelae.spi.errors import Overloaded
from stelae.spi.ids import NodeId, TabletId


@dataclass(slots=True, eq=False)
class OpenSession:
    """One session. Only the table changes it."""

    id: str
    key: SessionKey
    content: CopyContent
    sizes: dict[str, int]  #: The size of each item in bytes.
    used_us: int  #: When its last request ended.
    serving: int = 0  #: How many of its requests are being served.
    bytes_sent: int = 0
    ended: bool = False


class SessionTable:
    """The sessions of one node. Times are monotonic, in microseconds.

    Args:
        slots_max: the most keys that are being taken or open.
        ttl_us: how long a session may be idle.
        incarnation: begins the ids, so that no id of an earlier run is valid."""

    def __init__(self, slots_max: int, ttl_us: int, incarnation: str) -> None:
        self._slots_max = slots_max
        self._ttl_us = ttl_us
        self._ids = (f"{incarnation}-{number}" for number in count(1))
        self._taking: dict[SessionKey, bool] = {}  # Whether the session must end at once.
        self._by_key: dict[SessionKey, OpenSession] = {}
        self._by_id: dict[str, OpenSession] = {}

    def admit(self, key: SessionKey, now_us: int) -> OpenSession | None:
        """Return the open session for a key, or take a slot for a new one and return ``None``.

        Raises ``Overloaded`` if there is no slot, or the snapshot for this key is being taken."""
        if found := self._by_key.get(key):
            found.used_us = max(found.used_us, now_us)
            return found
        if key in self._taking:
            raise Overloaded(f"the snapshot of tablet {key.tablet_id} is still being taken; ask again")
        if len(self._taking) + len(self._by_key) >= self._slots_max:
            raise Overloaded(f"all {self._slots_max} slots for copies from this node are in use; ask again later")
        self._taking[key] = False
        return None

    def opened(self, key: SessionKey, content: CopyContent, now_us: int) -> OpenSession | None:
        """Open the session of a key whose snapshot was taken. Return ``None`` if it was ended meanwhile."""
        if self._taking.pop(key):
            return None
        sizes = {item.name: item.size_bytes for item in content.snapshot.items}
        session = OpenSession(next(self._ids), key, content, sizes, now_us)
        self._by_key[key] = self._by_id[session.id] = session
        return session

    def failed(self, key: SessionKey) -> None:
        """Give back the slot of a key whose snapshot could not be taken."""
        del self._taking[key]

    def use(self, session_id: str, peer: NodeId) -> OpenSession:
        """Return the session for one request of a peer. ``done`` must follow. Raises ``CopySessionEnded``."""
        found = self._by_id.get(session_id)
        if found is None or found.key.peer != peer:
            raise CopySessionEnded(f"no session {session_id[:64]!r} of {peer}; begin a new one")
        found.serving += 1
        return found

    def done(self, session: OpenSession, bytes_sent: int, now_us: int) -> CopyContent | None:
        """Note that a request was served. Return the contents if they can be released now."""
        session.serving -= 1
        session.used_us = max(session.used_us, now_us)
        session.bytes_sent += bytes_sent
        return session.content if session.ended and not session.serving else None

    def end(self, session_id: str, peer: NodeId) -> list[CopyContent]:
        """End a session of a peer, if there is one. Return the contents to release now."""
        found = self._by_id.get(session_id)
        return self._end([found] if found is not None and found.key.peer == peer else [])

    def end_all(self, tablet_id: TabletId | None) -> list[CopyContent]:
        """End the sessions of a tablet, or all. Return the contents to release now."""
        for key in self._taking:
            if tablet_id in (None, key.tablet_id):
                self._taking[key] = True
        return self._end([s for s in self._by_id.values() if tablet_id in (None, s.key.tablet_id)])

    def expire(self, now_us: int) -> list[CopyContent]:
        """End the sessions that have been idle for too long. Return the contents to release now."""
        idle = [s for s in self._by_id.values() if not s.serving and now_us - s.used_us >= self._ttl_us]
        return self._end(idle)

    def sessions(self) -> Sequence[OpenSession]:
        """Return the open sessions, oldest first."""
        return list(self._by_id.values())

    def _end(self, sessions: Sequence[OpenSession]) -> list[CopyContent]:
        for session in sessions:
            del self._by_id[session.id], self._by_key[session.key]
            session.ended = True
        return [session.content for session in sessions if not session.serving]
