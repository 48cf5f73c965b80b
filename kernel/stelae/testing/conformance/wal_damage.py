"""Conformance checks for log engines: damaged files are reported, and damage is never cut away without a report."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from stelae.spi.errors import Corrupt, Foreign, FutureVersion, StelaeError, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.conformance.wal_crashes import WalCrashes
from stelae.testing.wal_harness import Survival, VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, READ_BYTES, Model, commit, entries, entry, observed

FLIPS_MAX = 4000
"""The most single bits that one check flips, spread evenly over the bytes."""

SET_ASIDE_STEP = 8
"""Of the logs with a flipped bit, one in this number is set aside."""

PADDING = re.compile(rb"(.)\1{1023,}", re.DOTALL)
"""Equal bytes that fill a page or reserved space, longer than any body here. One bit of them is enough."""


def flips(contents: bytes) -> Iterator[tuple[int, int]]:
    """Yield offsets and masks: one bit in every byte, or in every n-th of a large file; in the first of padding."""
    offsets = list(range(len(contents)))
    for padding in reversed(list(PADDING.finditer(contents))):
        del offsets[padding.start() + 1 : padding.end()]
    for offset in offsets[:: len(offsets) // FLIPS_MAX + 1]:
        yield offset, 1 << (offset % 8)


LAST_GROUPS = (
    Append(entries=(entry(6, 2, 0),)),
    Append(entries=entries(6, 3, term=2, size_bytes=40)),
    Append(entries=(entry(6, 2, 900), entry(7, 2, 700))),
    Append(entries=(entry(4, 3, 30),), replace_from=4),
    Append(entries=(), replace_from=3),
)
"""The last group of a log that holds entries 1 to 5 of term 1."""


class WalDamage(WalCrashes):
    """Checks of flipped bits and cut files. They run on a virtual disk, because there are thousands."""

    def test_a_flipped_bit_in_a_closed_log_is_reported_or_harms_nothing(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        for turn in range(6):
            given = Append(entries=entries(1 + 5 * turn, 5, term=turn + 1, size_bytes=240))
            commit(engine, given)
            model = model.append(given)
        engine.close()
        reported = 0
        for path, contents in harness.tree().items():
            for offset, mask in flips(contents):
                reported += _flip(harness, path, offset, mask, model)
        assert reported > 1000

    def test_a_flipped_bit_before_a_later_entry_of_an_open_log_is_reported_or_harms_nothing(
        self, harness: VirtualHarness
    ) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        commit(engine, Append(entries=(entry(4, 1, 0), entry(5, 1, 600))))
        before = harness.tree()
        commit(engine, Append(entries=(entry(6, 2, 30),)))
        model = Model(ZERO, [*entries(1, 3), entry(4, 1, 0), entry(5, 1, 600), entry(6, 2, 30)])
        harness.crash(engine, Survival.KEPT)
        reported = 0
        for path, contents in harness.tree().items():
            for offset, mask in flips(contents[: first_difference(before.get(path, b""), contents)]):
                reported += _flip(harness, path, offset, mask, model)
        assert reported > 500

    def test_a_flipped_bit_in_the_last_group_of_a_killed_engine_is_reported_or_harms_nothing(
        self, harness: VirtualHarness
    ) -> None:
        """The group was acknowledged, and no later bytes show that."""
        reported = 0
        for number, last in enumerate(LAST_GROUPS):
            earlier = Model(ZERO, [*entries(1, 3), entry(4, 1, 0), entry(5, 1, 600)])
            twin = harness.fork(number)
            engine = twin.open()
            engine.create(LOG, ZERO)
            commit(engine, Append(entries=tuple(earlier.held[:3])))
            commit(engine, Append(entries=tuple(earlier.held[3:])))
            before = twin.tree()
            commit(engine, last)
            twin.crash(engine, Survival.KEPT)
            for path, contents in twin.tree().items():
                for offset in changed(before.get(path, b""), contents):
                    reported += _flip(twin, path, offset, 1 << offset % 8, earlier.append(last), earlier)
        assert reported > 500

    def test_a_file_cut_short_or_missing_is_reported_or_harms_nothing_but_the_tail(
        self, harness: VirtualHarness
    ) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        for turn in range(10):
            given = Append(entries=entries(1 + 12 * turn, 12, size_bytes=100), commit_hint=12)
            commit(engine, given)
            model = model.append(given)
        before = harness.tree()
        commit(engine, Append(entries=(entry(121),)))
        harness.crash(engine, Survival.KEPT)
        model = model.append(Append(entries=(entry(121),)))
        for path, contents in harness.tree().items():
            if contents != before.get(path):
                continue
            for size in (0, 1, 40, len(contents) // 2, len(contents) - 1):
                twin = harness.fork(0)
                twin.disk.cut(path, min(size, len(contents)))
                check_damaged(twin, model, f"{path} cut to {size}")
                check_set_aside(twin, f"{path} cut to {size}")
            twin = harness.fork(0)
            twin.disk.remove(path)
            twin.disk.sync_directory(path.rpartition("/")[0])
            check_damaged(twin, model, f"{path} removed")
            check_set_aside(twin, f"{path} removed")

    def test_a_read_that_fails_is_an_error_and_not_damage(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 30)))
        harness.disk.faults.fail_reads(harness.directory, 1)
        with pytest.raises(StorageError):
            engine.read(LOG, 1, 31, READ_BYTES)
        assert engine.logs()[LOG].damage is None
        assert engine.read(LOG, 1, 31, READ_BYTES) == list(entries(1, 30))
        engine.close()


def first_difference(before: bytes, after: bytes) -> int:
    """Return the first offset at which two contents differ, also if one is only longer; 0 if they are equal."""
    if before == after:
        return 0
    pairs = enumerate(zip(before, after, strict=False))
    return next((offset for offset, (old, new) in pairs if old != new), min(len(before), len(after)))


def changed(before: bytes, after: bytes) -> range:
    """Return the offsets from the first to the last byte of a file that the last commit changed."""
    end = len(after)
    if len(before) == end:
        while end and before[end - 1] == after[end - 1]:
            end -= 1
    return range(min(first_difference(before, after), end), end)


def _flip(
    harness: VirtualHarness, path: str, offset: int, mask: int, model: Model, earlier: Model | None = None
) -> bool:
    """Flip a bit in a copy of the disk and check what the engine reports; return whether it reports damage."""
    twin = harness.fork(0)
    twin.disk.damage(path, offset, mask)
    what = f"{path}@{offset} ^ {mask:#04x}"
    reported = check_damaged(twin, model, what, earlier)
    if reported and offset % SET_ASIDE_STEP == 0:
        check_set_aside(twin, what)
    return reported


def check_damaged(harness: WalHarness, model: Model, what: str, earlier: Model | None = None) -> bool:
    """Check that a log whose files were changed is complete or reports damage; return whether it reports it.

    Args:
        harness: on the changed files.
        model: what the log held.
        what: the change, for messages.
        earlier: what the log held before its last group, if that group was changed. If the group is reported as
            damaged, the log may end with entries that the group replaced.
    """
    try:
        engine = harness.open()
    except (Foreign, FutureVersion):
        return True
    assert LOG in engine.logs(), f"{what}: the log is gone"
    if engine.logs()[LOG].damage is None:
        try:
            assert observed(engine) == model, what
        except Corrupt as error:
            assert error.path, what
            assert error.offset is not None, what
    damage = engine.logs()[LOG].damage
    if damage is not None:
        assert damage.path.startswith(harness.directory), what
        assert damage.offset >= 0, what
        held = model if damage.last_good in _op_ids(model) else earlier or model
        _check_refusals(engine, held, damage.last_good, what)
    harness.crash(engine)
    return damage is not None


def check_set_aside(harness: WalHarness, what: str) -> None:
    """Check that one call sets a log aside whose files were changed. Otherwise the deletion of its replica never ends.

    Args:
        harness: on the changed files. Afterwards its log is gone.
        what: the change, for messages.
    """
    try:
        engine = harness.open()
    except (Foreign, FutureVersion):
        return
    try:
        engine.set_aside(LOG, f"{harness.directory.rpartition('/')[0]}/quarantine/changed")
    except StelaeError as error:
        raise AssertionError(f"{what}: the log cannot be set aside: {error}") from error
    for _ in range(2):
        assert LOG not in engine.logs(), what
        harness.crash(engine)
        engine = harness.open()
    harness.crash(engine)


def _op_ids(model: Model) -> list[OpId]:
    return [model.base, *(one.op_id for one in model.held)]


def _check_refusals(engine: WalEngine, model: Model, good: OpId, what: str) -> None:
    """Check that a damaged log gives out the entries before the damage and refuses everything else."""
    assert good in _op_ids(model), what
    state = engine.logs()[LOG]
    assert state.last == good, what
    if good.index > state.base.index:
        found = engine.read(LOG, state.base.index + 1, good.index + 1, READ_BYTES)
        assert found == model.held[: good.index - model.base.index], what
    with pytest.raises(Corrupt):
        engine.read(LOG, good.index + 1, good.index + 2, READ_BYTES)
    with pytest.raises(Corrupt):
        engine.repair(LOG)
    given = Append(entries=entries(good.index + 1, 1, term=99))
    outcome = engine.commit({LOG: given}, sync=True)[LOG]
    assert isinstance(outcome, Failed), what
    assert isinstance(outcome.error, Corrupt), what
