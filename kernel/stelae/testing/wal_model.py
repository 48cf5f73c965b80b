"""A model of what a log must hold, to compare an engine with, also after a crash.

A model is a base and the entries above it. After a crash within an append, the log must equal one of a few models;
``possible_after`` lists them."""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Append, Durable, WalEngine

LOG = LogId(TabletId("tablet-a"), 1)
OTHER = LogId(TabletId("tablet-b"), 7)

READ_BYTES = 1 << 30


def entry(index: int, term: int = 1, size_bytes: int = 24) -> Entry:
    """Return an entry whose body contains index and term, and ends with zeros, so that zeros do not mark its end."""
    stamp = b"<%d.%d>" % (term, index)
    zeros = zeros_at_end(size_bytes)
    body = (stamp * (size_bytes // len(stamp) + 1))[: size_bytes - zeros] + bytes(zeros)
    return Entry(OpId(term, index), EntryKind.WRITE, 1_000_000 + index, body)


def zeros_at_end(size_bytes: int) -> int:
    """Return how many zeros the body of an ``entry`` ends with. They are too few to fill a sector."""
    return min(size_bytes // 8, 100)


def entries(first: int, count: int, term: int = 1, size_bytes: int = 24) -> tuple[Entry, ...]:
    """Return consecutive entries of one term."""
    return tuple(entry(index, term, size_bytes) for index in range(first, first + count))


@dataclass(slots=True)
class Model:
    """The contents of one log."""

    base: OpId = ZERO
    held: list[Entry] = field(default_factory=list)

    @property
    def last(self) -> OpId:
        """Op id of the last entry."""
        return self.held[-1].op_id if self.held else self.base

    def append(self, append: Append) -> Model:
        """Return the model after an append."""
        before = self.held
        if append.replace_from is not None:
            before = before[: append.replace_from - self.base.index - 1]
        return Model(self.base, [*before, *append.entries])

    def possible_after(self, append: Append) -> list[Model]:
        """Return the models that a crash within an append may leave: the one before, and one for each prefix of the new
        entries. The replaced entries go with the first new one, and not before."""
        counts = range(1, len(append.entries) + 1) if append.entries else (0,)
        return [self, *[self.append(_shortened(append, count)) for count in counts]]


def _shortened(append: Append, count: int) -> Append:
    return Append(entries=append.entries[:count], replace_from=append.replace_from)


def observed(engine: WalEngine, log: LogId = LOG) -> Model:
    """Read everything that an engine holds of a log; check that its methods agree."""
    state = engine.logs()[log]
    assert state.damage is None, state.damage
    held: list[Entry] = []
    if state.last.index > state.base.index:
        held = engine.read(log, state.base.index + 1, state.last.index + 1, READ_BYTES)
    model = Model(state.base, held)
    assert model.last == state.last
    assert state.commit_hint <= state.last.index
    assert engine.op_id_at(log, state.base.index) == state.base
    for found in held:
        assert engine.op_id_at(log, found.op_id.index) == found.op_id
    return model


def intact(engine: WalEngine, log: LogId = LOG) -> Model:
    """As :func:`observed`, for a log that must not be damaged."""
    try:
        return observed(engine, log)
    except Corrupt as error:
        raise AssertionError(f"log {log} is damaged: {error}") from error


def check_holds(engine: WalEngine, model: Model, log: LogId = LOG) -> None:
    """Check that a log equals a model, apart from entries that were collected."""
    found = intact(engine, log)
    assert found.base.index >= model.base.index
    above = [known for known in model.held if known.op_id.index > found.base.index]
    assert [e.op_id for e in found.held] == [e.op_id for e in above]
    assert found.held == above
    if found.base.index > model.base.index:
        assert found.base in [known.op_id for known in model.held]


def commit(engine: WalEngine, append: Append, log: LogId = LOG) -> None:
    """Commit one append with sync. It must succeed."""
    outcome = engine.commit({log: append}, sync=True)[log]
    assert isinstance(outcome, Durable), outcome
    if append.entries:
        assert outcome.last == append.entries[-1].op_id
