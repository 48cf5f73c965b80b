"""The state of one leadership: what a leader has in memory besides the catalog and the reports. It ends as a whole.

So nothing of one leadership remains in the next: no lock, no batch in flight, no waiting client."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from stelae.protocol.actions import ServerAction
from stelae.protocol.master_messages import CatalogReadRequest
from stelae.server.master.core.batches import CatalogBatch, joined
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import ChangeAsked
from stelae.server.master.core.locks import LockRequest, Locks
from stelae.server.master.core.operations import CatalogOperation, Operations
from stelae.server.master.core.policy_views import PolicyViews
from stelae.server.master.core.proposals import PolicyProposal
from stelae.server.master.core.reconcile import Transition
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import NodeId, TabletId

_FORGET_AFTER = 10
"""Number of retry intervals. An action that was not wanted for that long may be sent again at once."""

_NEVER = -1
"""The time at which an action was sent that was not sent."""

_Place: TypeAlias = tuple[type[ServerAction], NodeId, TabletId]


class Pacer:
    """Paces actions: each is sent once, and again after a retry interval if it is still wanted.

    Actions that have waited longest come first. So those that have no effect, as to servers that do not answer, do not
    keep back others."""

    def __init__(self, retry_ms: int) -> None:
        self._retry_us = retry_ms * 1000
        self._sent: dict[_Place, tuple[ServerAction, int]] = {}

    def take(self, actions: Sequence[ServerAction], now_us: int, most: int) -> list[ServerAction]:
        """Return the actions to send now, up to ``most``, and note that they are sent."""
        if len(actions) > most:
            actions = sorted(actions, key=self._sent_us)  # The order stays among those that were not sent yet.
        due = (action for action in actions if self._is_due(action, now_us))
        return list(itertools.islice(due, most))

    def _is_due(self, action: ServerAction, now_us: int) -> bool:
        """Return whether to send an action now, and note that it is sent."""
        sent_us = self._sent_us(action)
        if sent_us != _NEVER and now_us - sent_us < self._retry_us:
            return False
        self._sent[_place(action)] = (action, now_us)
        return True

    def _sent_us(self, action: ServerAction) -> int:
        """Return when an action was sent last."""
        sent = self._sent.get(_place(action))
        return sent[1] if sent is not None and sent[0] == action else _NEVER

    def forget_old(self, now_us: int) -> None:
        """Forget the actions that were not wanted for a long time."""
        limit_us = now_us - _FORGET_AFTER * self._retry_us
        self._sent = {place: sent for place, sent in self._sent.items() if sent[1] >= limit_us}


def _place(action: ServerAction) -> _Place:
    return type(action), action.node_id, action.tablet_id


class WaitingChange(msgspec.Struct, frozen=True):
    """A change that waits for locks. ``wanted`` are those of its last plan: it is planned again once they are free."""

    event: ChangeAsked
    wanted: LockRequest

    def is_asked_again(self, event: ChangeAsked) -> bool:
        """Return whether a request is for the same change, under the same identity."""
        mine, other = self.event.request, event.request
        same = (mine.client_id, mine.sequence) == (other.client_id, other.sequence)
        return same and mine.change == other.change


class MasterLeadership:
    """The leadership of this master in one term. Its attributes belong to the core."""

    def __init__(self, term: int, settings: MasterSettings, tablets: Iterable[TabletId] = ()) -> None:
        self.term = term
        self.operations = Operations(Locks())
        self.waiting: deque[WaitingChange] = deque()
        self.reads: dict[int, CatalogReadRequest] = {}
        self.dirty: dict[TabletId, None] = {}
        self.pacer = Pacer(settings.action_retry_ms)
        self.scan_due_us = 0
        self.policy_due_us = 0
        self.views = PolicyViews(tablets)
        self.asked: tuple[int, int] | None = None  #: Token and time of the question to the policy.
        self.proposal: PolicyProposal | None = None  #: The answer of the policy, for the end of this step.
        self.strangers = 0  #: Time of the last whole scan.
        self._settings = settings
        self._look: Iterator[TabletId] | None = None
        self._seen_strangers = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit of batches in flight is reached."""
        return len(self.operations) >= self._settings.changes_in_flight_max

    @property
    def has_room_beside_users(self) -> bool:
        """Whether background work may begin a batch. It leaves an eighth of the limit to changes by users."""
        limit = self._settings.changes_in_flight_max
        return not self.is_full and self.operations.background < max(1, limit - max(1, limit // 8))

    def touch(self, tablets: Iterable[TabletId]) -> None:
        """Let the reconciler check these tablets at the end of this step, and renew their views for the policy."""
        touched = dict.fromkeys(tablets)
        self.dirty.update(touched)
        self.views.touch(touched)

    @property
    def is_looking(self) -> bool:
        """Whether a scan of all tablets is in progress."""
        return self._look is not None

    def begin_look(self, catalog: Catalog, held: Sequence[TabletId]) -> None:
        """Begin a scan of all tablets that are on record or that a server holds. ``held`` does not change."""
        known, live = catalog.tablets, itertools.chain.from_iterable(catalog.of_table.values())
        rest = (tablet_id for tablet_id in held if tablet_id not in known or known[tablet_id].terminal)
        self._look = itertools.chain(live, rest)

    def next_turn(self) -> list[TabletId]:
        """Return the next part of the scan.

        A scan of a large catalog has many parts, so that it does not block the loop."""
        turn = [] if self._look is None else list(itertools.islice(self._look, self._settings.scan_tablets_max))
        if len(turn) < self._settings.scan_tablets_max:
            self._look = None
        return turn

    def count_strangers(self, count: int) -> None:
        """Add the number of tablets without a record in one part of the scan."""
        self._seen_strangers += count
        if self._look is None:
            self.strangers, self._seen_strangers = self._seen_strangers, 0

    def gather(self, transitions: Iterable[Transition], tokens: Iterator[int]) -> Iterator[CatalogOperation]:
        """Yield batches of transitions.

        One whose locks are taken, or for which there is no room, comes again with a scan.

        A batch may end after any transition, because each is complete by itself."""
        together: list[CatalogBatch] = []
        size, records, token = 0, 0, next(tokens)
        for transition in transitions:
            added = transition.batch
            over = size + added.size_bytes > self._settings.batch_bytes_max
            over = over or records + len(added.keys) > self._settings.batch_records_max
            if together and (over or bool(added.drops) != bool(together[0].drops)):
                yield self.operations.open(token, joined(together))
                together, size, records, token = [], 0, 0, next(tokens)
            if not self.has_room_beside_users:
                break
            if self.operations.locks.acquire(token, transition.locks):
                together.append(added)
                size += added.size_bytes
                records += len(added.keys)
        if together:
            yield self.operations.open(token, joined(together))


class MasterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a master, for people and for checkers."""

    term: int
    leader: NodeId | None
    serving: bool
    operations: int
    waiting: int
    strangers: int
    age_us: int | None  #: The greatest possible age of the catalog; ``None``: not known.
