"""The names of the logs: one empty file for each log, beside the environment.

The environment has a record of each log too. The names are needed when it is damaged. Then every log can still be
listed, and it is known whether a log was lost or never existed. A name is created after the record in the environment
and removed before it. So a name without a record is always damage. A record without a name gets its name again."""

from __future__ import annotations

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import LogId, tablet_id
from stelae.spi.services import Files


class LogNames:
    """The name files in one directory. Only the WAL thread uses them."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def all(self) -> dict[int, LogId]:
        """Return every log by its number. Other files are left alone.

        The directory is synced first. A process that was killed may have removed a name and not yet done so, and a new
        environment must not begin beside a name that a power loss brings back."""
        self._files.sync_directory(self._directory)
        found: dict[int, LogId] = {}
        for name in self._files.listdir(self._directory):
            tablet, _, numbers = name.partition(".")
            generation, _, number = numbers.partition(".")
            if generation.isdecimal() and number.isdecimal():
                try:
                    found[int(number)] = LogId(tablet_id(tablet), int(generation))
                except BadIdentifier:
                    continue
        return found

    def add(self, number: int, log: LogId) -> None:
        """Create the name of a log, durably.

        Raises:
            StorageError: the name may or may not exist.
        """
        path = self._path(number, log)
        if not self._files.exists(path):
            self._files.create(path).close()
        self._files.sync_directory(self._directory)

    def remove(self, number: int, log: LogId) -> None:
        """Remove a name durably. Harmless if it does not exist."""
        path = self._path(number, log)
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_directory(self._directory)

    def _path(self, number: int, log: LogId) -> str:
        return f"{self._directory}/{log.tablet_id}.{log.generation}.{number}"
