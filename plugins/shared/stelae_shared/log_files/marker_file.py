"""The file that says whose directory this is, and holds what an engine has to know before it reads anything else.

Its record is in two pages, both of which are written in place (``page_slots``): neither a full disk nor the loss of a
page keeps a node from starting. With both pages the proof is lost whose directory this is, and with it all that would
tell a lost log from one that never was: the engine does not open."""

from __future__ import annotations

from stelae.spi.errors import Corrupt, Foreign
from stelae.spi.services import Files
from stelae_shared.log_files.page_slots import PageSlot, RecordFormat, create_slots, read_newest, write_both


class MarkerFile:
    """The marker of one directory.

    Args:
        files: the disk.
        directory: the engine's own.
        name: of the file.
        form: of its record.
        thing: what the directory holds, for people: "log".
        beside: names of files that may be there before the marker is.
    """

    def __init__(
        self, files: Files, directory: str, name: str, form: RecordFormat, *, thing: str, beside: tuple[str, ...] = ()
    ) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._form = form
        self._thing = thing
        self._beside = beside
        self.path = f"{directory}/{name}"

    def claim(self, first: bytes, *, beside_others: bool = False) -> bytes | None:
        """Return the record of a directory that is ours, or make an empty one ours, durably, and return ``None``.

        Args:
            first: the record of a directory that becomes ours.
            beside_others: a new directory may hold files of somebody else.

        Raises:
            Foreign: something else wrote this directory, or both pages of the marker are lost; nothing was changed.
            FutureVersion: a newer release did.
            Full: it is new and there is no space for the marker.
        """
        if self._files.exists(self.path):
            return self._read()
        known = (*self._beside, f".{self._name}.tmp")
        strangers = [name for name in self._files.listdir(self._directory) if name not in known]
        if strangers and not beside_others:
            fact = f"the directory holds {strangers[0]!r} but no {self._name!r}: not a {self._thing} of ours"
            raise Foreign(fact, path=self._directory)
        create_slots(self._files, self.path, self._form, PageSlot(1, first))
        return None

    def write(self, record: bytes) -> None:
        """Change the record, durably; raises as ``write_both``."""
        write_both(self._files, self.path, self._form, record)

    def _read(self) -> bytes:
        try:
            return read_newest(self._files, self.path, self._form).payload
        except Corrupt as error:
            fact = f"not a {self._thing} of ours, or its marker is lost: {error.fact}"
            raise Foreign(f"{fact}; put it back from a backup of this directory", path=self.path) from error
