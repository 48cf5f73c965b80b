"""Trouble that passes leaves no trace; of two bad places in a log the earlier one counts."""

from __future__ import annotations

import pytest

from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.errors import Corrupt, Full, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, Failed
from stelae.testing.conformance.wal_failures import limit_room
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries
from tests.unit.wal_segmented.scenes import ALL, FIRST, PLACE, filled, small_harness


def test_a_log_that_found_no_handle_goes_on_when_there_are_some_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with too many tablets for its limit of handles once gave up every replica that it opened a file for."""
    harness = small_harness()
    engine = filled(harness)
    engine.cool(LOG)
    opened = VirtualDisk.open

    def no_handle(disk: VirtualDisk, path: str, *, writable: bool = False) -> object:
        if path.startswith(PLACE):
            raise Full("no handle or no memory: Too many open files; raise the limit", path=path)
        return opened(disk, path, writable=writable)

    given = Append(entries=entries(61, 1))
    with monkeypatch.context() as patch:
        patch.setattr(VirtualDisk, "open", no_handle)
        outcome = engine.commit({LOG: given}, sync=True)[LOG]
        assert isinstance(outcome, Failed) and isinstance(outcome.error, Full)
        assert outcome.durable == ALL[-1].op_id
    assert engine.repair(LOG) == ALL[-1].op_id
    commit(engine, given)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, Model(ZERO, [*ALL, *given.entries]))
    engine.close()


def test_a_repair_that_cannot_read_now_can_be_repeated() -> None:
    harness = small_harness()
    engine = filled(harness, 10)
    limit_room(harness, 0)
    assert isinstance(engine.commit({LOG: Append(entries=entries(11, 40, size_bytes=900))}, sync=True)[LOG], Failed)
    limit_room(harness, None)
    harness.disk.faults.fail_reads(PLACE)
    with pytest.raises(StorageError) as caught:
        engine.repair(LOG)
    assert not isinstance(caught.value, Full)
    assert engine.repair(LOG) == OpId(1, 10)
    commit(engine, Append(entries=entries(11, 1)))
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, Model(ZERO, [*ALL[:10], *entries(11, 1)]))
    engine.close()


def test_a_reader_that_meets_older_damage_later_ends_the_log_there() -> None:
    harness = small_harness()
    engine = filled(harness, 10)
    engine.create(OTHER, ZERO)
    for index, good in ((7, 6), (3, 2)):
        harness.disk.damage(FIRST, harness.disk.read_bytes(FIRST).index(ALL[index - 1].body))
        with pytest.raises(Corrupt):
            engine.read(LOG, index, index + 1, READ_BYTES)
        state = engine.logs()[LOG]
        assert state.damage is not None
        assert state.last == state.damage.last_good == OpId(1, good)
        assert engine.read(LOG, 1, good + 1, READ_BYTES) == list(ALL[:good])
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    harness.crash(engine)
