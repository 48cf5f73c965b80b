"""The node's own files: identity, lock, and the ceiling of its clock.

Ordering and durability
    1. Format writes the clock and the directories first and the instance file last, so a directory
       is formatted or it is not; format can be repeated until the instance file is there.
    2. The cluster id is written once, at format or at the first join, and never changes.
    3. The clock file has a fixed size and is rewritten in place, so that a full disk does not stop
       the clock. It holds its record twice, and the better copy is never written before the other
       one is durable: a torn write leaves one that is whole. A ceiling counts once both hold it,
       so damage to either does not take timestamps back.
    4. The clean-shutdown mark is taken away durably before the node does anything else, and set as
       the last thing of an orderly stop."""

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
from stelae.spi.errors import Corrupt, Foreign, Locked, StorageError
from stelae.spi.ids import ClusterId, NodeId, cluster_id, node_id
from stelae.spi.services import FileLock, Files


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What the instance file holds.

    ``cluster_id`` is ``None`` until the first join; ``wal_engine`` owns ``wals/``;
    ``clean_shutdown`` holds between an orderly stop and the next start; ``converted_from`` names the engine whose log
    still has to make way in ``wals/`` for that of ``wal_engine``."""

    node_id: NodeId
    cluster_id: ClusterId | None
    wal_engine: str
    clean_shutdown: bool = True
    converted_from: str | None = None


class ClockCeiling(msgspec.Struct, frozen=True):
    """What the clock file holds, in each of two slots of 4096 bytes filled up with zeros: no hybrid timestamp above
    the higher ``ceiling`` was ever given out."""

    ceiling: int


INSTANCE = FileKind("instance", b"STin", 1, msgspec.msgpack.Decoder(Instance))
CLOCK = FileKind("clock", b"STck", 1, msgspec.msgpack.Decoder(ClockCeiling))

_SLOT_BYTES = 4096  #: Pages and physical sectors are written whole: a slot shares neither with the other one.
_SLOTS = (0, _SLOT_BYTES)


class NotFormatted(StorageError, code="NOT_FORMATTED"):
    """The directory holds no node."""

    def __init__(self, root: str) -> None:
        super().__init__(f"no node here yet; create one with: stelae fs format {root}", path=root)


class AlreadyFormatted(StorageError, code="ALREADY_FORMATTED"):
    """The directory holds a node already; nothing was changed."""


class WrongDirectory(StorageError, code="WRONG_DIRECTORY"):
    """The directory belongs to another cluster, or to another log engine."""


def lock_directory(files: Files, layout: DirectoryLayout, pid: int) -> FileLock:
    """Keep every other process out of the directory until the lock is released. ``NotFormatted``: there is no such
    directory. ``Locked``: another process holds it; named, if its id can be read."""
    if not files.exists(layout.root):
        raise NotFormatted(layout.root)
    try:
        lock = files.lock(layout.lock)
    except Locked as error:
        found = files.read_bytes(layout.lock).decode("ascii", "replace").strip()
        holder = f"process {found}" if found.isdigit() else "another process"
        fact = f"in use by {holder}; stop it first, or choose another [node] directory"
        raise Locked(fact, path=layout.root) from error
    # Written in place: a replacement would put another file under the name that is locked.
    with contextlib.closing(files.open(layout.lock, writable=True)) as file:
        file.truncate(0)
        file.pwritev([f"{pid}\n".encode()], 0)
    return lock


def format_directory(files: Files, layout: DirectoryLayout, instance: Instance, crash: CrashPoints = NO_CRASH) -> None:
    """Make an empty directory the home of a new node; durable on return.

    Raises:
        AlreadyFormatted: it is one already, or it holds tablets; nothing was changed.
        BadIdentifier: the node uuid or the cluster id is not usable."""
    node_id(instance.node_id)
    if instance.cluster_id is not None:
        cluster_id(instance.cluster_id)
    if files.exists(layout.instance):
        fact = "this directory holds a node already; choose another, or remove this one by hand"
        raise AlreadyFormatted(fact, path=layout.root)
    for directory in (layout.superblocks, layout.consensus, layout.wals):
        if files.exists(directory) and files.listdir(directory):
            fact = "the instance file is gone but tablets are still here; move them away first"
            raise AlreadyFormatted(fact, path=directory)
    changed = [layout.root]
    while changed[-1] != "/" and not files.exists(changed[-1]):
        changed.append(changed[-1].rpartition("/")[0] or "/")
    for directory in layout.directories():
        files.make_directory(directory)
    for directory in changed:
        files.sync_directory(directory)
    save_ceiling(files, layout, 0, crash)
    save(files, INSTANCE, layout.instance, instance, crash)


class InstanceFile:
    """The instance file of a running node. Held under the directory's lock; calls may block."""

    def __init__(self, files: Files, layout: DirectoryLayout, crash: CrashPoints = NO_CRASH) -> None:
        self._files = files
        self._layout = layout
        self._crash = crash

    def load(self) -> Instance:
        """Read it; raises ``NotFormatted``, and as ``metadata.load``: the node cannot start."""
        if not self._files.exists(self._layout.instance):
            raise NotFormatted(self._layout.root)
        return load(self._files, INSTANCE, self._layout.instance)

    def start(self, *, cluster: ClusterId, wal_engine: str) -> Instance:
        """Check that the directory is ours, and take the clean-shutdown mark away, durably.

        A node that never joined a cluster takes ``cluster`` as its own.

        ``WrongDirectory``: it belongs to another cluster, or its log was written by another engine."""
        found, path = self.load(), self._layout.instance
        if found.cluster_id not in (None, cluster):
            fact = f"this node belongs to cluster {found.cluster_id}, not to {cluster}"
            raise WrongDirectory(f"{fact}; correct [node] directory or [cluster] id", path=path)
        if found.wal_engine != wal_engine:
            fact = f"the log here was written by engine {found.wal_engine!r}, not {wal_engine!r}"
            convert = f"stelae wal convert {self._layout.root} --to {wal_engine}"
            raise WrongDirectory(f"{fact}; correct [engines] wal, or convert the log: {convert}", path=path)
        if found.converted_from is not None:
            raise WrongDirectory(f"half converted; end it: stelae wal convert {self._layout.root}", path=path)
        return self._save(found, cluster_id=cluster, clean_shutdown=False)

    def mark_clean(self) -> None:
        """Set the clean-shutdown mark: everything written before is durable."""
        self._save(self.load(), clean_shutdown=True)

    def _save(self, instance: Instance, **changes: object) -> Instance:
        changed = msgspec.structs.replace(instance, **changes)
        save(self._files, INSTANCE, self._layout.instance, changed, self._crash)
        return changed


