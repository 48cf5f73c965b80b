"""The base file and pages of 4 KiB: what a disk or the system's cache writes, loses or tears as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stelae.sim.disk_faults import PowerLost
from stelae.sim.disk_file import VirtualFile
from stelae.spi.ids import ZERO
from stelae.spi.services import Buffer
from stelae.spi.wal import Append, WalEngine
from stelae.testing.wal_harness import Survival, VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries, observed
from tests.unit.wal_segmented.scenes import BASE, small_harness

PAGE_BYTES = 4096


def live(engine: WalEngine, model: Model) -> Model:
    """Append over several segments, collect in between, and close; ``model`` gets what was acknowledged."""
    for first in range(1, 181, 3):
        append = Append(entries=entries(first, 3, size_bytes=200))
        commit(engine, append)
        model.held.extend(append.entries)
        if first % 12 == 1:
            engine.collect(LOG, first // 2)
    engine.close()
    return model


class Writes:
    """Counts the writes of the base file, and ends the world in one of them, which is not written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fatal: int) -> None:
        self.pages: list[set[int]] = []
        original = VirtualFile.pwritev

        def pwritev(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
            if file.path == BASE:
                end = offset + sum(len(buffer) for buffer in buffers)
                self.pages.append(set(range(offset // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1)))
                if len(self.pages) == fatal:
                    raise PowerLost("in the middle of a page")
            return original(file, buffers, offset, dsync=dsync)

        monkeypatch.setattr(VirtualFile, "pwritev", pwritev)


def spoil(harness: VirtualHarness, pages: set[int], filling: bytes) -> None:
    """Fill whole pages of the base file."""
    data = bytearray(harness.disk.read_bytes(BASE))
    for page in pages:
        start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(data))
        data[start:end] = (filling * PAGE_BYTES)[: end - start]
    harness.write(BASE, bytes(data))


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
def test_power_lost_in_any_write_of_the_base_file_may_cost_the_pages_that_it_wrote(
    filling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both slots were in one page: a torn page took the older slot with it, and the log was lost."""
    fatal = 0
    while True:
        fatal += 1
        harness = small_harness()
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        with monkeypatch.context() as patch:
            writes = Writes(patch, fatal)
            try:
                live(engine, model)
                break
            except PowerLost:
                harness.crash(engine, Survival.LOST)
        spoil(harness, writes.pages[-1], filling)
        engine = harness.open()
        check_holds(engine, model)
        commit(engine, Append(entries=entries(model.last.index + 1, 1)))
        engine.close()
    assert fatal > 15


@pytest.mark.parametrize("page", range(2))
@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
def test_a_page_of_the_base_file_that_is_lost_later_is_made_up_for_or_reported(page: int, filling: bytes) -> None:
    harness = small_harness()
    engine = harness.open()
    engine.create(LOG, ZERO)
    model = live(engine, Model())
    assert len(harness.disk.read_bytes(BASE)) == 2 * PAGE_BYTES
    spoil(harness, {page}, filling)
    engine = harness.open()
    if engine.logs()[LOG].damage is None:
        assert observed(engine).held == [one for one in model.held if one.op_id.index > engine.logs()[LOG].base.index]
        check_holds(engine, model)
    engine.close()
