"""One leadership: everything that a leader holds in memory beyond the catalog and what it hears. It dies as a whole.

So nothing of one leadership can leak into the next: no lock, no batch under way, no waiting client."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from stelae.protocol.actions import ServerAction
from stelae.protocol.master_messages import CatalogReadRequest
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import ChangeAsked
from stelae.server.master.core.locks import Locks
from stelae.server.master.core.operations import CatalogOperation, Operations
from stelae.server.master.core.policy_views import PolicyViews
from stelae.server.master.core.proposals import PolicyProposal
from stelae.server.master.core.reconcile import Transition
from stelae.server.master.core.records import Record
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import NodeId, TabletId

_FORGET_AFTER = 10
"""So many retry intervals after an action was last asked for, it is forgotten that it was sent."""


class Pacer:
    """Sends an action once, and again only when time has shown that it did not help."""

    def __init__(self, retry_ms: int) -> None:
        self._retry_us = retry_ms * 1000
        self._sent: dict[tuple[type[ServerAction], NodeId, TabletId], tuple[ServerAction, int]] = {}

    def is_due(self, action: ServerAction, now_us: int) -> bool:
        """Whether to send it now; if so, that is remembered."""
        place = (type(action), action.node_id, action.tablet_id)
        sent = self._sent.get(place)
        if sent is not None and sent[0] == action and now_us - sent[1] < self._retry_us:
            return False
        self._sent[place] = (action, now_us)
        return True

    def forget_old(self, now_us: int) -> None:
        """Forget what has not been asked for in a long time."""
        limit_us = now_us - _FORGET_AFTER * self._retry_us
        self._sent = {place: sent for place, sent in self._sent.items() if sent[1] >= limit_us}


class MasterLeadership:
    """Of this master, in one term. Attributes belong to the core."""

    def __init__(self, term: int, settings: MasterSettings, tablets: Iterable[TabletId] = ()) -> None:
        self.term = term
        self.operations = Operations(Locks())
        self.waiting: deque[ChangeAsked] = deque()
        self.reads: dict[int, CatalogReadRequest] = {}
        self.dirty: dict[TabletId, None] = {}
        self.pacer = Pacer(settings.action_retry_ms)
        self.scan_due_us = 0
        self.policy_due_us = 0
        self.views = PolicyViews(tablets)
        self.asked: tuple[int, int] | None = None  #: Token and time of what the policy has yet to answer.
        self.proposal: PolicyProposal | None = None  #: What it has answered, for the end of this step.
        self.strangers = 0  #: Of the last whole look.
        self._settings = settings
        self._look: Iterator[TabletId] | None = None
        self._seen_strangers = 0

    @property
    def is_full(self) -> bool:
        """Whether as many batches are under way as may be."""
        return len(self.operations) >= self._settings.changes_in_flight_max

    def touch(self, tablets: Iterable[TabletId]) -> None:
        """Have the reconciler look at these tablets at the end of this step, and the policy before its next plan."""
        touched = dict.fromkeys(tablets)
        self.dirty.update(touched)
        self.views.touch(touched)

    @property
    def is_looking(self) -> bool:
        """Whether a look at everything is under way."""
        return self._look is not None

    def begin_look(self, catalog: Catalog, held: Sequence[TabletId]) -> None:
        """Begin to look at all tablets on record, and at what else somebody holds; ``held`` stays as it is."""
        known, live = catalog.tablets, itertools.chain.from_iterable(catalog.of_table.values())
        rest = (tablet_id for tablet_id in held if tablet_id not in known or known[tablet_id].terminal)
        self._look = itertools.chain(live, rest)

    def next_turn(self) -> list[TabletId]:
        """Return what a look comes to now, so that a large catalog does not hold the loop for long."""
        turn = [] if self._look is None else list(itertools.islice(self._look, self._settings.scan_tablets_max))
        if len(turn) < self._settings.scan_tablets_max:
            self._look = None
        return turn

    def count_strangers(self, count: int) -> None:
        """Take how many tablets without a record a turn has met."""
        self._seen_strangers += count
        if self._look is None:
            self.strangers, self._seen_strangers = self._seen_strangers, 0

    def gather(self, transitions: Iterable[Transition], tokens: Iterator[int]) -> Iterator[CatalogOperation]:
        """Yield batches of transitions; one whose locks are taken, or that finds no room, comes again with a scan.

        Background work may be gathered, and cut, anywhere between two transitions: each is whole by itself."""
        puts: list[Record] = []
        size, token = 0, next(tokens)
        for transition in transitions:
            added = CatalogBatch(puts=transition.puts).size_bytes
            over = size + added > self._settings.batch_bytes_max
            if puts and (over or len(puts) + len(transition.puts) > self._settings.batch_records_max):
                yield self.operations.open(token, CatalogBatch(puts=tuple(puts)))
                puts, size, token = [], 0, next(tokens)
            if self.is_full:
                break
            if self.operations.locks.acquire(token, transition.locks):
                puts += transition.puts
                size += added
        if puts:
            yield self.operations.open(token, CatalogBatch(puts=tuple(puts)))


class MasterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a master stands; for people and for checkers."""

    term: int
    leader: NodeId | None
    serving: bool
    operations: int
    waiting: int
    strangers: int
    age_us: int | None  #: Of the catalog, at most; ``None``: not known.
