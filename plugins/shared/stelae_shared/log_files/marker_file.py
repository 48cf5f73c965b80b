"""The marker file of a directory: it identifies the engine that owns the directory, and has a record of the engine.

The record is in two pages, and both are written in place (``page_slots``). So neither a full disk nor the loss of one
page keeps a node from starting. If both pages are lost, nothing shows which engine owns the directory, or whether a log
was lost or never existed. Then the engine does not open."""

from __future__ import annotations

from stelae.spi.errors import Corrupt, Foreign
from stelae.spi.services import Files
from stelae_shared.log_files.page_slots import PageSlot, RecordFormat, create_slots, read_newest, write_both


class MarkerFile:
    """The marker of one directory.

    Args:
        files: the disk.
        directory: the engine's directory.
        name: name of the file.
        form: format of its record.
        thing: what the directory contains, for messages, such as "log".
        beside: names of files that may exist before the marker does.
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
        """Return the record of a directory that this engine owns; or claim an empty one durably, and return ``None``.

        Args:
            first: the first record of a claimed directory.
            beside_others: the new directory may have other files.

        Raises:
            Foreign: the directory has a different owner, or both pages of the marker are lost; nothing was changed.
            FutureVersion: a newer release wrote the marker.
            Full: the directory is new and there is no space for the marker.
        """
        if self._files.exists(self.path):
            return self._read()
        known = (*self._beside, f".{self._name}.tmp")
        unknown = [name for name in self._files.listdir(self._directory) if name not in known]
        if unknown and not beside_others:
            fact = f"the directory holds {unknown[0]!r} but no {self._name!r}: not a {self._thing} of ours"
            raise Foreign(fact, path=self._directory)
        create_slots(self._files, self.path, self._form, PageSlot(1, first))
        return None

    def write(self, record: bytes) -> None:
        """Change the record durably. Raises as ``write_both``."""
        write_both(self._files, self.path, self._form, record)

    def _read(self) -> bytes:
        try:
            return read_newest(self._files, self.path, self._form, written_both=True).payload
        except Corrupt as error:
            fact = f"not a {self._thing} of ours, or its marker is lost: {error.fact}"
            raise Foreign(f"{fact}; put it back from a backup of this directory", path=self.path) from error
