"""What the tests of the shared log share: small segments, many logs, and a look into the engine."""

from __future__ import annotations

from collections.abc import Iterable

from stelae.sim.disk import VirtualDisk
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.wal import Append, Durable, WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import entries
from stelae_wal_shared import SharedConfig, SharedWal
from stelae_wal_shared.decisions import SharedFinding
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.marker import claim
from stelae_wal_shared.recovery import recover

SMALL = SharedConfig(segment_bytes_first=32 << 10, segment_bytes_max=32 << 10)
PLACE = "/node/wals"


def harness_of(config: SharedConfig = SMALL, *, engine_type: type[WalEngine] = SharedWal) -> VirtualHarness:
    return VirtualHarness(engine_type, config)


def log_number(number: int) -> LogId:
    return LogId(TabletId(f"tablet-{number}"), 1)


def create_logs(engine: WalEngine, count: int) -> list[LogId]:
    logs = [log_number(number) for number in range(count)]
    for log in logs:
        engine.create(log, ZERO)
    return logs


def extend(
    engine: WalEngine, logs: Iterable[LogId], count: int = 1, size_bytes: int = 200, term: int = 1, *, sync: bool = True
) -> None:
    """Append ``count`` entries to each log, all logs in one group."""
    last = {log: engine.logs()[log].last for log in logs}
    group = {
        log: Append(entries=entries(last[log].index + 1, count, max(term, last[log].term), size_bytes)) for log in last
    }
    outcomes = engine.commit(group, sync=sync)
    assert all(isinstance(outcome, Durable) for outcome in outcomes.values()), outcomes


def segments(disk: VirtualDisk) -> list[str]:
    """Paths of the segments that are there, in order."""
    return [f"{PLACE}/{name}" for name in disk.listdir(PLACE) if name.endswith(".seg")]


def recovered(harness: VirtualHarness) -> tuple[EngineState, list[SharedFinding]]:
    """Recover a copy of the disk; return what the engine would know, and the rows that applied."""
    disk = harness.disk.clone()
    state = EngineState(disk, PLACE, 16)
    marker = claim(disk, PLACE)
    found = recover(state, marker.newest, marker.newest_end)
    return state, found


def fill_segments(engine: WalEngine, log: LogId, count: int) -> None:
    """Append to one log until this many segments are closed."""
    before = engine.stats()["segments"]
    while engine.stats()["segments"] < before + count:
        extend(engine, [log], size_bytes=300)
