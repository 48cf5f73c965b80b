"""Names of everything a node keeps on disk, below one directory.

Every tablet id is checked before it becomes part of a path, wherever it came from. Metadata files
carry bare ids; so a name with a dot is never a tablet but a leftover of an interrupted replacement."""

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.services import Files


class DirectoryLayout:
    """Paths below ``root``, the directory of one node: its own files, then directories.

    ``wals`` is the log engine's own; ``data`` holds a directory per tablet for the store engines,
    ``copying`` one per copy under way, ``quarantine`` what deletions set aside."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.instance = f"{root}/instance"
        self.lock = f"{root}/lock"
        self.clock = f"{root}/clock"
        self.superblocks = f"{root}/tablet-meta"
        self.consensus = f"{root}/consensus-meta"
        self.wals = f"{root}/wals"
        self.data = f"{root}/data"
        self.copying = f"{root}/copying"
        self.quarantine = f"{root}/quarantine"

    def directories(self) -> tuple[str, ...]:
        """Every directory that format creates, parents first."""
        metadata = (self.superblocks, self.consensus)
        return (self.root, *metadata, self.wals, self.data, self.copying, self.quarantine)

    def superblock_of(self, tablet: TabletId) -> str:
        """Path of a tablet's superblock; each of these raises ``BadIdentifier``."""
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
