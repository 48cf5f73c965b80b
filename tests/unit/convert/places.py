"""Formatted nodes with logs in them, for tests of conversion: on a virtual disk and on a real one."""

from __future__ import annotations

from typing import Any

from stelae.convert.conversion import ConversionPaths
from stelae.convert.offline import InlineWorkers
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, InstanceFile, format_directory
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.settings import ChosenEngine
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.services import EngineServices, Files
from stelae.spi.wal import Append, Durable, WalEngine
from stelae.testing.wal_harness import CountingMetrics, StillClock
from stelae.testing.wal_model import Model, entries, observed
from stelae_wal_lmdb import LmdbConfig, LmdbWal
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_shared import SharedConfig, SharedWal

SEGMENTED = ChosenEngine(
    name="segmented", engine=SegmentedWal, config=SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=8192)
)
SHARED = ChosenEngine(
    name="shared", engine=SharedWal, config=SharedConfig(segment_bytes_first=4096, segment_bytes_max=8192)
)
LMDB = ChosenEngine(name="lmdb", engine=LmdbWal, config=LmdbConfig())
ENGINES = {picked.name: picked for picked in (SEGMENTED, SHARED, LMDB)}

NODE = NodeId("a" * 32)
BUSY = LogId(TabletId("busy"), 3)
EMPTY = LogId(TabletId("empty"), 1)
COPIED = LogId(TabletId("copied"), 2)
HINTS = {BUSY: 30, EMPTY: 0, COPIED: 0}


def place(files: Files, root: str, crash: CrashPoints = NO_CRASH) -> ConversionPaths:
    services = EngineServices(files=files, clock=StillClock(), metrics=CountingMetrics(), workers=InlineWorkers())
    return ConversionPaths(DirectoryLayout(root), services, crash)


def wal_of(where: ConversionPaths, picked: ChosenEngine) -> Any:
    return picked.engine.open(where.layout.wals, picked.config, where.services)


def append(engine: WalEngine, log: LogId, given: Append) -> None:
    outcome = engine.commit({log: given}, sync=True)[log]
    assert isinstance(outcome, Durable), outcome


def formatted(where: ConversionPaths, picked: ChosenEngine) -> None:
    """A node with a log of many segments and a replaced suffix, an empty log, and an empty one that begins late."""
    instance = Instance(node_id=NODE, cluster_id=None, wal_engine=picked.name, clean_shutdown=False)
    format_directory(where.services.files, where.layout, instance)
    engine = wal_of(where, picked)
    for log, base in ((BUSY, OpId(1, 4)), (EMPTY, OpId(0, 0)), (COPIED, OpId(7, 1 << 40))):
        engine.create(log, base)
    for first in range(5, 25, 4):
        append(engine, BUSY, Append(entries=entries(first, 4, size_bytes=900), commit_hint=first))
    append(
        engine, BUSY, Append(entries=entries(20, 15, term=4, size_bytes=90), replace_from=20, commit_hint=HINTS[BUSY])
    )
    engine.close()


def held() -> dict[LogId, Model]:
    """What every log of :func:`formatted` holds."""
    busy = Model(OpId(1, 4), [*entries(5, 15, size_bytes=900), *entries(20, 15, term=4, size_bytes=90)])
    return {BUSY: busy, EMPTY: Model(OpId(0, 0)), COPIED: Model(OpId(7, 1 << 40))}


def found(where: ConversionPaths) -> tuple[str, dict[LogId, Model]]:
    """The engine in charge, and what every log holds under it."""
    instance = InstanceFile(where.services.files, where.layout).load()
    assert instance.converted_from is None
    assert instance.node_id == NODE and not instance.clean_shutdown
    engine = wal_of(where, ENGINES[instance.wal_engine])
    try:
        states = engine.logs()
        assert {log: state.commit_hint for log, state in states.items()} == HINTS
        return instance.wal_engine, {log: observed(engine, log) for log in states}
    finally:
        engine.close()
