"""Writes of whole blocks: what they leave is the groups one behind the other, and nothing that was there changes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stelae.spi.wal import Write
from stelae_shared.log_files import whole_blocks
from stelae_shared.log_files.whole_blocks import BLOCK_BYTES, WholeBlocks

FILE: Any = object()
"""Nothing is done to it here."""

UNIT_BYTES = 512
"""What is filled with zeros at least, where something stands behind the data."""


class Space:
    """What stands in a file, written as ``WholeBlocks`` says; with ``used``, something stands behind the data."""

    def __init__(self, start: int, *, used: bool, limit: int = 1 << 20) -> None:
        self.start = self.end = start
        self.used = used
        self.data = bytearray(random.Random(9).randbytes(1 << 20) if used else 1 << 20)
        self.limit = limit
        self.unit = UNIT_BYTES if used else 1
        self.blocks = WholeBlocks(FILE, limit, unit=self.unit)
        self.groups = b""
        self.whole = 0

    def append(self, buffers: list[bytes]) -> Write:
        group = b"".join(buffers)
        end = self.end + len(group)
        write = self.blocks.write_of(buffers, self.end, len(group))
        written = b"".join(write.buffers)
        before = bytes(self.data[write.offset : self.end])
        self.data[write.offset : write.offset + len(written)] = written
        assert self.data[write.offset : self.end] == before, "what was there stays"
        if write.whole_blocks:
            self.whole += 1
            assert (write.offset % BLOCK_BYTES, len(written) % BLOCK_BYTES) == (0, 0)
            assert len(written) - len(group) < 2 * BLOCK_BYTES
            assert write.offset + len(written) <= self.limit, "beyond it nothing is written over"
        behind = self.data[end : write.offset + len(written)]
        assert not behind.strip(b"\0") and (end + len(behind)) % self.unit == 0
        self.blocks.wrote(write, end)
        self.groups += group
        self.end = end
        return write

    def check(self) -> None:
        assert self.data[self.start : self.end] == self.groups


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("start", [164, 512, 4096, 8192 + 512])
def test_groups_stand_one_behind_the_other(start: int, used: bool) -> None:
    rng = random.Random(start)
    for _ in range(60):
        space = Space(start, used=used)
        sizes = rng.choice([(1, 50), (1, 700), (1, 3000), (4000, 20_000)])
        for _ in range(25):
            space.append([rng.randbytes(rng.randint(*sizes)) for _ in range(rng.randint(1, 3))])
        space.check()
        if space.end > start + 2 * BLOCK_BYTES:
            assert space.whole > 0


@pytest.mark.parametrize("used", [False, True])
def test_what_goes_beyond_the_space_that_was_written_before_goes_through_the_cache(used: bool) -> None:
    space = Space(BLOCK_BYTES, used=used, limit=8 * BLOCK_BYTES)
    whole = [space.append([b"x" * BLOCK_BYTES]).whole_blocks for _ in range(12)]
    assert any(whole) and not all(whole) and whole == sorted(whole, reverse=True)
    space.check()


@pytest.mark.parametrize("used", [False, True])
def test_large_groups_are_written_from_where_they_are(used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_blocks, "JOINED_BYTES_MAX", 5000)
    rng = random.Random(4)
    for _ in range(60):
        space = Space(512, used=used)
        for _ in range(20):
            buffers = [rng.randbytes(rng.randint(1, 4000)) for _ in range(rng.randint(2, 4))]
            write = space.append(buffers)
            if sum(map(len, buffers)) > 5000:
                assert all(any(one is buffer for one in write.buffers) for buffer in buffers)
        space.check()


def test_after_a_start_writes_begin_where_the_data_end_until_a_block_is_known() -> None:
    space = Space(3 * BLOCK_BYTES + 1000, used=True)
    first = space.append([b"a" * 100])
    second = space.append([b"b" * 100])
    assert first.offset == second.offset == space.start, "of this block only that is known"
    assert not first.whole_blocks and not second.whole_blocks
    space.append([b"c" * BLOCK_BYTES])
    last = space.append([b"d"])
    assert (last.whole_blocks, last.offset) == (True, 4 * BLOCK_BYTES)
    space.check()


@pytest.mark.parametrize("sizes", [(9000,), (8000, 1000), (5000, 3999, 1), (4000, 5, *[10] * 2000)])
def test_behind_a_large_group_the_last_block_is_known(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_blocks, "JOINED_BYTES_MAX", 5000)
    space = Space(BLOCK_BYTES, used=False)
    space.append([bytes([1 + number % 255]) * size for number, size in enumerate(sizes)])
    end = space.end
    write = space.append([b"b" * 10])
    assert (write.offset, write.whole_blocks) == (end - end % BLOCK_BYTES, True)
    space.check()
