"""Conformance checks for stores: the files of a store, when they are copied, replaced, left over or damaged.

They need an engine with ``durable_flush`` whose input and output goes through ``Files``. The tests of another engine
have to check the same on its own files."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any

from stelae.rows.found_rows import plain_rows
from stelae.rows.keys import encode_key
from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.errors import StorageError
from stelae.spi.scan import ScanSpec
from stelae.spi.store import StoreSnapshot
from stelae.testing.conformance.store_harness import DIRECTORY, SCHEMA, HarnessReplica, StoreHarness, delete, upsert
from stelae.testing.conformance.store_model import Row

FLIPS_MAX = 250
"""The most bits that the check of damage flips, spread evenly over the bytes of all files."""

KEYS = 30
EVERY_KEY = [encode_key(SCHEMA, (n,)) for n in range(KEYS)]


def needs_files(harness: StoreHarness) -> None:
    """Skip a check, with the reason, unless a store leaves files that the check can see."""
    harness.needs("durable_flush")
    harness.needs("fake_files")


def written(harness: StoreHarness) -> HarnessReplica:
    """Make a replica with rows of several flushes, some of them replaced or deleted."""
    replica = harness.replica()
    for turn in range(4):
        replica.write(upsert(*((n, f"t{turn}", n) for n in range(turn, KEYS, turn + 1))))
        replica.write(delete((7 + turn,)))
        replica.flush()
    return replica


def write_over(replica: HarnessReplica) -> None:
    """Replace and delete rows, flush, and merge, so that nothing from before is needed any more."""
    for turn in range(4):
        replica.write(upsert(*((n, f"later {turn}", -n) for n in range(KEYS))), delete((turn,)))
        replica.store.set_history_floor(10 * len(replica.log))
        replica.flush()
        replica.compact()


def files_of(disk: VirtualDisk) -> dict[str, bytes]:
    """Return the contents of the files of the store, by path."""
    return {path: data for path, data in disk.tree().items() if path.startswith(f"{DIRECTORY}/")}


def killed(replica: HarnessReplica) -> None:
    """End the process and start it again. The disk keeps all that was written, and the log is not applied."""
    replica.disk = replica.disk.crash(random.Random(0), Survival.KEPT)
    replica.open()


class FileChecks:
    """Checks of the files of a store."""

    def test_the_files_of_a_snapshot_and_its_edit_are_the_store_elsewhere(self, harness: StoreHarness) -> None:
        """That is how a replica is copied to another node."""
        harness.needs("files")
        needs_files(harness)
        replica = written(harness)
        rows, flushed = replica.rows(), replica.flushed
        replica.write(upsert((99, "not flushed", 0)))
        snapshot = replica.store.snapshot()
        assert (snapshot.edit.manifest, snapshot.edit.flushed) == (replica.manifest, flushed)
        other = harness.replica()
        _put(other.disk, _contents(snapshot, replica.disk))
        other.manifest, other.flushed = snapshot.edit.manifest, snapshot.edit.flushed
        other.open()
        assert other.store.applied == flushed, "the copy does not have the rows up to the flushed op id of the edit"
        assert other.rows() == rows
        snapshot.release()

    def test_a_snapshot_of_files_does_not_change_until_it_is_released(self, harness: StoreHarness) -> None:
        harness.needs("files")
        needs_files(harness)
        replica = written(harness)
        snapshot = replica.store.snapshot()
        before = _contents(snapshot, replica.disk)
        write_over(replica)
        assert _contents(snapshot, replica.disk) == before, "files of a snapshot were changed by later edits"
        snapshot.release()
        snapshot.release()
        assert _left_until_a_restart(replica) == set(), "files are kept after the snapshot was released"

    def test_a_snapshot_that_is_released_after_its_store_was_closed_removes_nothing(
        self, harness: StoreHarness
    ) -> None:
        """A copied replica had the directory by then, with files of the same names. It lost them."""
        harness.needs("files")
        needs_files(harness)
        replica = written(harness)
        snapshot = replica.store.snapshot()
        write_over(replica)
        replica.store.close()
        before = files_of(replica.disk)
        snapshot.release()
        assert files_of(replica.disk) == before, "a closed store removes files"
        replica.open()
        assert _left_until_a_restart(replica) == set()

    def test_the_commit_of_an_edit_removes_the_files_that_it_replaces(self, harness: StoreHarness) -> None:
        needs_files(harness)
        replica = written(harness)
        write_over(replica)
        assert _left_until_a_restart(replica) == set(), "files that no edit needs are kept until the next start"

    def test_a_start_removes_the_files_of_edits_without_effect(self, harness: StoreHarness) -> None:
        """Otherwise every crash between a flush and its superblock would leave files for good."""
        needs_files(harness)
        replica = written(harness)
        killed(replica)
        before = set(files_of(replica.disk))
        for turn in range(3):
            replica.store.apply([e for e in replica.log if e.op_id > replica.store.applied])
            replica.write(upsert(*((n, f"lost {turn}", n) for n in range(KEYS))))
            assert replica.store.flush() is not None
            killed(replica)
            left = set(files_of(replica.disk)) - before
            assert not left, f"files of an edit that never took effect are kept: {', '.join(sorted(left))}"

    def test_a_flipped_bit_is_reported_or_harms_nothing(self, harness: StoreHarness) -> None:
        needs_files(harness)
        replica = written(harness)
        expected, reported = _everything(replica), 0
        places = [(path, at) for path, data in files_of(replica.disk).items() for at in range(len(data))]
        for path, at in places[:: len(places) // FLIPS_MAX + 1]:
            reported += _damage_shows(harness, replica, expected, f"{path}@{at}", path, at)
        assert reported, "no flipped bit was reported"

    def test_a_file_cut_short_or_missing_is_reported_or_harms_nothing(self, harness: StoreHarness) -> None:
        needs_files(harness)
        replica = written(harness)
        expected, reported = _everything(replica), 0
        for path, data in files_of(replica.disk).items():
            for size in (None, 0, len(data) // 2, len(data) - 1):
                what = f"{path} {'removed' if size is None else f'cut to {size} bytes'}"
                reported += _damage_shows(harness, replica, expected, what, path, None, size)
        assert reported, "no file that is cut short or missing was reported"

    def test_flushed_rows_do_not_count_as_memory(self, harness: StoreHarness) -> None:
        """The kernel flushes by this figure. If it did not go down, the kernel would flush all the time."""
        harness.needs("durable_flush")
        replica = harness.replica()
        replica.insert(*((n, "a" * 100, n) for n in range(200)))
        many = replica.store.memory_bytes()
        replica.flush()
        assert replica.store.memory_bytes() <= many / 5


def _contents(snapshot: StoreSnapshot, disk: VirtualDisk) -> dict[str, bytes]:
    """Return the contents of the files of a snapshot by name; check that they are as it says."""
    found = {}
    for unit in snapshot.files:
        path = f"{DIRECTORY}/{unit.name}"
        assert disk.exists(path), f"{unit.name} of a snapshot that was not released is gone"
        data = found[unit.name] = disk.read_bytes(path)
        says = (unit.size_bytes, unit.digest)
        assert says == (len(data), hashlib.sha256(data).hexdigest()), f"{unit.name} is not as the snapshot says"
    return found


def _put(disk: VirtualDisk, files: Mapping[str, bytes]) -> None:
    """Write files into the directory of a store."""
    for name, data in files.items():
        path = f"{DIRECTORY}/{name}"
        disk.make_directory(path.rpartition("/")[0])
        disk.replace(path, data)


def _left_until_a_restart(replica: HarnessReplica) -> set[str]:
    """Restart; return the paths of the files that this has removed."""
    before = set(files_of(replica.disk))
    killed(replica)
    return before - set(files_of(replica.disk))


def _everything(replica: HarnessReplica) -> dict[str, Any]:
    """Return what reads of every kind return."""
    store, last = replica.store, 10 * len(replica.log)
    found: dict[str, Any] = {
        "rows": replica.rows(),
        "some columns": replica.rows(columns=(3, 1)),
        "lookups": list(plain_rows(store.lookup(EVERY_KEY))),
        "checksum": store.checksum(),
        "export": sum(len(batch.rows) for batch in store.export()),
    }
    if "history" in store.capabilities:
        found |= {f"rows at {at}": replica.rows(at) for at in range(10, last + 1, 30)}
        found["diff"] = _changes(replica, 10, last)
    return found


def _changes(replica: HarnessReplica, after: int, until: int) -> tuple[list[Row], list[Row]]:
    changes = list(replica.store.diff(after, until, ScanSpec()))
    changed = [row for change in changes for row in change.changed.to_rows()]
    return changed, [row for change in changes for row in change.deleted.to_rows()]


def _damage_shows(
    harness: StoreHarness,
    replica: HarnessReplica,
    expected: Mapping[str, Any],
    what: str,
    path: str,
    flipped: int | None,
    size: int | None = None,
) -> bool:
    """Damage a file on a copy of the disk, and read everything there; return whether an error reports it.

    Args:
        expected: what the reads return without the damage.
        what: the damage, for messages.
        flipped: the offset of the byte with a flipped bit; ``None``: the file is cut.
        size: the length to which it is cut; ``None``: it is removed.

    Raises:
        AssertionError: a read returns something else, or fails with an error that says nothing about the storage.
    """
    disk = replica.disk.clone()
    if flipped is not None:
        disk.damage(path, flipped, 1 << flipped % 8)
    elif size is not None:
        disk.cut(path, size)
    else:
        disk.remove(path)
        disk.sync_directory(path.rpartition("/")[0])
    twin = harness.replica()
    twin.disk, twin.log, twin.schemas = disk, replica.log, replica.schemas
    twin.manifest, twin.flushed = replica.manifest, replica.flushed
    try:
        twin.open()
        found = _everything(twin)
        twin.store.compact()
        merged = twin.rows()
    except StorageError:
        return True
    except Exception as error:
        raise AssertionError(f"{what}: the store fails with {error!r}, which is no StorageError") from error
    for read, wanted in expected.items():
        assert found[read] == wanted, f"{what}: {read} are wrong, and no error says so"
    assert merged == expected["rows"], f"{what}: rows are wrong after a merge, and no error says so"
    return False
