"""The paths of all files of a node, below one directory.

A tablet id is checked before it becomes part of a path, whatever its origin. The name of a metadata file is the bare
tablet id. So a name with a dot is never that of a tablet, but of a file that an interrupted replacement left."""

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.services import Files


class DirectoryLayout:
    """The paths below ``root``, the directory of one node.

    ``wals`` belongs to the log engine. ``data`` has one directory for each tablet's store, ``copying`` one for each
    copy in progress, and ``quarantine`` one for each deleted replica whose data is kept. ``serving`` has what this node
    wrote for the copies that it serves. It is made when it is needed, and nothing in it outlives the process."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.instance = f"{root}/instance"
        self.lock = f"{root}/lock"
        self.clock = f"{root}/clock"
        self.masters = f"{root}/masters"
        self.superblocks = f"{root}/tablet-meta"
        self.consensus = f"{root}/consensus-meta"
        self.wals = f"{root}/wals"
        self.data = f"{root}/data"
        self.copying = f"{root}/copying"
        self.quarantine = f"{root}/quarantine"
        self.serving = f"{root}/serving"

    def directories(self) -> tuple[str, ...]:
        """Return every directory that format creates, parents first."""
        metadata = (self.superblocks, self.consensus)
        return (self.root, *metadata, self.wals, self.data, self.copying, self.quarantine)

    def superblock_of(self, tablet: TabletId) -> str:
        """Return the path of a tablet's superblock. Raises ``BadIdentifier``, as the following methods do."""
        return f"{self.superblocks}/{tablet_id(tablet)}"

    def consensus_of(self, tablet: TabletId) -> str:
        """Return the path of a tablet's consensus metadata."""
        return f"{self.consensus}/{tablet_id(tablet)}"

    def data_of(self, tablet: TabletId) -> str:
        """Return the directory of a tablet's store."""
        return f"{self.data}/{tablet_id(tablet)}"

    def stage_of(self, tablet: TabletId) -> str:
        """Return the directory of a copy that is in progress: its stage."""
        return f"{self.copying}/{tablet_id(tablet)}"


def tablet_names(files: Files, directory: str) -> list[TabletId]:
    """Return the tablets that have a file in ``directory``, sorted. Other names are ignored."""
    found = []
    for name in files.listdir(directory):
        try:
            found.append(tablet_id(name))
        except BadIdentifier:
            continue
    return found
