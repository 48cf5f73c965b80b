"""Which logs there are: one empty file for each, beside the environment.

The environment knows its logs too. The names are for the day on which it is damaged: then every log can
still be listed, and a log that is lost is not taken for one that never was. A name is written after
the record in the environment and removed before it, so a name without a record is always damage. A
record without a name is given its name again, whatever became of it."""

from __future__ import annotations

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import LogId, tablet_id
from stelae.spi.services import Files


class LogNames:
    """The name files in one directory. The WAL thread alone."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def all(self) -> dict[int, LogId]:
        """Every log by its number; files that are no name of a log are left alone."""
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
        """Name a log, durably.

        Raises:
            StorageError: the name may or may not be there.
        """
        path = self._path(number, log)
        if not self._files.exists(path):
            self._files.create(path).close()
        self._files.sync_directory(self._directory)

    def remove(self, number: int, log: LogId) -> None:
        """Take a name away, durably; harmless if it is not there."""
        path = self._path(number, log)
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_directory(self._directory)

    def _path(self, number: int, log: LogId) -> str:
        return f"{self._directory}/{log.tablet_id}.{log.generation}.{number}"
