"""Opens a log that was set aside for quarantine, in the directory that has its files."""

from __future__ import annotations

from collections.abc import Iterator

from stelae.spi.errors import StorageError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices
from stelae.spi.wal import LogState
from stelae_wal_segmented.config import SegmentedConfig
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.marker import NonceSource
from stelae_wal_segmented.names import LogFileKind, parse
from stelae_wal_segmented.reader import read
from stelae_wal_segmented.recovery import recover_log
from stelae_wal_segmented.space import SegmentedContext

_BATCH_BYTES = 4 << 20


def open_aside(
    directory: str, log: LogId, config: SegmentedConfig, services: EngineServices
) -> tuple[LogState, Iterator[Entry]]:
    """Return the state of a log and its entries.

    Its base file says that the log is leaving, so the state has damage behind the last entry. The entries that can be
    read are the log.

    ``StorageError``: the directory has no such log."""
    found = [parsed for name in services.files.listdir(directory) if (parsed := parse(name))]
    files = [parsed for parsed in found if parsed.generation == log.generation]
    if not any(parsed.kind is LogFileKind.BASE for parsed in files):
        raise StorageError(f"there is no log {log} here", path=directory)
    sequences = sorted(parsed.sequence for parsed in files if parsed.kind is LogFileKind.SEGMENT)
    # Nothing is written, so no nonce is drawn.
    context = SegmentedContext(files=services.files, workers=services.workers, config=config, nonces=NonceSource(0))
    opened = TabletLog(context, directory, log, recover_log(services.files, directory, log, sequences))
    state = opened.state()
    return state, _entries(opened, state)


def _entries(opened: TabletLog, state: LogState) -> Iterator[Entry]:
    first = state.base.index + 1
    while first <= state.last.index:
        found = read(opened, first, state.last.index + 1, _BATCH_BYTES)
        yield from found
        first += len(found)
