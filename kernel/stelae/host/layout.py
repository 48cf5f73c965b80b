"""Names of everything a node keeps on disk, below one directory.

Every tablet id is checked before it becomes part of a path, wherever it came from. Metadata files
carry bare ids, without a suffix; so a name with a dot is never a tablet, and what an interrupted
replacement left behind can be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.services import Files


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below ``root``, the directory of one node."""

    root: str

    @property
    def instance(self) -> str:
        """The node's own identity."""
        return f"{self.root}/instance"

    @property
    def lock(self) -> str:
        """Held by the one process that may use the directory."""
        return f"{self.root}/lock"

    @property
    def clock(self) -> str:
        """Durable ceiling of the hybrid clock."""
        return f"{self.root}/clock"

    @property
    def superblocks(self) -> str:
        """Directory of superblocks."""
        return f"{self.root}/tablet-meta"

    @property
    def consensus(self) -> str:
        """Directory of consensus metadata."""
        return f"{self.root}/consensus-meta"

    @property
    def wals(self) -> str:
        """The log engine's own directory."""
        return f"{self.root}/wals"

    @property
    def data(self) -> str:
        """Parent of the store engines' directories."""
        return f"{self.root}/data"

    @property
    def copying(self) -> str:
        """Parent of the stages of copies under way."""
        return f"{self.root}/copying"

    @property
    def quarantine(self) -> str:
        """Parent of what deletions set aside."""
        return f"{self.root}/quarantine"

    def directories(self) -> tuple[str, ...]:
        """Every directory that format creates, parents first."""
        return (
            self.root,
            self.superblocks,
            self.consensus,
            self.wals,
            self.data,
            self.copying,
            self.quarantine,
        )

    def superblock_of(self, tablet: TabletId) -> str:
        """Path of a tablet's superblock."""
        return f"{self.superblocks}/{tablet_id(tablet)}"

    def consensus_of(self, tablet: TabletId) -> str:
        """Path of a tablet's consensus metadata."""
        return f"{self.consensus}/{tablet_id(tablet)}"

    def data_of(self, tablet: TabletId) -> str:
        """Directory of a tablet's store."""
        return f"{self.data}/{tablet_id(tablet)}"

    def copying_of(self, tablet: TabletId) -> str:
        """Directory of the copy of a tablet that is under way."""
        return f"{self.copying}/{tablet_id(tablet)}"

    def quarantine_of(self, tablet: TabletId, number: int) -> str:
        """Directory of the ``number``-th thing set aside of a tablet."""
        return f"{self.quarantine}/{tablet_id(tablet)}.{number:d}"


def tablet_names(files: Files, directory: str) -> list[TabletId]:
    """Return the tablets that have a metadata file in ``directory``, sorted.

    Names that cannot be a tablet id (temporary files of an interrupted replacement, and whatever
    else people leave behind) are passed over.
    """
    found = []
    for name in files.listdir(directory):
        try:
            found.append(tablet_id(name))
        except BadIdentifier:
            continue
    return found
