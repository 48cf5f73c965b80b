"""The virtual disk forgets what was not synced, and nothing else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from stelae.sim.disk import PowerLost, Survival, VirtualDisk
from stelae.spi.errors import Full, StorageError, SyncFailed


def a_disk() -> VirtualDisk:
    disk = VirtualDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def a_file(disk: VirtualDisk, contents: bytes = b"") -> None:
    disk.replace("/d/a", contents)


def after_crashes(build: Callable[[], VirtualDisk], count: int = 300) -> set[bytes | None]:
    found: set[bytes | None] = set()
    for seed in range(count):
        disk = build().crash(random.Random(seed))
        found.add(disk.read_bytes("/d/a") if disk.exists("/d/a") else None)
    return found


def test_what_was_synced_survives_every_crash() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        file = disk.create("/d/a")
        file.pwritev([b"0123"], 0)
        file.sync()
        disk.sync_directory("/d")
        file.pwritev([b"45"], 4, dsync=True)
        return disk

    assert after_crashes(build) == {b"012345"}


def test_what_was_not_synced_is_kept_lost_or_cut_at_any_byte() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        a_file(disk)
        disk.open("/d/a", writable=True).pwritev([b"0123456789"], 0)
        return disk

    assert after_crashes(build, 1000) == {b"0123456789"[:length] for length in range(11)}


def test_sectors_of_one_write_survive_independently() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        a_file(disk, bytes(1536))
        disk.open("/d/a", writable=True).pwritev([b"x" * 1536], 0)
        return disk

    holes = {bytes(512), b"x" * 512}
    assert {a + b + c for a in holes for b in holes for c in holes} <= after_crashes(build)


def test_a_later_write_may_survive_an_earlier_one() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        a_file(disk, b"..")
        file = disk.open("/d/a", writable=True)
        file.pwritev([b"1"], 0)
        file.pwritev([b"2"], 1)
        return disk

    assert after_crashes(build) == {b"..", b"1.", b".2", b"12"}


def test_a_synchronous_write_does_not_make_earlier_writes_durable() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        a_file(disk, b"..")
        file = disk.open("/d/a", writable=True)
        file.pwritev([b"1"], 0)
        file.pwritev([b"2"], 1, dsync=True)
        return disk

    assert after_crashes(build) == {b".2", b"12"}


def test_truncation_is_undone_when_it_is_lost() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        a_file(disk, b"0123456789")
        file = disk.open("/d/a", writable=True)
        file.truncate(3)
        file.pwritev([b"x"], 3)
        return disk

    found = after_crashes(build)
    assert {b"0123456789", b"012", b"012x"} <= found
    assert all(data is not None and data.startswith(b"012") for data in found)


def test_a_name_is_durable_after_its_directory_was_synced() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        file = disk.create("/d/a")
        file.pwritev([b"x"], 0, dsync=True)
        return disk

    assert after_crashes(build) == {None, b"x"}

    def build_synced() -> VirtualDisk:
        disk = build()
        disk.sync_directory("/d")
        return disk

    assert after_crashes(build_synced) == {b"x"}


def test_a_rename_is_never_half_done_and_never_without_what_it_renames() -> None:
    for seed in range(300):
        disk = a_disk()
        a_file(disk, b"old")
        disk.create("/d/b").pwritev([b"new"], 0, dsync=True)
        disk.rename("/d/b", "/d/a")
        disk.create("/d/c")
        disk.rename("/d/a", "/d/z")
        after = disk.crash(random.Random(seed))
        names = tuple(after.listdir("/d"))
        assert {name for name in names if name != "c"} in ({"a"}, {"a", "b"}, {"z"})
        if "z" in names:
            assert after.read_bytes("/d/z") == b"new"
        if "b" in names:
            assert after.read_bytes("/d/a") == b"old"


def test_a_rename_to_another_directory_needs_both_directories_synced() -> None:
    def build(synced: tuple[str, ...]) -> set[tuple[bool, bool]]:
        found = set()
        for seed in range(100):
            disk = a_disk()
            disk.make_directory("/e")
            disk.sync_directory("/")
            a_file(disk, b"x")
            disk.rename("/d/a", "/e/a")
            for path in synced:
                disk.sync_directory(path)
            after = disk.crash(random.Random(seed))
            found.add((after.exists("/d/a"), after.exists("/e/a")))
        return found

    assert build(()) == build(("/e",)) == {(True, False), (False, True)}
    assert build(("/d", "/e")) == {(False, True)}


def test_a_lost_directory_takes_along_what_is_in_it() -> None:
    disk = VirtualDisk()
    disk.make_directory("/d")
    disk.create("/d/a").sync()
    disk.sync_directory("/d")
    assert disk.clone().crash(random.Random(1), Survival.LOST).tree() == {}
    assert disk.crash(random.Random(1), Survival.KEPT).tree() == {"/d/a": b""}


def test_replace_is_atomic_at_every_operation() -> None:
    total = _operations(lambda disk: disk.replace("/d/a", b"new"))
    assert total >= 5
    seen = set()
    for count in range(total + 1):
        for seed in range(40):
            disk = a_disk()
            a_file(disk, b"old")
            disk.faults.lose_power_after(operations=count)
            try:
                disk.replace("/d/a", b"new")
            except PowerLost:
                assert count < total
            after = disk.crash(random.Random(seed)).read_bytes("/d/a")
            seen.add(after)
            assert after == b"new" if count == total else after in (b"old", b"new")
    assert seen == {b"old", b"new"}


def _operations(work: Callable[[VirtualDisk], object]) -> int:
    disk = a_disk()
    a_file(disk, b"old")
    before = disk.faults.operations
    work(disk)
    return disk.faults.operations - before


def test_power_is_lost_at_an_operation_of_one_kind() -> None:
    disk = a_disk()
    disk.faults.lose_power_after(operations=1, counted="sync_directory")
    for _ in range(3):
        disk.replace("/d/a", b"first")
        with pytest.raises(PowerLost, match="before sync_directory"):
            disk.replace("/d/a", b"second")
        assert not disk.faults.powered
        disk = disk.crash(random.Random(1), Survival.LOST)
        assert disk.read_bytes("/d/a") == b"first"
        disk.faults.lose_power_after(operations=1, counted="sync_directory")


def test_power_is_lost_in_the_middle_of_a_write() -> None:
    for length in range(6):
        disk = a_disk()
        a_file(disk)
        file = disk.open("/d/a", writable=True)
        disk.faults.lose_power_after(written_bytes=length)
        with pytest.raises(PowerLost):
            file.pwritev([b"012", b"345"], 0, dsync=True)
        with pytest.raises(PowerLost):
            file.pread(1, 0)
        after = disk.crash(random.Random(1), Survival.KEPT)
        assert after.read_bytes("/d/a") == b"012345"[:length]


def test_a_synchronous_write_can_be_lost_between_write_and_sync() -> None:
    disk = a_disk()
    a_file(disk)
    file = disk.open("/d/a", writable=True)
    disk.faults.lose_power_after(operations=1)
    with pytest.raises(PowerLost):
        file.pwritev([b"x"], 0, dsync=True)
    assert disk.clone().crash(random.Random(1), Survival.LOST).read_bytes("/d/a") == b""
    assert disk.crash(random.Random(1), Survival.KEPT).read_bytes("/d/a") == b"x"


def test_the_disk_is_dead_after_the_crash_and_its_handles_too() -> None:
    disk = a_disk()
    file = disk.create("/d/a")
    disk.crash(random.Random(1))
    for call in (lambda: file.pwritev([b"x"], 0), lambda: disk.listdir("/d"), file.sync):
        with pytest.raises(PowerLost):
            call()
    file.close()


def test_space_is_limited_over_all_files_and_comes_back() -> None:
    disk = a_disk()
    disk.faults.capacity_bytes = 100
    file = disk.create("/d/a")
    file.preallocate(80)
    assert disk.space_left("/d") == 20
    other = disk.create("/d/b")
    with pytest.raises(Full):
        other.preallocate(21)
    assert other.size() == 0
    with pytest.raises(Full):
        other.pwritev([b"x" * 21], 0)
    assert other.pread(30, 0) == b"x" * 20, "what fits is there, as on a real disk"
    other.truncate(0)
    other.pwritev([b"x" * 20], 0)
    file.pwritev([b"y" * 80], 0)
    with pytest.raises(Full):
        disk.replace("/d/c", b"z")
    assert disk.listdir("/d") == ["a", "b"]
    file.truncate(10)
    disk.remove("/d/b")
    assert disk.space_left("/d") == 90
    other.truncate(0)
    assert disk.space_left("/d") == 90


def test_after_a_failed_sync_nothing_makes_those_writes_durable() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        a_file(disk, b"...")
        file = disk.open("/d/a", writable=True)
        file.pwritev([b"1"], 0)
        disk.faults.fail_syncs("/d/a")
        with pytest.raises(SyncFailed):
            file.sync()
        file.pwritev([b"2"], 1)
        file.sync()
        assert file.pread(3, 0) == b"12."
        return disk

    assert after_crashes(build) == {b".2.", b"12."}


def test_writing_the_same_bytes_again_does() -> None:
    def build() -> VirtualDisk:
        disk = a_disk()
        a_file(disk, b"...")
        file = disk.open("/d/a", writable=True)
        disk.faults.fail_syncs("/d/a")
        with pytest.raises(SyncFailed):
            file.pwritev([b"1"], 0, dsync=True)
        file.pwritev([b"1"], 0)
        file.sync()
        return disk

    assert after_crashes(build) == {b"1.."}


def test_reads_fail_as_told_and_flipped_bits_stay_flipped() -> None:
    disk = a_disk()
    a_file(disk, b"ab")
    disk.faults.fail_reads("/d/a", 2)
    for _ in range(2):
        with pytest.raises(StorageError, match="/d/a@0"):
            disk.read_bytes("/d/a")
    disk.damage("/d/a", 1, 0x02)
    assert disk.read_bytes("/d/a") == b"a`"
    assert disk.crash(random.Random(1)).read_bytes("/d/a") == b"a`"


def test_healing_switches_every_fault_off() -> None:
    disk = a_disk()
    disk.faults.capacity_bytes = 0
    disk.faults.fail_syncs()
    disk.faults.fail_reads()
    disk.faults.lose_power_after(operations=0)
    disk.faults.heal()
    disk.replace("/d/a", b"x")
    assert disk.read_bytes("/d/a") == b"x"


def test_a_copy_is_independent_and_keeps_what_is_not_synced() -> None:
    disk = a_disk()
    a_file(disk, b"..")
    disk.open("/d/a", writable=True).pwritev([b"1"], 0)
    disk.create("/d/b")
    twin = disk.clone()
    twin.open("/d/a", writable=True).sync()
    twin.sync_directory("/d")
    assert disk.crash(random.Random(1), Survival.LOST).tree() == {"/d/a": b".."}
    assert twin.crash(random.Random(1), Survival.LOST).tree() == {"/d/a": b"1.", "/d/b": b""}


def test_every_change_is_seen_by_the_hook_before_it_happens() -> None:
    disk = a_disk()
    seen: list[tuple[str, str]] = []
    disk.faults.hook = lambda operation, path: seen.append((operation, path))
    file = disk.create("/d/a")
    file.pwritev([b"x"], 0, dsync=True)
    file.truncate(0)
    disk.rename("/d/a", "/d/b")
    disk.remove("/d/b")
    disk.sync_directory("/d")
    assert [operation for operation, _ in seen] == [
        "create", "write", "dsync", "truncate", "rename", "remove", "sync_directory",
    ]  # fmt: skip


SCENARIO = """
import hashlib, random
from stelae.sim.disk import VirtualDisk
rng, digest = random.Random(7), hashlib.sha256()
disk = VirtualDisk()
disk.make_directory("/d")
for turn in range(200):
    for name in {"a", "b", "c", "dd"}:
        pass
    for name in ("a", "b", "c", "dd"):
        path = f"/d/{name}"
        if not disk.exists("/d"):
            disk.make_directory("/d")
        file = disk.open(path, writable=True) if disk.exists(path) else disk.create(path)
        file.pwritev([bytes([turn]) * 700], turn)
        if rng.random() < 0.3:
            file.sync()
        if rng.random() < 0.2:
            disk.sync_directory("/d"); disk.sync_directory("/")
    if rng.random() < 0.3:
        disk = disk.crash(rng)
        digest.update(repr(disk.tree()).encode())
print(digest.hexdigest())
"""


def test_crashes_are_the_same_under_another_hash_seed() -> None:
    def run(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", SCENARIO]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    assert run("1") == run("2")
