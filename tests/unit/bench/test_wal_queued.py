"""What stands behind the writer in place of an engine: every body is written once, and nothing is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stelae.machine.event_loop import new_event_loop
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Append, Durable
from stelae_bench.wal_cases import Bodies, SyncMode
from stelae_bench.wal_crc_queued import CrcQueued
from stelae_bench.wal_open import BenchMachine, OpenLogs
from stelae_bench.wal_replay import RawCrc


def entries(*bodies: bytes) -> tuple[Entry, ...]:
    return tuple(Entry(OpId(1, index), EntryKind.WRITE, index, body) for index, body in enumerate(bodies, 1))


def test_one_write_holds_the_bodies_of_all_logs_of_a_group(tmp_path: Path) -> None:
    queued = CrcQueued(tmp_path / "raw")
    one, other = (LogId(TabletId(name), 1) for name in ("a", "b"))
    group = {one: Append(entries=entries(b"first", b"second")), other: Append(entries=entries(b"third"))}
    assert queued.commit(group, sync=True) == {one: Durable(OpId(1, 2)), other: Durable(OpId(1, 1))}
    assert queued.commit({one: Append(entries=entries(b"fourth"))}, sync=False) == {one: Durable(OpId(1, 1))}
    assert queued.commit({}, sync=True) == {}
    (file,) = (tmp_path / "raw").iterdir()
    written, place = file.read_bytes(), 0
    for body in (b"first", b"second", b"third", b"fourth"):
        place += RawCrc.header_bytes + len(body)
        assert written[:place].endswith(body)
    queued.collect(one, 2)
    assert list((tmp_path / "raw").iterdir()) == [file], "it goes when the next one is made"
    queued.close()
    assert list((tmp_path / "raw").iterdir()) == []


def test_it_is_measured_as_an_engine_is(tmp_path: Path) -> None:
    async def run() -> None:
        with BenchMachine() as machine:
            logs = OpenLogs(machine, CrcQueued, tmp_path / "raw", 3)  # type: ignore[arg-type]
            for mode in SyncMode:
                sample = await logs.measure(Bodies(100, 1), 2, 0.01, sync=mode)
                assert not sample.problems and sum(sample.groups) == len(sample.latencies_us) > 0
            await logs.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def test_a_measurement_that_is_cancelled_appends_no_more_so_that_the_writer_can_close(tmp_path: Path) -> None:
    """Ctrl-C met the loop between two appends, and the benchmark ended with an error of its own."""

    async def run() -> None:
        with BenchMachine() as machine:
            logs = OpenLogs(machine, CrcQueued, tmp_path / "raw", 3)  # type: ignore[arg-type]
            measuring = asyncio.ensure_future(logs.measure(Bodies(100, 1), 2, 60.0))
            while not logs.writer.durable(logs.logs[-1]).index:
                await asyncio.sleep(0.001)
            measuring.cancel()
            await asyncio.wait([measuring])
            await logs.close()
            assert measuring.cancelled()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())