def read_clock(data: bytes, path: str) -> ClockCeiling:
    """Return what a clock file says; raises as ``metadata.decode`` if neither slot can be read."""
    return ClockCeiling(max(_read_slots(data, path))[0])


def load_ceiling(files: Files, layout: DirectoryLayout) -> int:
    """Return the durable ceiling of the hybrid clock; raises as ``metadata.load``: without it a
    node cannot start, since it does not know which timestamps it gave out."""
    try:
        data = files.read_bytes(layout.clock)
    except FileNotFoundError as error:
        raise MetadataMissing("there is no clock file", path=layout.clock) from error
    return read_clock(data, layout.clock).ceiling


def save_ceiling(files: Files, layout: DirectoryLayout, ceiling: int, crash: CrashPoints = NO_CRASH) -> None:
    """Make a ceiling durable. It must not be below the present one, and needs no free space.

    Raises:
        SyncFailed: the old or the new one stands. Repeat it: a slot is always written whole.
        Corrupt, Foreign, FutureVersion: the file cannot be read; nothing was written."""
    crash.hit("clock.before_replace")
    slot = encode(CLOCK, ClockCeiling(ceiling)).ljust(_SLOT_BYTES, b"\0")
    if files.exists(layout.clock):
        _rewrite(files, layout.clock, slot)
    else:
        files.replace(layout.clock, slot * len(_SLOTS))
    crash.hit("clock.after_replace")


def _rewrite(files: Files, path: str, slot: bytes) -> None:
    """Write every slot in place, the best one last."""
    with contextlib.closing(files.open(path, writable=True)) as file:
        best = max(_read_slots(file.pread(file.size(), 0), path))[1]
        for start in sorted(_SLOTS, key=lambda start: start == best):
            file.pwritev([slot], start, dsync=True)


def _read_slots(data: bytes, path: str) -> list[tuple[int, int]]:
    """Return ceiling and place of every slot that is whole; there is at least one."""
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
