"""Bugs that can be planted beneath any log engine, or above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stelae.host.log_writer import LogWriter
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import StorageError, SyncFailed
from stelae.spi.ids import LogId
from stelae.spi.wal import Begun, Failed, Outcome, WalEngine, Write

_preallocate = VirtualFile.preallocate
_remove = VirtualDisk.remove
_settle = LogWriter._settle
_sync = VirtualFile.sync


SEGMENT_BYTES_MIN = 1000
"""What is shorter is no segment with entries, but a marker, a base, a lock, or space that nothing used yet."""


def repeats_a_failed_sync(call: Callable[..., Any]) -> Callable[..., Any]:
    """A synchronous call that, once it has failed, is followed by a sync, whose success is believed."""

    def planted(self: VirtualFile, *arguments: Any, **options: Any) -> Any:
        try:
            return call(self, *arguments, **options)
        except SyncFailed:
            _sync(self)
            return sum(map(len, arguments[0])) if arguments else None

    return planted


def repeated_syncs() -> Sequence[tuple[Any, str, Callable[..., Any]]]:
    """Every sync of a file is repeated once: what to replace, by owner and name."""
    return [(VirtualFile, name, repeats_a_failed_sync(getattr(VirtualFile, name))) for name in ("pwritev", "sync")]


class UsedSpace:
    """A disk on which space that is reserved holds the segment that was removed last, as recycled ones do."""

    def __init__(self) -> None:
        self._removed = b""

    def plants(self) -> Sequence[tuple[Any, str, Callable[..., Any]]]:
        """What to replace, by owner and name."""

        def remove(disk: VirtualDisk, path: str) -> None:
            found = disk.tree().get(path, b"")
            if path.endswith(".seg") and len(found.strip(b"\0")) >= SEGMENT_BYTES_MIN:
                self._removed = found
            _remove(disk, path)

        def preallocate(file: VirtualFile, size: int) -> None:
            before = file.size()
            _preallocate(file, size)
            if used := self._removed[before:size]:
                file._contents.write(used, before)

        return [(VirtualDisk, "remove", remove), (VirtualFile, "preallocate", preallocate)]


def fails_the_neighbours(engine_type: type[WalEngine]) -> Callable[..., dict[LogId, Outcome]]:
    """A ``commit`` whose outcome is the same for all logs of the group as soon as one failed."""
    commit = engine_type.commit

    def planted(self: WalEngine, group: Any, *, sync: bool) -> dict[LogId, Outcome]:
        outcomes = commit(self, group, sync=sync)
        failed = [outcome for outcome in outcomes.values() if isinstance(outcome, Failed)]
        return {log: failed[0] if failed else outcome for log, outcome in outcomes.items()}

    return planted


def _with_begun(engine_type: type[WalEngine], change: Callable[[Begun], Begun]) -> Callable[..., Begun | None]:
    begin = engine_type.begin

    def planted(self: WalEngine, group: Any) -> Begun | None:
        begun = begin(self, group)
        return None if begun is None else change(begun)

    return planted


def shows_what_has_begun(engine_type: type[WalEngine]) -> Callable[..., Begun | None]:
    """A ``begin`` behind which readers see what is not durable yet."""

    def change(begun: Begun) -> Begun:
        outcomes = begun.finish([None] * len(begun.writes))
        return begun._replace(finish=lambda failures: outcomes)

    return _with_begun(engine_type, change)


def forgets_the_failure(engine_type: type[WalEngine]) -> Callable[..., Begun | None]:
    """A ``finish`` that takes every write for durable."""
    return _with_begun(
        engine_type, lambda begun: begun._replace(finish=lambda failures: begun.finish([None] * len(failures)))
    )


class _Unsynced(Write):
    """A write that leaves the sync out."""

    def failure(self) -> StorageError | None:
        self.file.pwritev(self.buffers, self.offset)
        return None


def begins_without_sync(engine_type: type[WalEngine]) -> Callable[..., Begun | None]:
    """A ``begin`` whose writes are not made durable."""
    return _with_begun(engine_type, lambda begun: begun._replace(writes=[_Unsynced(*one) for one in begun.writes]))


def begins_what_does_not_fit(engine_type: type[WalEngine]) -> Callable[..., Begun | None]:
    """A ``begin`` that leaves out of a group what is refused."""
    begin = engine_type.begin

    def planted(self: WalEngine, group: Any) -> Begun | None:
        found = begin(self, group)
        fitting = [begun for log, append in group.items() if (begun := begin(self, {log: append})) is not None]
        return found or (fitting[0] if fitting else None)

    return planted


def tells_the_first_waiter(self: LogWriter, state: Any, slots: Any, outcome: Outcome, completions: list[Any]) -> None:
    """Of all that wait for a log that failed, the first one hears of it."""
    before = len(completions)
    _settle(self, state, slots, outcome, completions)
    if isinstance(outcome, Failed):
        del completions[before + 1 :]
