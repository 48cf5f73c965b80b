"""The file of a source with the pieces of one snapshot."""

from __future__ import annotations

import hashlib

import pytest

from stelae.lifecycle.copy_spool import CopySpool
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import Full

PATH = "node/serving/run/copy-1"


def test_pieces_are_read_at_any_offset_and_described() -> None:
    disk = VirtualDisk()
    spool = CopySpool(disk, PATH)
    units = spool.add([("log/1-2", b"first"), ("log/3-3", b""), ("log/4-9", b"second piece")])
    assert [(unit.name, unit.size_bytes) for unit in units] == [("log/1-2", 5), ("log/3-3", 0), ("log/4-9", 12)]
    assert units[2].digest == hashlib.sha256(b"second piece").hexdigest()
    assert "log/1-2" in spool
    assert "rows/a" not in spool
    assert (spool.read("log/1-2", 1, 3), spool.read("log/4-9", 7, 5)) == (b"irs", b"piece")
    spool.close()
    spool.close()
    assert not disk.exists(PATH)


def test_a_spool_leaves_as_much_space_as_it_takes() -> None:
    disk = VirtualDisk()
    disk.faults.capacity_bytes = 100_000
    spool = CopySpool(disk, PATH)
    units = []
    with pytest.raises(Full, match="bytes free"):
        for number in range(1, 100):
            units += spool.add([(f"log/{number}-{number}", bytes(3_000))])
    assert 47_000 < sum(unit.size_bytes for unit in units) <= 50_000
    disk.make_directory("node/wals")
    disk.create("node/wals/1").pwritev([bytes(40_000)], 0)
    spool.close()


def test_a_full_disk_is_an_error_and_the_spool_leaves_nothing() -> None:
    disk = VirtualDisk()
    disk.faults.capacity_bytes = 100_000
    spool = CopySpool(disk, PATH)
    with pytest.raises(Full):
        spool.add((f"log/{number}-{number}", bytes(30_000)) for number in range(1, 10))
    spool.close()
    assert not disk.exists(PATH)
