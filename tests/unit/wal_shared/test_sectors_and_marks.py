"""What a crash leaves of a footer sector by sector, and sectors that hold one byte of a group or record."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from stelae.sim.disk import PowerLost, Survival
from stelae.spi.wal import Append
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import entries, entry
from stelae_wal_shared.fast import FastSharedWal
from stelae_wal_shared.format import GROUP_BYTES, RECORD_BYTES
from stelae_wal_shared.marker import SharedMarker
from tests.unit.wal_shared import scenes

SECTOR = 512
LARGE = scenes.SharedConfig(segment_bytes_first=64 << 10, segment_bytes_max=64 << 10)


@pytest.mark.parametrize("size", [300, 2500])
def test_a_footer_torn_over_a_group_that_nobody_finished_is_a_tail(size: int) -> None:
    """A node that ends for a defect does not wait to hear of its last group, and closes its log."""
    for seed in range(200):
        harness = scenes.harness_of(LARGE, engine_type=FastSharedWal)
        harness.rng.seed(seed)
        engine = harness.open()
        logs = scenes.create_logs(engine, 3)
        for _ in range(1 + seed % 23):
            scenes.extend(engine, logs, size_bytes=137)
        last = {log: engine.logs()[log].last for log in logs}
        begun = engine.begin({logs[0]: Append(entries=entries(last[logs[0]].index + 1, 3, size_bytes=size))})
        assert begun is not None
        assert [write.failure() for write in begun.writes] == [None]
        syncs = 0

        def hook(made: str, path: str, upto: int = 1 + seed % 2) -> None:
            nonlocal syncs
            syncs += made == "sync" and path.endswith(".seg")
            if syncs == upto:
                raise PowerLost("before a sync of the segment")

        harness.disk.faults.hook = hook
        with suppress(PowerLost):
            engine.close()
        harness.disk.faults.hook = None
        harness.crash(engine)
        states = harness.open().logs()
        for log in logs:
            assert states[log].damage is None, (seed, log)
            assert states[log].last >= last[log], (seed, log)


def appended_at(harness: VirtualHarness, offset: int, *bodies: bytes) -> tuple[str, int, int]:
    """A log whose last group, of such entries, begins at this place in a sector: its segment, where, and its last."""
    engine = harness.open()
    (log,) = scenes.create_logs(engine, 1)
    scenes.extend(engine, [log])
    path = scenes.segments(harness.disk)[-1]

    def end() -> int:
        return len(harness.disk.read_bytes(path).rstrip(b"\0"))

    before = end()
    scenes.extend(engine, [log], size_bytes=200)
    overhead = end() - before - 200
    scenes.extend(engine, [log], size_bytes=(offset - end() - overhead) % SECTOR)
    at = end()
    assert at % SECTOR == offset
    last = engine.logs()[log].last.index
    given = tuple(replace(entry(last + 1 + number), body=body) for number, body in enumerate(bodies))
    engine.commit({log: Append(entries=given)}, sync=True)
    harness.crash(engine, Survival.KEPT)
    return path, at, last + len(bodies)


def silent(harness: VirtualHarness, path: str, spans: range, last: int) -> list[int]:
    """Where a changed bit takes an entry away and nobody says so."""
    found = []
    for offset in spans:
        for bit in range(8):
            twin = harness.fork(0)
            twin.disk.damage(path, offset, 1 << bit)
            state, _ = scenes.recovered(twin)
            (state,) = [log.state() for log in state.logs.values()]
            if state.damage is None and state.last.index < last:
                found.append(offset - spans.start)
    return found


@pytest.mark.parametrize("first_byte", [0x00, *[1 << bit for bit in range(8)], 0x03])
def test_a_sector_with_one_byte_of_a_group_is_told_from_a_blank_one(
    first_byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some nonces that byte was zero, or one bit away from it: any change in the header passed for a tear."""
    draw = SharedMarker.draw_nonce
    monkeypatch.setattr(SharedMarker, "draw_nonce", lambda self: draw(self) & ~0xFF | first_byte ^ 0x27)
    harness = scenes.harness_of(LARGE)
    path, at, last = appended_at(harness, SECTOR - 1, b"a" * 20, b"b" * 20, b"c" * 20)
    assert not silent(harness, path, range(at, at + GROUP_BYTES), last)


def test_zeros_of_the_entry_before_do_not_make_a_changed_one_look_torn() -> None:
    """One byte of the second record, the lowest of its size, stood in a sector of zeros, and was one."""
    harness = scenes.harness_of(LARGE)
    one = b"y" * (2 * SECTOR - 1 - GROUP_BYTES - RECORD_BYTES - 600 % SECTOR) + bytes(600 % SECTOR + SECTOR)
    path, at, last = appended_at(harness, 0, one, b"z" * 256)
    second = at + GROUP_BYTES + RECORD_BYTES + len(one)
    assert second % SECTOR == SECTOR - 1
    assert not silent(harness, path, range(second, second + RECORD_BYTES + 256), last)


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_footer_was_written_behind_was_durable(whole: bool) -> None:
    """The next segment has no name yet: a changed entry before the footer passed for torn, for it has zeros."""
    harness = scenes.harness_of()
    engine = harness.open()
    (log,) = scenes.create_logs(engine, 1)

    def hook(made: str, _: str) -> None:
        if made == "rename":
            raise PowerLost("the next segment has no name yet")

    harness.disk.faults.hook = hook
    with pytest.raises(PowerLost):
        while True:
            last = engine.logs()[log].last.index
            body = replace(entry(last + 1), body=b"x" * 20 + bytes(1100))
            engine.commit({log: Append(entries=(body,))}, sync=True)
    harness.disk.faults.hook = None
    last = engine.logs()[log].last.index
    harness.crash(engine, Survival.KEPT)
    path = scenes.segments(harness.disk)[-1]
    if not whole:
        harness.disk.cut(path, len(harness.disk.read_bytes(path)) - 1)
    state, _ = scenes.recovered(harness)
    assert state.logs[log].last.index == last
    harness.disk.damage(path, harness.disk.read_bytes(path).rfind(b"x" * 20) + 3)
    state, _ = scenes.recovered(harness)
    assert state.logs[log].damage is not None
