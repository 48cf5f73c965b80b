"""The ring itself, on this machine's system: where that has none, these checks cannot be made and say so."""

from __future__ import annotations

import errno
import gc
import os
import select
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.machine.fast_log import io_uring
from stelae.machine.fast_log.direct_io import Arena, never_waits
from stelae.machine.fast_log.io_uring import IoUring
from stelae.testing.rings import ring_of_this_system


@pytest.fixture
def ring() -> Iterator[IoUring]:
    made = ring_of_this_system(8)
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def take(ring: IoUring, count: int) -> dict[int, int]:
    """So many answers, by token."""
    found: dict[int, int] = {}
    while len(found) < count:
        assert select.select([ring], [], [], 30)[0], f"{count} answers did not come: {found}"
        found |= ring.answers()
    return found


def test_writes_are_made_where_they_belong_and_each_has_its_answer(ring: IoUring, file: int) -> None:
    assert ring.write([(7 + at, file, bytes([65 + at]) * (at + 1), at * 100) for at in range(8)]) == 8
    assert ring.under_way == 8
    assert take(ring, 8) == {7 + at: at + 1 for at in range(8)}
    assert ring.under_way == 0
    for at in range(8):
        assert os.pread(file, at + 2, at * 100).rstrip(b"\0") == bytes([65 + at]) * (at + 1)


def test_the_queues_go_round(ring: IoUring, file: int) -> None:
    for turn in range(300):
        count = turn % 8 + 1
        assert ring.write([(turn * 8 + at, file, b"%5d" % turn, at * 5) for at in range(count)]) == count
        assert take(ring, count) == {turn * 8 + at: 5 for at in range(count)}
        assert os.pread(file, count * 5, 0) == b"%5d" % turn * count


def test_a_write_that_fails_answers_for_itself_alone(ring: IoUring, file: int, tmp_path: Path) -> None:
    readable = os.open(tmp_path / "file", os.O_RDONLY)
    assert ring.write([(1, readable, b"a", 0), (2, file, b"b", 0), (3, -1, b"c", 0)]) == 3
    assert take(ring, 3) == {1: -errno.EBADF, 2: 1, 3: -errno.EBADF}
    os.close(readable)


def test_writes_are_synchronous_and_left_to_a_worker(ring: IoUring, file: int) -> None:
    ring.write([(5, file, b"data", 4096)])
    slot = io_uring._WRITE.unpack_from(ring._slots, 0)
    assert slot[:2] == (io_uring.OP_WRITE, io_uring.ASYNC)
    assert (slot[3], slot[4], slot[6], slot[8]) == (file, 4096, 4, 5)
    assert slot[7] == os.RWF_DSYNC != 0
    take(ring, 1)


def test_writes_past_the_cache_are_synchronous_too(ring: IoUring, file: int) -> None:
    lent = Arena(4096).lend(b"past" * 1024)
    assert lent is not None
    ring.write([(6, file, lent, 8192)])
    slot = io_uring._WRITE.unpack_from(ring._slots, 0)
    assert slot[:2] == (io_uring.OP_WRITE, io_uring.DIRECT)
    assert (slot[3], slot[4], slot[5], slot[6], slot[8]) == (file, 8192, lent.address, 4096, 6)
    assert slot[7] == os.RWF_DSYNC != 0
    take(ring, 1)
    assert os.pread(file, 5000, 8192) == b"past" * 1024


@pytest.mark.parametrize(
    ("release", "begun"),
    [
        ("6.18.44-x", True),
        ("6.13.0", True),
        ("7.0", True),
        ("6.12.99", False),
        ("5.15.0-91-generic", False),
        ("", False),
    ],
)
def test_only_a_newer_system_begins_them_without_a_worker(release: str, begun: bool) -> None:
    assert never_waits(release) is begun


def test_memory_that_is_lent_stays_until_it_is_written(ring: IoUring, file: int) -> None:
    arena = Arena(4096)
    gone = weakref.ref(arena)
    ring.write([(1, file, arena.lend(bytes(4096)), 0)])
    del arena
    gc.collect()
    assert gone() is not None
    take(ring, 1)
    gc.collect()
    assert gone() is None


def test_memory_of_a_write_that_nobody_waits_for_is_never_used_again(file: int) -> None:
    ring = ring_of_this_system(8)
    arena = Arena(4096)
    gone = weakref.ref(arena)
    ring.write([(2, file, arena.lend(bytes(4096)), 0)])
    ring.close()
    del arena, ring
    gc.collect()
    assert gone() is not None


def test_what_the_system_does_not_take_was_not_begun(ring: IoUring, file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    system, refused = io_uring._system, [OSError(errno.EAGAIN, "no memory")]

    def short(number: int, *arguments: int) -> int:
        fd, count = arguments[:2]
        if count == 1:
            raise refused[0]
        return system(number, fd, 1, *arguments[2:])

    monkeypatch.setattr(io_uring, "_system", short)
    assert ring.write([(1, file, b"a", 0), (2, file, b"b", 1)]) == 1
    assert ring.under_way == 1
    assert ring.write([(3, file, b"c", 2)]) == 0
    monkeypatch.setattr(io_uring, "_system", system)
    assert take(ring, 1) == {1: 1}
    assert ring.write([(4, file, b"d", 3)]) == 1
    assert take(ring, 1) == {4: 1}
    assert os.pread(file, 9, 0) == b"a\0\0d"


def test_it_is_over_when_all_have_their_answers(ring: IoUring, file: int) -> None:
    assert ring.is_over()
    for turn in range(50):
        ring.write([(turn * 2 + at, file, b"x" * 9000, at * 9000) for at in range(2)])
        while not ring.is_over():
            assert ring.under_way == 2
        assert ring.under_way == 2
        take(ring, 2)
        assert ring.is_over()


def test_what_is_written_stays_in_memory_until_it_is(ring: IoUring, file: int) -> None:
    data = b"x" * 5000
    before = sys.getrefcount(data)
    ring.write([(1, file, data, 0)])
    assert sys.getrefcount(data) > before
    take(ring, 1)
    assert sys.getrefcount(data) == before
    ring.write([(2, file, data, 0)])
    ring.close()
    assert sys.getrefcount(data) > before


def test_a_ring_that_nobody_has_is_given_back(ring: IoUring) -> None:
    other = IoUring(4)
    fd, gone = other.fileno(), weakref.ref(other)
    other.close()
    other.close()
    assert other.fileno() == -1
    del other
    gc.collect()
    assert gone() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_system_without_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(number: int, *arguments: int) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(io_uring, "_system", forbidden)
        with pytest.raises(PermissionError):
            IoUring(8)
    monkeypatch.setattr(io_uring, "RWF_DSYNC", 0)
    with pytest.raises(OSError, match="synchronous"):
        IoUring(8)


def test_another_kind_of_processor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_uring.platform, "machine", lambda: "aarch64")
    with pytest.raises(OSError, match="aarch64 processors do not keep the order of writes to memory"):
        IoUring(8)


def test_an_old_system_is_not_used(ring: IoUring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_uring, "FEATURES", 1 << 31)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="features"):
        IoUring(8)
    assert len(os.listdir("/proc/self/fd")) == before
