"""The file of a log that was set aside: an export with a name. It has its name once it is complete and durable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from stelae.spi.errors import StorageError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.services import Files
from stelae.spi.wal import LogState
from stelae_shared.log_files.directories import make_durable
from stelae_wal_lmdb.environment import LogEnvironment
from stelae_wal_lmdb.export import export_whole, read_export, read_record
from stelae_wal_lmdb.log import EnvironmentLog


def write_aside(files: Files, directory: str, env: LogEnvironment | None, log: EnvironmentLog) -> None:
    """Write a log into its own file in ``directory``, durably. Repeating it is harmless.

    Raises:
        StorageError: the file is not complete, and has no name.
    """
    make_durable(files, directory)
    path = _path_of(directory, log.name)
    if files.exists(f"{path}.new"):
        files.remove(f"{path}.new")
    with closing(files.create(f"{path}.new")) as file:
        export_whole(env, log, file)
        file.sync()
    files.rename(f"{path}.new", path)
    files.sync_directory(directory)


@contextmanager
def open_aside(files: Files, directory: str, log: LogId) -> Iterator[tuple[LogState, Iterator[Entry]]]:
    """Open a log that was set aside; yield its state and its entries, checksums verified.

    ``StorageError``: the directory has no such log, or it cannot be read."""
    path = _path_of(directory, log)
    if not files.exists(path):
        raise StorageError(f"there is no log {log} here", path=directory)
    with closing(files.open(path)) as file:
        record = read_record(file, path)
        state = LogState(base=record.base, last=record.last, commit_hint=record.commit_hint)
        yield state, read_export(file, path)


def _path_of(directory: str, log: LogId) -> str:
    return f"{directory}/{log.tablet_id}.{log.generation}.log"
