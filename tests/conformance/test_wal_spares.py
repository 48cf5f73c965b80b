"""The space of the next segment: written with zeros before it is used where that pays, given up where it fails.

For the engines that write segments of their own, each of which has its settings by the same names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Full, Overloaded
from stelae.spi.ids import ZERO
from stelae.spi.services import Buffer
from stelae.spi.wal import Append
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entry
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_shared import SharedConfig, SharedWal


class Zeros:
    """Notes every write into a file that has no name yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[tuple[int, int, bool]] = []
        original = VirtualFile.pwritev

        def noting(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
            data = b"".join(buffers)
            if file.path.endswith(".new") and not data.strip(b"\0"):
                self.writes.append((offset, len(data), dsync))
            return original(file, buffers, offset, dsync=dsync)

        monkeypatch.setattr(VirtualFile, "pwritev", noting)

    @property
    def bytes(self) -> int:
        """How much was written, without a gap and durably."""
        end = 0
        for offset, size, dsync in self.writes:
            assert dsync
            assert size <= 1 << 20
            assert offset in (0, end)
            end = offset + size
        return sum(size for _, size, _ in self.writes)


ENGINES = [(SegmentedWal, SegmentedConfig), (SharedWal, SharedConfig)]


def names_of(harness: VirtualHarness, suffix: str) -> list[str]:
    """Paths of the engine's files with this ending."""
    return [path for path in harness.tree() if path.endswith(suffix)]


@pytest.mark.parametrize(("engine_type", "config_type"), ENGINES)
def test_the_space_of_a_large_segment_is_written_before_it_is_used_and_that_of_a_small_one_is_not(
    monkeypatch: pytest.MonkeyPatch, engine_type: Any, config_type: Any
) -> None:
    zeros = Zeros(monkeypatch)
    config = config_type(segment_bytes_first=1 << 16, segment_bytes_max=1 << 20, prewrite_bytes_min=1 << 20)
    harness = VirtualHarness(engine_type, config)
    engine = harness.open()
    engine.create(LOG, ZERO)
    segments = 1
    for index in range(1, 200):
        commit(engine, Append(entries=(entry(index, 1, 1 << 14),)))
        if zeros.writes:
            break
        segments = len(names_of(harness, ".seg"))
    assert segments == 2, "64 KiB, 256 KiB; the third has a mebibyte"
    assert zeros.bytes == 1 << 20
    (spare,) = names_of(harness, ".new")
    assert harness.tree()[spare] == bytes(1 << 20)
    engine.close()


@pytest.mark.parametrize(("engine_type", "config_type"), ENGINES)
def test_a_disk_that_is_full_while_space_is_written_beforehand_costs_the_spare_and_no_append(
    monkeypatch: pytest.MonkeyPatch, engine_type: Any, config_type: Any
) -> None:
    """A file system that copies on write may find no space for zeros within space that it has reserved."""
    original = VirtualFile.pwritev
    refused: list[str] = []

    def full(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        if file.path.endswith(".new") and offset == 0 and len(refused) < 2 and not b"".join(buffers).strip(b"\0"):
            refused.append(file.path)
            raise Full("no space", path=file.path)
        return original(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(VirtualFile, "pwritev", full)
    harness = VirtualHarness(
        engine_type, config_type(segment_bytes_first=4096, segment_bytes_max=4096, prewrite_bytes_min=4096)
    )
    engine = harness.open()
    engine.create(LOG, ZERO)
    for index in range(1, 90):
        commit(engine, Append(entries=(entry(index, 1, 200),)))
    assert len(refused) == 2
    assert not [path for path in refused if harness.disk.exists(path)]
    harness.crash(engine)
    engine = harness.open()
    check_holds(engine, Model(ZERO, [entry(index, 1, 200) for index in range(1, 90)]))
    engine.close()


@pytest.mark.parametrize(("engine_type", "config_type"), ENGINES)
def test_workers_that_have_too_much_to_do_only_delay_the_next_segment(
    monkeypatch: pytest.MonkeyPatch, engine_type: Any, config_type: Any
) -> None:
    """One engine once waited for ever for space that nobody made, and its open segment grew without end."""
    harness = VirtualHarness(engine_type, config_type(segment_bytes_first=4096, segment_bytes_max=4096))
    engine = harness.open()
    engine.create(LOG, ZERO)

    def overloaded(_work: object, done: Callable[[object], None] | None = None) -> None:
        if done is not None:
            done(Overloaded("too much to do"))

    with monkeypatch.context() as patch:
        patch.setattr(harness.workers, "submit", overloaded)
        for index in range(1, 40):
            commit(engine, Append(entries=(entry(index, 1, 200),)))
    before = len(names_of(harness, ".seg"))
    for index in range(40, 80):
        commit(engine, Append(entries=(entry(index, 1, 200),)))
    assert len(names_of(harness, ".seg")) > before
    check_holds(engine, Model(ZERO, [entry(index, 1, 200) for index in range(1, 80)]))
    engine.close()


@pytest.mark.parametrize(("engine_type", "config_type"), ENGINES)
def test_a_spare_that_was_given_up_is_not_written_to_its_end(
    monkeypatch: pytest.MonkeyPatch, engine_type: Any, config_type: Any
) -> None:
    zeros = Zeros(monkeypatch)
    config = config_type(
        segment_bytes_first=1 << 16, segment_bytes_max=4 << 20, segment_growth=64, prewrite_bytes_min=4 << 20
    )
    harness = VirtualHarness(engine_type, config)
    harness.workers.at_once = False
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=(entry(1, 1, 50_000),)))
    commit(engine, Append(entries=(entry(2, 1, 100),)))
    noting = VirtualFile.pwritev

    def closing(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        if file.path.endswith(".new") and offset == 1 << 20:
            engine.close()
        return noting(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(VirtualFile, "pwritev", closing)
    assert harness.workers.run() == 1
    assert zeros.bytes == 2 << 20
    assert not names_of(harness, ".new")
