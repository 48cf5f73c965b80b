"""One recorded run yields the disks that a run for each byte leaves."""

from __future__ import annotations

from contextlib import suppress

from stelae.sim.disk import PowerLost, VirtualDisk
from stelae.testing.conformance.wal_partial_writes import disks_within_writes


def a_disk() -> VirtualDisk:
    disk = VirtualDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    disk.replace("/d/a", b"0123456789" + bytes(10))
    return disk


def act(disk: VirtualDisk) -> int:
    """Write over bytes, over equal bytes and beyond the end; to a renamed and a removed file. Return the bytes."""
    written = 0

    def write(buffers: list[bytes], offset: int, *, dsync: bool = False) -> None:
        nonlocal written
        written += file.pwritev(buffers, offset, dsync=dsync)

    file = disk.open("/d/a", writable=True)
    write([b"abc", b"34xy7"], 0)
    write([b"end" + bytes(5) + b"more"], 14, dsync=True)
    write([b"then zeros" + bytes(4)], 4)
    file.truncate(4)
    file = disk.create("/d/b")
    disk.rename("/d/b", "/d/c")
    write([b"renamed"], 0)
    file.sync()
    disk.remove("/d/c")
    write([b"no name"], 0)
    file = disk.open("/d/a", writable=True)
    write([b"last"], 2, dsync=True)
    return written


def trees_after(limit: str) -> set[tuple[tuple[str, bytes], ...]]:
    """The files after power was lost at each operation or at each byte of ``act``, and after all of it."""
    found = set()
    for length in range(act(a_disk()) + 1):
        disk = a_disk()
        disk.faults.lose_power_after(**{limit: length})
        with suppress(PowerLost):
            act(disk)
        found.add(tuple(disk.tree().items()))
    return found


def test_the_disks_are_those_of_a_power_loss_at_each_byte_each_once() -> None:
    disk = a_disk()
    trees = [tuple(cut.tree().items()) for cut in disks_within_writes(disk, lambda: act(disk))]
    assert len(trees) == len(set(trees)) < act(a_disk())
    bytewise = trees_after("written_bytes")
    assert bytewise <= {*trees, tuple(disk.tree().items())} <= bytewise | trees_after("operations")


def test_what_was_written_of_a_cut_write_is_not_durable() -> None:
    disk = a_disk()
    before = disk.tree()
    for cut in disks_within_writes(disk, lambda: disk.open("/d/a", writable=True).pwritev([b"abcdef"], 0)):
        assert cut.is_durable("/d/a") is (cut.tree() == before)
