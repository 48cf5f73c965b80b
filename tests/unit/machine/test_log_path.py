"""How a node chooses between the plain and the fast way to write its log, and what it says."""

from __future__ import annotations

import asyncio
import errno
import logging
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from stelae.host.settings import LogSettings
from stelae.machine.fast_log import path as fast_path
from stelae.machine.fast_log.ring_driver import RingDriver
from stelae.machine.log_driver import EngineDriver
from stelae.machine.real import RealMachine
from stelae.spi.wal import WalEngine
from stelae.testing.rings import ring_of_this_system
from stelae_wal_lmdb import LmdbWal
from stelae_wal_segmented import SegmentedWal
from stelae_wal_segmented.fast import FastSegmentedWal
from stelae_wal_shared import SharedWal
from stelae_wal_shared.fast import FastSharedWal

A_NODE_WRITES_PLAINLY = """
import asyncio, sys, tempfile
from stelae.host.settings import LogSettings
from stelae.machine.real import RealMachine
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.ids import OpId
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append
from stelae_wal_segmented import SegmentedWal
from stelae_wal_shared import SharedWal

async def main(place):
    for engine in (SegmentedWal, SharedWal):
        machine = RealMachine()
        machine.start(print)
        path, pool = machine.log_path(LogSettings()), machine.pool("apply", 1)
        services = EngineServices(machine.files, machine.clock, machine.metrics, pool)
        wal = path.engine(engine).open(f"{place}/{engine.name}", engine.Config(), services)
        log = LogId(TabletId("t"), 1)
        wal.create(log, ZERO)
        driver = path.drive(wal, pool)
        driver.writer.open_log(log, ZERO)
        entry, told = Entry(OpId(1, 1), EntryKind.WRITE, 1, b"body"), asyncio.get_running_loop().create_future()
        driver.writer.append_async(driver.writer.reserve(log, entry.size_bytes), (entry,), done=told.set_result)
        await told
        driver.stop()
        wal.close()
        machine.stop()

with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(place))
fast = [name for name in sys.modules if "fast" in name.split(".")[-1] or ".fast" in name or "whole_blocks" in name]
print(fast)
"""


def chosen(settings: LogSettings, engine: type[WalEngine]) -> tuple[type[WalEngine], type[EngineDriver], float]:
    """Which class is opened, what drives it, and what the node's figures say."""

    async def check() -> tuple[type[WalEngine], type[EngineDriver], float]:
        machine = RealMachine()
        machine.start(lambda defect: None)
        path = machine.log_path(settings)
        kind = path.engine(engine)
        driver = path.drive(cast("WalEngine", object()), machine.pool("apply", 1))
        driver.stop()
        machine.stop()
        await asyncio.sleep(0)
        assert isinstance(driver, EngineDriver)
        return kind, type(driver), machine.figures.gauges()["log_fast"]

    return asyncio.run(check())


@pytest.mark.parametrize("engine", [SegmentedWal, SharedWal, LmdbWal])
def test_a_log_is_written_plainly_by_default(engine: type[WalEngine], caplog: pytest.LogCaptureFixture) -> None:
    assert chosen(LogSettings(), engine) == (engine, EngineDriver, 0)
    assert not caplog.records


def test_by_default_nothing_of_the_fast_way_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", A_NODE_WRITES_PLAINLY], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(("engine", "fast"), [(SegmentedWal, FastSegmentedWal), (SharedWal, FastSharedWal)])
def test_fast_opens_the_fast_engine_and_drives_it_by_the_ring(engine: type[WalEngine], fast: type[WalEngine]) -> None:
    ring_of_this_system(1).close()
    assert chosen(LogSettings(fast=True), engine) == (fast, RingDriver, 1)


def test_without_io_uring_fast_is_plain_and_one_warning_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(entries: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(fast_path, "IoUring", forbidden)
    assert chosen(LogSettings(fast=True), SegmentedWal) == (SegmentedWal, EngineDriver, 0)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "[log] fast = true" in record.getMessage()
    assert "Operation not permitted" in record.getMessage()
    assert "written plainly" in record.getMessage()


def test_an_engine_without_a_fast_kind_is_written_plainly_and_one_warning_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ring_of_this_system(1).close()
    assert chosen(LogSettings(fast=True), LmdbWal) == (LmdbWal, EngineDriver, 0)
    (record,) = caplog.records
    assert "'lmdb' has no fast kind" in record.getMessage()


def test_the_source_of_the_plain_way_names_no_module_of_the_fast_one() -> None:
    """But for the one place in each package that chooses."""
    root = Path(__file__).resolve().parents[3]
    plain = [
        *(root / "kernel/stelae/machine").glob("*.py"),
        *(root / "kernel/stelae/host").glob("*.py"),
        *(root / "plugins/wal_segmented/stelae_wal_segmented").glob("*.py"),
        *(root / "plugins/wal_shared/stelae_wal_shared").glob("*.py"),
    ]
    words = ("fast_log", ".fast import", "whole_blocks", "O_DIRECT")
    found = {
        path.name
        for path in plain
        if path.name != "fast.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith(("from ", "import ")) and any(word in line for word in words)
    }
    assert found == {"real.py", "plain.py"}
