"""Names of everything a node keeps on disk, below one directory.

Every tablet id is checked before it becomes part of a path, wherever it came from. Metadata files
carry bare ids; so a name with a dot is never a tablet but a leftover of an interrupted replacement.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.services import Files


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below ``root``, the directory of one node: its own files, then directories.

    ``wals`` is the log engine's own; ``data`` holds a directory per tablet for the store engines,
    ``copying`` one per copy under way, ``quarantine`` what deletions set aside.
    """

    root: str
    instance: str = field(init=False)
    lock: str = field(init=False)
    clock: str = field(init=False)
    superblocks: str = field(init=False)
    consensus: str = field(init=False)
    wals: str = field(init=False)
    data: str = field(init=False)
    copying: str = field(init=False)
    quarantine: str = field(init=False)

    def __post_init__(self) -> None:
        other = {"superblocks": "tablet-meta", "consensus": "consensus-meta"}
        for name in ("instance", "lock", "clock", *self._directory_names()):
            object.__setattr__(self, name, f"{self.root}/{other.get(name, name)}")

    @staticmethod
    def _directory_names() -> tuple[str, ...]:
        return ("superblocks", "consensus", "wals", "data", "copying", "quarantine")

    def directories(self) -> tuple[str, ...]:
        """Every directory that format creates, parents first."""
        return (self.root, *(getattr(self, name) for name in self._directory_names()))

    def superblock_of(self, tablet: TabletId) -> str:
        """Path of a tablet's superblock."""
        return f"{self.superblocks}/{tablet_id(tablet)}"

    def consensus_of(self, tablet: TabletId) -> str:
        """Path of a tablet's consensus metadata."""
        return f"{self.consensus}/{tablet_id(tablet)}"

    def data_of(self, tablet: TabletId) -> str:
        """Directory of a tablet's store."""
        return f"{self.data}/{tablet_id(tablet)}"


def tablet_names(files: Files, directory: str) -> list[TabletId]:
    """Return the tablets that have a file in ``directory``, sorted; other names are passed over."""
    found = []
    for name in files.listdir(directory):
        try:
            found.append(tablet_id(name))
        except BadIdentifier:
            continue
    return found
