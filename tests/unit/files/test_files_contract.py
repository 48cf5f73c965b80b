"""One suite for both disks, so that what holds on the virtual one holds on the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.local.chaos.disk_rules import DiskFaults
from stelae.machine.faulty_files import FaultyFiles
from stelae.machine.files import RealFiles
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import BadIdentifier, Locked
from stelae.spi.services import Files


@pytest.fixture(params=["real", "faulty", "virtual"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    if request.param == "faulty":
        return FaultyFiles(DiskFaults(str(tmp_path.parent / "rules.json"), str(tmp_path))), str(tmp_path)
    virtual = VirtualDisk()
    virtual.make_directory("/home/node")
    return virtual, "/home/node"


def test_what_is_written_is_read_back_at_its_offset(disk: tuple[Files, str]) -> None:
    files, root = disk
    file = files.create(f"{root}/a")
    assert file.pwritev([b"one", bytearray(b"two"), memoryview(b"three")], 5) == 11
    assert file.pread(100, 0) == b"\0" * 5 + b"onetwothree"
    assert file.pread(3, 8) == b"two"
    assert file.pread(10, 16) == b""
    assert file.size() == 16
    assert file.path == f"{root}/a"


@pytest.mark.parametrize("dsync", [False, True])
def test_more_buffers_than_one_system_call_takes_are_all_written(disk: tuple[Files, str], dsync: bool) -> None:
    files, root = disk
    file = files.create(f"{root}/a")
    buffers = [b"%07d" % number for number in range(3000)] + [b""]
    assert file.pwritev(buffers, 3, dsync=dsync) == 21_000
    assert file.pread(30_000, 3) == b"".join(buffers)


def test_an_empty_write_writes_nothing(disk: tuple[Files, str]) -> None:
    files, root = disk
    file = files.create(f"{root}/a")
    assert file.pwritev([b""], 0, dsync=True) == 0
    assert file.size() == 0


def test_preallocated_space_reads_as_zeros_and_is_never_given_back_by_it(disk: tuple[Files, str]) -> None:
    files, root = disk
    file = files.create(f"{root}/a")
    file.pwritev([b"data"], 0)
    file.preallocate(10_000)
    assert file.size() == 10_000
    assert file.pread(20_000, 0) == b"data" + bytes(9_996)
    file.preallocate(100)
    assert file.size() == 10_000


def test_truncate_cuts_and_extends(disk: tuple[Files, str]) -> None:
    files, root = disk
    file = files.create(f"{root}/a")
    file.pwritev([b"0123456789"], 0)
    file.truncate(4)
    file.truncate(6)
    file.sync()
    assert file.pread(10, 0) == b"0123\0\0"


def test_two_handles_on_one_file_see_each_others_writes(disk: tuple[Files, str]) -> None:
    files, root = disk
    writer = files.create(f"{root}/a")
    reader = files.open(f"{root}/a")
    writer.pwritev([b"news"], 0)
    assert reader.pread(4, 0) == b"news"


def test_a_handle_outlives_its_name(disk: tuple[Files, str]) -> None:
    files, root = disk
    file = files.create(f"{root}/a")
    file.pwritev([b"kept"], 0)
    files.rename(f"{root}/a", f"{root}/b")
    files.remove(f"{root}/b")
    assert file.pread(4, 0) == b"kept"
    assert not files.exists(f"{root}/b")


def test_a_file_opened_for_reading_takes_no_writes(disk: tuple[Files, str]) -> None:
    files, root = disk
    files.create(f"{root}/a").close()
    with pytest.raises(Exception, match="a"):
        files.open(f"{root}/a").pwritev([b"x"], 0)
    assert files.read_bytes(f"{root}/a") == b""


def test_closing_twice_is_harmless_and_a_closed_file_is_refused(disk: tuple[Files, str]) -> None:
    files, root = disk
    file = files.create(f"{root}/a")
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.pread(1, 0)


def test_names_that_are_missing_or_taken(disk: tuple[Files, str]) -> None:
    files, root = disk
    files.create(f"{root}/a").close()
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a")
    for call in (files.open, files.remove, files.read_bytes, files.listdir, files.sync_directory):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        files.create(f"{root}/none/b")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/none", f"{root}/b")
    assert not files.exists(f"{root}/none")


def test_a_directory_is_no_file_and_a_file_no_directory(disk: tuple[Files, str]) -> None:
    files, root = disk
    files.make_directory(f"{root}/d")
    files.create(f"{root}/a").close()
    for call in (files.open, files.remove, files.read_bytes):
        with pytest.raises(IsADirectoryError):
            call(f"{root}/d")
    with pytest.raises(NotADirectoryError):
        files.listdir(f"{root}/a")
    with pytest.raises(IsADirectoryError):
        files.rename(f"{root}/a", f"{root}/d")


def test_directories_are_made_with_their_parents_listed_sorted_and_removed_whole(disk: tuple[Files, str]) -> None:
    files, root = disk
    files.make_directory(f"{root}/x/y")
    files.make_directory(f"{root}/x/y")
    for name in ("b", "a", "C"):
        files.create(f"{root}/x/{name}").close()
    assert files.listdir(f"{root}/x") == ["C", "a", "b", "y"]
    files.sync_directory(f"{root}/x")
    files.remove_tree(f"{root}/x")
    files.remove_tree(f"{root}/x")
    assert files.listdir(root) == []


def test_renaming_replaces_a_file_and_moves_a_directory(disk: tuple[Files, str]) -> None:
    files, root = disk
    files.replace(f"{root}/a", b"new")
    files.replace(f"{root}/b", b"old")
    files.rename(f"{root}/a", f"{root}/b")
    assert files.read_bytes(f"{root}/b") == b"new"
    files.make_directory(f"{root}/d/e")
    files.rename(f"{root}/d/e", f"{root}/f")
    assert files.listdir(root) == ["b", "d", "f"]


def test_replace_writes_a_small_file_whole_and_leaves_nothing_else(disk: tuple[Files, str]) -> None:
    files, root = disk
    files.replace(f"{root}/a", b"first, and longer")
    files.create(f"{root}/.a.tmp").close()
    files.replace(f"{root}/a", b"second")
    assert files.read_bytes(f"{root}/a") == b"second"
    assert files.listdir(root) == ["a"]


def test_a_lock_keeps_others_out_until_it_is_released(disk: tuple[Files, str]) -> None:
    files, root = disk
    lock = files.lock(f"{root}/lock")
    with pytest.raises(Locked):
        files.lock(f"{root}/lock")
    lock.release()
    lock.release()
    files.lock(f"{root}/lock").release()


def test_there_is_space_left(disk: tuple[Files, str]) -> None:
    files, root = disk
    assert files.space_left(root) > 0


@pytest.mark.parametrize("path", ["", "/a\0b", "/a/../b", ".."])
def test_paths_that_are_no_paths_are_refused(disk: tuple[Files, str], path: str) -> None:
    files, _ = disk
    for call in (files.create, files.open, files.exists, files.remove, files.make_directory):
        with pytest.raises(BadIdentifier):
            call(path)
