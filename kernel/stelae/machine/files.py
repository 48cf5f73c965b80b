"""The real disk: ``Files`` of ``stelae.spi.services`` over POSIX calls.

This module alone handles the differences between systems: synchronous vectored writes where the kernel has them, a full
flush of the drive on macOS, and preallocation by writing zeros where there is no ``posix_fallocate``.

Errors get types. No space is ``Full``, and may pass. Any other failure of a write or a sync is ``SyncFailed``, and the
file must not be trusted afterwards. A sync that fails because the disk is full is ``SyncFailed`` too, because it may
have lost earlier writes. A file that cannot be opened for lack of handles or memory is ``Full``, and is unchanged.

Every system call goes through an ``OsCalls``, which is the module ``os`` except in tests."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

from stelae.host.atomic_replace import replace_file
from stelae.machine.os_calls import OsCalls
from stelae.spi.errors import BadIdentifier, Full, Locked, StorageError, SyncFailed
from stelae.spi.services import Buffer

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NO_HANDLES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_NOT_SUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
_BUFFERS_MAX = min(1024, os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 16)
_ZEROS = bytes(1 << 20)
_RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_F_FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class RealFile:
    """One open file descriptor: a ``File``. Not shared between threads that write."""

    __slots__ = ("__weakref__", "_calls", "_dsync_flag", "_fd", "path")

    def __init__(self, fd: int, path: str, calls: OsCalls = os) -> None:
        self._calls = calls
        self._fd = fd
        self._dsync_flag = _RWF_DSYNC
        self.path = path

    def fileno(self) -> int:
        """The file descriptor."""
        return self._checked()

    def pread(self, size: int, offset: int) -> bytes:
        """Read as the contract says. ``StorageError``: the system cannot read; its offset is that of the first byte
        that the system did not return."""
        fd, data = self._checked(), b""
        try:
            while more := self._calls.pread(fd, size - len(data), offset + len(data)):
                data = data + more if data else more
                if len(data) == size:
                    break
        except OSError as error:
            fact = f"cannot read: {error.strerror}"
            raise StorageError(fact, path=self.path, offset=offset + len(data)) from error
        return data

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        fd = self._checked()
        flag = self._dsync_flag if dsync else 0
        size = sum(map(len, buffers))
        with _write_errors(self.path, offset):
            try:
                written = _pwritev(self._calls, fd, buffers[:_BUFFERS_MAX], offset, flag)
            except OSError as error:
                if not flag or error.errno not in _NOT_SUPPORTED:
                    raise
                self._dsync_flag = flag = written = 0
            if written < size:
                _write_rest(self._calls, fd, buffers, offset, written, flag)
        if dsync and not flag:
            self.sync(data_only=True)
        return size

    def sync(self, *, data_only: bool = False) -> None:
        _sync(self._calls, self._checked(), self.path, data_only)

    def preallocate(self, size: int) -> None:
        fd = self._checked()
        before = self._calls.fstat(fd).st_size
        if before >= size:
            return
        with _write_errors(self.path, before):
            try:
                _allocate(self._calls, fd, before, size)
            except OSError:
                with suppress(OSError):
                    self._calls.ftruncate(fd, before)
                raise

    def truncate(self, size: int) -> None:
        with _write_errors(self.path, size):
            self._calls.ftruncate(self._checked(), size)

    def size(self) -> int:
        with _name_errors(self.path):
            return int(self._calls.fstat(self._checked()).st_size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._calls.close(fd)

    def __del__(self) -> None:
        self.close()

    def _checked(self) -> int:
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        return self._fd


class RealLock:
    """An exclusive lock of this process on a file. The system releases it when the process ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock. Releasing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFiles:
    """The machine's ``Files``. Stateless: one instance serves a whole node."""

    _calls: OsCalls = os

    def __init__(self, calls: OsCalls = os) -> None:
        self._calls = calls

    def create(self, path: str) -> RealFile:
        return RealFile(_open(self._calls, path, os.O_RDWR | os.O_CREAT | os.O_EXCL), path, self._calls)

    def open(self, path: str, *, writable: bool = False) -> RealFile:
        fd = _open(self._calls, path, os.O_RDWR if writable else os.O_RDONLY)
        if not writable and _is_directory(self._calls, path):
            self._calls.close(fd)
            raise IsADirectoryError(path)
        return RealFile(fd, path, self._calls)

    def exists(self, path: str) -> bool:
        # Not ``os.path.exists``, which returns false when the disk fails.
        try:
            with _name_errors(path):
                self._calls.stat(_checked(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        with _name_errors(path):
            return sorted(self._calls.listdir(_checked(path)))

    def make_directory(self, path: str) -> None:
        with _name_errors(path):
            _make_directories(self._calls, _checked(path))

    def rename(self, source: str, target: str) -> None:
        with _name_errors(source):
            if _is_directory(self._calls, _checked(target)):
                raise IsADirectoryError(target)
            self._calls.rename(_checked(source), target)

    def remove(self, path: str) -> None:
        with _name_errors(path):
            if _is_directory(self._calls, _checked(path)):
                raise IsADirectoryError(path)
            self._calls.unlink(path)

    def remove_tree(self, path: str) -> None:
        with _name_errors(path), suppress(FileNotFoundError):
            _remove_tree(self._calls, _checked(path))

    def sync_directory(self, path: str) -> None:
        fd = _open(self._calls, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(self._calls, fd, path, data_only=False)
        finally:
            self._calls.close(fd)

    def read_bytes(self, path: str) -> bytes:
        with closing(self.open(path)) as file:
            return file.pread(file.size(), 0)

    def replace(self, path: str, data: Buffer) -> None:
        replace_file(self, _checked(path), data)

    def space_left(self, path: str) -> int:
        with _name_errors(path):
            found = self._calls.statvfs(_checked(path))
        return int(found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> RealLock:
        fd = _open(self._calls, path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Locked("another process holds the lock", path=path) from error
            raise StorageError(f"cannot lock: {error.strerror}", path=path) from error
        return RealLock(fd)


def _open(calls: OsCalls, path: str, flags: int) -> int:
    with _name_errors(path):
        return calls.open(_checked(path), flags, 0o644)


def _is_directory(calls: OsCalls, path: str) -> bool:
    """Say whether a directory with that name exists. A name that cannot be looked up is not a directory."""
    try:
        return stat.S_ISDIR(calls.stat(path).st_mode)
    except OSError:
        return False


def _make_directories(calls: OsCalls, path: str) -> None:
    """Create a directory and its missing parents."""
    if _is_directory(calls, path):
        return
    parent = os.path.dirname(path.rstrip("/"))
    if parent and not _is_directory(calls, parent):
        _make_directories(calls, parent)
    try:
        calls.mkdir(path)
    except FileExistsError:
        if not _is_directory(calls, path):  # Otherwise another process created it first.
            raise


def _remove_tree(calls: OsCalls, path: str) -> None:
    """Remove a directory with its contents. A symbolic link in it is removed and not followed."""
    for name in calls.listdir(path):
        child = os.path.join(path, name)
        if stat.S_ISDIR(calls.lstat(child).st_mode):
            _remove_tree(calls, child)
        else:
            calls.unlink(child)
    calls.rmdir(path)


def _pwritev(calls: OsCalls, fd: int, buffers: Sequence[Buffer], offset: int, flag: int) -> int:
    if hasattr(calls, "pwritev"):
        return calls.pwritev(fd, buffers, offset, flag) if flag else calls.pwritev(fd, buffers, offset)
    return calls.pwrite(fd, b"".join(buffers), offset)


def _write_rest(calls: OsCalls, fd: int, buffers: Sequence[Buffer], offset: int, written: int, flag: int) -> None:
    """Write the rest after a short write, or the buffers that one call does not take."""
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    position, first = offset, 0
    while True:
        position += written
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if first == len(views):
            return
        views[first] = views[first][written:]
        written = _pwritev(calls, fd, views[first : first + _BUFFERS_MAX], position, flag)
        if written == 0:
            raise OSError(errno.EIO, "the system wrote nothing")


def _allocate(calls: OsCalls, fd: int, before: int, size: int) -> None:
    if hasattr(calls, "posix_fallocate"):
        try:
            calls.posix_fallocate(fd, 0, size)
            return
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
    while before < size:
        before += calls.pwrite(fd, memoryview(_ZEROS)[: size - before], before)


def _sync(calls: OsCalls, fd: int, path: str, data_only: bool) -> None:
    try:
        if _F_FULLFSYNC is not None:
            fcntl.fcntl(fd, _F_FULLFSYNC)
        elif data_only and hasattr(calls, "fdatasync"):
            calls.fdatasync(fd)
        else:
            calls.fsync(fd)
    except OSError as error:
        raise SyncFailed(f"the sync failed: {error.strerror}", path=path) from error


def write_error(error: OSError, path: str, offset: int) -> Full | SyncFailed:
    """Return the typed error of a failed write."""
    if error.errno in _NO_SPACE:
        return Full(f"no space: {error.strerror}", path=path, offset=offset)
    return SyncFailed(f"the write failed: {error.strerror}", path=path, offset=offset)


@contextmanager
def _write_errors(path: str, offset: int) -> Iterator[None]:
    """Convert failures of a write to typed errors."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path, offset) from error


@contextmanager
def _name_errors(path: str) -> Iterator[None]:
    """Convert failures to typed errors. Errors about names pass unchanged."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError):
        raise
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise Full(f"no space: {error.strerror}", path=path) from error
        if error.errno in _NO_HANDLES:
            raise Full(f"no handle or no memory: {error.strerror}; raise the limit", path=path) from error
        raise StorageError(f"cannot use it: {error.strerror}", path=path) from error


def _checked(path: str) -> str:
    if not path or "\0" in path or ".." in path.split("/"):
        raise BadIdentifier("path", path, "non-empty text without NUL and without '..'")
    return path
