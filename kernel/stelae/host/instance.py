"""The node's own files: identity, lock, and the ceiling of its clock.

Ordering and durability
    1. Format writes the directories and the clock file first and the instance file last. So a directory is formatted
       completely or not at all, and format can be repeated until the instance file exists.
    2. The cluster id is written once, at format or at the first join, and never changes.
    3. The clock file has a fixed size and is rewritten in place, so that a full disk does not stop the clock. It has
       two copies of its record. The better copy is never written before the other one is durable, so a torn write
       leaves one valid copy. A ceiling is used only once both copies have it, so damage to one copy does not lower it.
    4. The clean-shutdown mark is removed durably before the node does anything else. It is set as the last step of an
       orderly stop."""

import contextlib

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import (
    HEADER_BYTES,
    NO_CRASH,
    CrashPoints,
    FileKind,
    MetadataMissing,
    decode,
    encode,
    load,
    save,
)
from stelae.spi.errors import Corrupt, Foreign, Locked, StorageError, SyncFailed
from stelae.spi.ids import ClusterId, NodeId, cluster_id, node_id
from stelae.spi.services import FileLock, Files


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the instance file."""

    node_id: NodeId
    cluster_id: ClusterId | None  #: ``None`` until the first join.
    wal_engine: str  #: The engine that owns ``wals/``.
    clean_shutdown: bool = True  #: True between an orderly stop and the next start.
    #: Set while a conversion of the log is in progress: the engine whose log must still be removed from ``wals/``.
    converted_from: str | None = None


class ClockCeiling(msgspec.Struct, frozen=True):
    """The contents of each of the two slots of the clock file. A slot has 4096 bytes and is padded with zeros.

    The node never gave out a hybrid timestamp above the higher ``ceiling`` of the two."""

    ceiling: int


INSTANCE = FileKind("instance", b"STin", 1, msgspec.msgpack.Decoder(Instance))
CLOCK = FileKind("clock", b"STck", 1, msgspec.msgpack.Decoder(ClockCeiling))

_SLOT_BYTES = 4096  #: A slot shares no page and no physical sector with the other one.
_SLOTS = (0, _SLOT_BYTES)


class NotFormatted(StorageError, code="NOT_FORMATTED"):
    """The directory is not that of a node.

    Args:
        root: the directory.
        config: the ``node.toml`` of the node that was to run in it. By it alone the node gets its cluster and uuid.
    """

    def __init__(self, root: str, *, config: str = "") -> None:
        fact = "there is no node in this directory; create one with: stelae fs format"
        if config:
            lost = "in place of one that has lost its disk, pass --uuid too, because it needs a new uuid"
            super().__init__(f"{fact} --config {config}; {lost}", path=root)
        else:
            super().__init__(f"{fact} {root}", path=root)


class AlreadyFormatted(StorageError, code="ALREADY_FORMATTED"):
    """The directory is already that of a node. Nothing was changed."""


class WrongDirectory(StorageError, code="WRONG_DIRECTORY"):
    """The directory belongs to another cluster, or to another log engine."""


OFFLINE = "offline"
"""Follows the id of the process in a lock file if the process is no node, but a command for a stopped node."""


def lock_directory(files: Files, layout: DirectoryLayout, pid: int, *, offline: bool = False) -> FileLock:
    """Lock the directory against other processes, and return the lock. ``offline``: the process is no node.

    Raises ``NotFormatted`` if the directory does not exist, and ``Locked`` if another process has the lock. The error
    names this process if its id can be read."""
    if not files.exists(layout.root):
        raise NotFormatted(layout.root)
    try:
        lock = files.lock(layout.lock)
    except Locked as error:
        found, _, kind = files.read_bytes(layout.lock).decode("ascii", "replace").strip().partition(" ")
        holder = f"process {found}" if found.isdigit() else "another process"
        step = ", a command for a stopped node; wait for its end" if kind == OFFLINE else "; stop it first"
        fact = f"in use by {holder}{step}, or choose another [node] directory"
        raise Locked(fact, path=layout.root) from error
    # Written in place: a replacement would be another file than the one that is locked.
    with contextlib.closing(files.open(layout.lock, writable=True)) as file:
        file.truncate(0)
        file.pwritev([f"{pid} {OFFLINE}\n".encode() if offline else f"{pid}\n".encode()], 0)
    return lock


def format_directory(files: Files, layout: DirectoryLayout, instance: Instance, crash: CrashPoints = NO_CRASH) -> None:
    """Format an empty directory for a new node. Durable on return.

    Raises:
        AlreadyFormatted: the directory has a node or tablets. Nothing was changed.
        BadIdentifier: the node uuid or the cluster id is not valid."""
    node_id(instance.node_id)
    if instance.cluster_id is not None:
        cluster_id(instance.cluster_id)
    if files.exists(layout.instance):
        fact = "this directory already has a node; choose another directory, or remove this one by hand"
        raise AlreadyFormatted(fact, path=layout.root)
    for directory in (layout.superblocks, layout.consensus, layout.wals):
        if files.exists(directory) and files.listdir(directory):
            fact = "the instance file is missing, but the directory has tablets; move them away first"
            raise AlreadyFormatted(fact, path=directory)
    _make_root(files, layout.root)
    for directory in layout.directories():
        files.make_directory(directory)
    files.sync_directory(layout.root)
    save_ceiling(files, layout, 0, crash)
    save(files, INSTANCE, layout.instance, instance, crash)


def _make_root(files: Files, root: str) -> None:
    """Create the root with its missing parents, durably.

    Each name is durable before anything is created below it. So a format that was killed has left at most one name that
    is not: that of the last directory which exists."""
    levels = [root]
    while not files.exists(levels[-1]):
        levels.append(_parent_of(levels[-1]))
    try:
        files.sync_directory(_parent_of(levels.pop()))
    except SyncFailed:
        raise
    except StorageError:
        pass  # This process may not open it. The directory was there before, so its name is the concern of who made it.
    for directory in reversed(levels):
        files.make_directory(directory)
        files.sync_directory(_parent_of(directory))


def _parent_of(directory: str) -> str:
    return directory.rpartition("/")[0] or "/"


def make_names_durable(files: Files, layout: DirectoryLayout) -> None:
    """Make the names of superblocks and consensus metadata durable, before they are read.

    A process that was killed may have renamed a file and not yet synced its directory. Nothing may depend on a vote or
    a superblock that a power loss may undo."""
    for directory in (layout.superblocks, layout.consensus):
        files.sync_directory(directory)


class InstanceFile:
    """The instance file of a running node, which has locked the directory. Its methods may block."""

    def __init__(self, files: Files, layout: DirectoryLayout, crash: CrashPoints = NO_CRASH) -> None:
        self._files = files
        self._layout = layout
        self._crash = crash

    def load(self) -> Instance:
        """Read the file. Raises ``NotFormatted``, and as ``metadata_files.load`` does; the node then cannot start."""
        if not self._files.exists(self._layout.instance):
            raise NotFormatted(self._layout.root)
        return load(self._files, INSTANCE, self._layout.instance)

    def start(self, *, cluster: ClusterId, wal_engine: str) -> Instance:
        """Check that the directory belongs to this cluster and log engine, and remove the clean-shutdown mark, durably.

        A node that has never joined a cluster joins ``cluster``. Raises ``WrongDirectory`` if the directory belongs to
        another cluster, or another engine wrote its log."""
        found, path = self.load(), self._layout.instance
        if found.cluster_id not in (None, cluster):
            fact = f"this node belongs to cluster {found.cluster_id}, not to {cluster}"
            raise WrongDirectory(f"{fact}; correct [node] directory or [cluster] id", path=path)
        if found.wal_engine != wal_engine:
            fact = f"the log here was written by engine {found.wal_engine!r}, not {wal_engine!r}"
            convert = f"stelae wal convert {self._layout.root} --to {wal_engine}"
            raise WrongDirectory(f"{fact}; correct [engines] wal, or convert the log: {convert}", path=path)
        if found.converted_from is not None:
            fact = f"a conversion of the log is not complete; finish it with: stelae wal convert {self._layout.root}"
            raise WrongDirectory(fact, path=path)
        make_names_durable(self._files, self._layout)
        return self._save(found, cluster_id=cluster, clean_shutdown=False)

    def mark_clean(self) -> None:
        """Set the clean-shutdown mark. The caller has made everything else durable."""
        self._save(self.load(), clean_shutdown=True)

    def _save(self, instance: Instance, **changes: object) -> Instance:
        changed = msgspec.structs.replace(instance, **changes)
        save(self._files, INSTANCE, self._layout.instance, changed, self._crash)
        return changed


def read_clock(data: bytes, path: str) -> ClockCeiling:
    """Decode a clock file. Raises as ``metadata_files.decode`` does if neither slot is valid."""
    return ClockCeiling(max(_read_slots(data, path))[0])


def load_ceiling(files: Files, layout: DirectoryLayout) -> int:
    """Return the durable ceiling of the hybrid clock. Raises as ``metadata_files.load`` does.

    Without it a node cannot start, because it does not know which timestamps it has given out."""
    try:
        data = files.read_bytes(layout.clock)
    except FileNotFoundError as error:
        raise MetadataMissing("there is no clock file", path=layout.clock) from error
    return read_clock(data, layout.clock).ceiling


def save_ceiling(files: Files, layout: DirectoryLayout, ceiling: int, crash: CrashPoints = NO_CRASH) -> None:
    """Make a ceiling durable. It must not be below the present one. No free space is needed.

    Raises:
        SyncFailed: the file has the old or the new ceiling. The call can be repeated, because a slot is written as a
            whole.
        Corrupt, Foreign, FutureVersion: the file cannot be read. Nothing was written."""
    crash.hit("clock.before_replace")
    slot = encode(CLOCK, ClockCeiling(ceiling)).ljust(_SLOT_BYTES, b"\0")
    if files.exists(layout.clock):
        _rewrite(files, layout.clock, slot)
    else:
        files.replace(layout.clock, slot * len(_SLOTS))
    crash.hit("clock.after_replace")


def _rewrite(files: Files, path: str, slot: bytes) -> None:
    """Write every slot in place, the one with the highest ceiling last."""
    with contextlib.closing(files.open(path, writable=True)) as file:
        best = max(_read_slots(file.pread(file.size(), 0), path))[1]
        for start in sorted(_SLOTS, key=lambda start: start == best):
            file.pwritev([slot], start, dsync=True)


def _read_slots(data: bytes, path: str) -> list[tuple[int, int]]:
    """Return ceiling and offset of every valid slot: at least one, otherwise the error is raised."""
    found, errors = [], []
    for start in _SLOTS:
        slot = data[start : start + _SLOT_BYTES]
        end = HEADER_BYTES + int.from_bytes(slot[8:16], "little")
        try:
            found.append((decode(CLOCK, slot[:end], path).ceiling, start))
        except (Corrupt, Foreign) as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found
