"""The replicated log of the system tablet, modelled: leader terms, lost tails, unknown outcomes, late followers.

What it promises is what consensus promises, and no more. One leader in each term; an entry that is committed stays, in
its place; who becomes leader has all of them; of what the old leader had not committed, some first part survives, drawn
by lot, and the rest never was. A leader that was cut off goes on believing in itself until it is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from stelae.server.master.core.batches import CatalogBatch, from_rows, to_rows
from stelae.server.master.core.events import (
    Confirmed,
    Decided,
    EntryApplied,
    Event,
    MasterLeaderChanged,
    MasterTick,
    ReadIndexTold,
)
from stelae.server.master.core.operations import Outcome
from stelae.sim.draw import between, chance, pick, skewed
from stelae.sim.masters.network import DELAY_US_MAX, DELAY_US_MIN, LOSS, SLOW_US_MAX, SimAddress
from stelae.sim.masters.world import Committed, MastersWorld, master_node
from stelae.spi.ids import NodeId, OpId
from stelae.spi.rows import RowBatch

COMMIT_US = (2_000, 60_000)
FIRST_ENTRY_US = (2_000, 500_000)
ELECTION_US = (150_000, 700_000)
ROUND_US = 20_000
UNKNOWN_US = 900_000
REFUSED = 0.03
"""Of proposals: certainly not replicated, for want of space in a queue."""
UNHEARD = 0.05
"""Of committed proposals: their leader is told that the outcome is unknown."""
WITHHELD = 0.04
"""Of proposals: their leader is told so before they are committed."""


class Hearer(Protocol):
    """A master, as its log sees it."""

    place: SimAddress
    position: int
    epoch: int  #: Rises with each start: what was meant for an earlier run is not delivered.

    def hear(self, event: Event) -> None:
        """Take one event of the log."""


class _Pending(NamedTuple):
    op_id: OpId
    batch: CatalogBatch
    token: int
    told: bool


class _Follower:
    """How far a master has been fed, and what it believes about leadership."""

    def __init__(self) -> None:
        self.fed = 0
        self.believes = (0, -1)


class SystemLog:
    """The log. Masters are known by position."""

    def __init__(self, world: MastersWorld, rng: random.Random, questions: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._questions = questions
        self._masters: Sequence[Hearer] = ()
        self._followers: list[_Follower] = []
        self.term = 0
        self.leader = -1
        self._pending: list[_Pending] = []
        self._last = 0
        self._election_due_us: int | None = None
        self._opened = False  #: Whether the first entry of this term is committed.

    def start(self, masters: Sequence[Hearer]) -> None:
        """Begin, with these as the voters."""
        self._masters = masters
        self._followers = [_Follower() for _ in masters]
        self._round()

    def crashed(self, position: int) -> None:
        """A master's process has ended: it leads no more, also if it comes back at once."""
        if self.leader == position:
            self.leader = -1

    def restarted(self, position: int, applied: OpId) -> None:
        """A master has started again from what it had applied."""
        follower = self._followers[position]
        follower.fed = sum(1 for entry in self._world.log if entry.op_id <= applied)
        follower.believes = (0, -1)

    def leads(self, position: int) -> bool:
        """Whether a master leads indeed, whatever it believes."""
        return self.leader == position

    def propose(self, position: int, token: int, term: int, batch: CatalogBatch) -> None:
        """Take a proposal of a master that believes to lead in ``term``."""
        if self.leader != position or self.term != term:
            self._world.coverage.hit("log.proposed_by_deposed")
            if chance(self._rng, 0.5):
                self._later(
                    UNKNOWN_US, position, Decided(token, pick(self._rng, (Outcome.UNKNOWN, Outcome.CERTAINLY_NOT)))
                )
            return
        if chance(self._rng, REFUSED):
            self._world.coverage.hit("outcome.CERTAINLY_NOT")
            self._later(between(self._rng, 0, 5_000), position, Decided(token, Outcome.CERTAINLY_NOT))
            return
        self._last += 1
        op_id = OpId(self.term, self._last)
        withheld = chance(self._rng, WITHHELD)
        if withheld:
            self._world.coverage.hit("outcome.UNKNOWN")
            self._later(0, position, Decided(token, Outcome.UNKNOWN))
        self._pending.append(_Pending(op_id, _as_rows(batch), token, withheld))
        delay_us = skewed(self._rng, *COMMIT_US) + (300_000 if withheld else 0)
        self._world.scheduler.after(delay_us, f"commit up to {op_id}", lambda: self._commit_up_to(op_id))

    def confirm(self, position: int, token: int, term: int) -> None:
        """Answer a read index: ok only for who leads indeed, with a majority, after all committed is applied there."""
        self._world.scheduler.after(
            skewed(self._rng, *COMMIT_US), "read index", lambda: self._confirm(position, token, term)
        )

    def _confirm(self, position: int, token: int, term: int) -> None:
        ok = self.leader == position and self.term == term and self._has_majority(position)
        if ok:
            self._feed(position, len(self._world.log))
        self._tell(position, Confirmed(token, ok))

    def read_index(self, position: int, asked: MasterTick, leader: NodeId) -> None:
        """Carry a question to whom a master takes for the leader, and the answer back, if it leads and goes on to."""
        of = next((master.position for master in self._masters if master_node(master.position) == leader), None)
        if of is None:
            return  # Told of a leader that crashed in that very moment.
        epoch = self._masters[position].epoch

        def arrive() -> None:
            term = self.term
            if self.leader == of and self._opened:
                told = ReadIndexTold(asked, self._world.log[-1].op_id.index)
                delay_us = skewed(self._questions, *COMMIT_US)
                self._world.scheduler.after(delay_us, f"read index of {of}", lambda: confirm(term, told))

        def confirm(term: int, told: ReadIndexTold) -> None:
            if self.leader == of and self.term == term and self._has_majority(of):
                self._way(of, position, lambda: self._tell_run(position, epoch, told))

        self._way(position, of, arrive)

    def _way(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        """Pass on one message of masters among themselves, late or never."""
        lost = source != target and chance(self._questions, LOSS)
        delay_us = skewed(self._questions, DELAY_US_MIN, SLOW_US_MAX if self._world.network.slow else DELAY_US_MAX)

        def arrives() -> None:
            if self._linked(source, target):
                arrive()

        if not lost:
            self._world.scheduler.after(delay_us, f"m{source}>m{target} read index", arrives)

    def _commit_up_to(self, op_id: OpId) -> None:
        """A majority has acknowledged all up to here, unless the leader is gone or alone."""
        if op_id.term != self.term or not self._opened or not self._has_majority(self.leader):
            return
        while self._pending and self._pending[0].op_id <= op_id:
            pending = self._pending.pop(0)
            self._world.commit(Committed(pending.op_id, pending.batch))
            unheard = not pending.told and chance(self._rng, UNHEARD)
            if unheard:
                self._world.coverage.hit("outcome.UNKNOWN")
            first = chance(self._rng, 0.5)
            if not first:
                self._feed(self.leader, len(self._world.log))
            if not pending.told:
                outcome = Decided(pending.token, Outcome.UNKNOWN) if unheard else self._committed(pending)
                self._tell(self.leader, outcome)
            if first:
                self._feed(self.leader, len(self._world.log))

    def _committed(self, pending: _Pending) -> Decided:
        self._world.coverage.hit("outcome.COMMITTED")
        return Decided(pending.token, Outcome.COMMITTED, pending.op_id)

    # -- rounds: followers are fed, leaders are missed ---------------------------------------------

    def _round(self) -> None:
        self._world.scheduler.after(ROUND_US, "log round", self._round)
        self._watch_leader()
        if self.leader < 0 or not self._serves(self.leader):
            return
        if self._pending:
            self._commit_up_to(self._pending[-1].op_id)
        for position in range(len(self._masters)):
            if self._linked(position, self.leader) and chance(self._rng, 0.6):
                self._tell_leader(position)
                if position != self.leader:
                    self._feed(position, self._fed_next(position))
                elif self._opened:
                    self._feed(position, len(self._world.log))

    def _fed_next(self, position: int) -> int:
        behind = len(self._world.log) - self._followers[position].fed
        return len(self._world.log) - (between(self._rng, 0, behind) if chance(self._rng, 0.3) else 0)

    def _tell_leader(self, position: int) -> None:
        follower = self._followers[position]
        belief = (self.term, self.leader)
        if follower.believes != belief:
            follower.believes = belief
            self._tell(position, MasterLeaderChanged(self.term, master_node(self.leader)))

    def _feed(self, position: int, upto: int) -> None:
        """Apply entries on a master, one event each."""
        follower = self._followers[position]
        if not self._serves(position):
            return
        for entry in self._world.log[follower.fed : upto]:
            follower.fed += 1
            self._tell(position, EntryApplied(entry.op_id, entry.batch))

    def _watch_leader(self) -> None:
        """Masters that miss a leader elect another one after a while, if a majority of them hear each other."""
        if self.leader >= 0 and self._has_majority(self.leader):
            self._election_due_us = None
        elif self._election_due_us is None:
            self._election_due_us = self._world.scheduler.now_us + between(self._rng, *ELECTION_US)
        elif self._world.scheduler.now_us >= self._election_due_us:
            able = [m.position for m in self._masters if self._has_majority(m.position)]
            if able:
                self._election_due_us = None
                self._elect(pick(self._rng, able))

    def depose(self) -> None:
        """Elect another one although nothing is wrong: as a transfer does, or a moment's silence."""
        able = [m.position for m in self._masters if self._has_majority(m.position)]
        if able:
            self._elect(pick(self._rng, able))

    def _elect(self, winner: int) -> None:
        survivors = between(self._rng, 0, len(self._pending))
        for pending in self._pending[:survivors]:
            self._world.coverage.hit("log.tail_survived")
            self._world.commit(Committed(pending.op_id, pending.batch))
        if survivors < len(self._pending):
            self._world.coverage.hit("log.tail_lost")
        last = self._world.log[-1].op_id.index if self._world.log else 0
        self.term += between(self._rng, 1, 2)
        self.leader, self._pending, self._last, self._opened = winner, [], last + 1, False
        self._world.coverage.hit("log.elections")
        self._tell_leader(winner)
        op_id, term = OpId(self.term, self._last), self.term
        delay_us = skewed(self._rng, *FIRST_ENTRY_US)
        self._world.scheduler.after(delay_us, f"first entry of {term}", lambda: self._first_entry(op_id))

    def _first_entry(self, op_id: OpId) -> None:
        if op_id.term != self.term:
            return
        if self.leader < 0:
            return
        if not self._has_majority(self.leader):
            self._world.scheduler.after(ROUND_US, f"first entry of {op_id.term}", lambda: self._first_entry(op_id))
            return
        self._opened = True
        self._world.commit(Committed(op_id, None))
        self._feed(self.leader, len(self._world.log))

    # -- who reaches whom --------------------------------------------------------------------------

    def _serves(self, position: int) -> bool:
        place = self._masters[position].place
        return place.up and not place.paused

    def _linked(self, one: int, other: int) -> bool:
        names = self._masters[one].place.name, self._masters[other].place.name
        return self._serves(one) and self._serves(other) and self._world.network.connected(*names)

    def _has_majority(self, position: int) -> bool:
        if position < 0 or not self._serves(position):
            return False
        return sum(self._linked(position, other) for other in range(len(self._masters))) > len(self._masters) // 2

    def _tell(self, position: int, event: Event) -> None:
        self._tell_run(position, self._masters[position].epoch, event)

    def _tell_run(self, position: int, epoch: int, event: Event) -> None:
        master = self._masters[position]

        def hear() -> None:
            if master.epoch == epoch:
                master.hear(event)

        master.place.receive(hear)

    def _later(self, delay_us: int, position: int, event: Event) -> None:
        epoch = self._masters[position].epoch
        self._world.scheduler.after(delay_us, f"tell {position}", lambda: self._tell_run(position, epoch, event))


def _as_rows(batch: CatalogBatch) -> CatalogBatch:
    """What comes out of the log: rows that were encoded and read again."""
    kind, rows = to_rows(batch)
    return from_rows(kind, RowBatch.from_ipc(rows.layout, rows.to_ipc()))
