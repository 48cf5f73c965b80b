"""Recording by ``strace``: every system call of the process, with its bytes.

It works only where processes may be traced; ``available`` tries that once. A trace does not contain the length of a
file, nor whether a name existed before it was opened. Both follow from the earlier contents and every call since."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from stelae.testing.recorder import calls
from stelae.testing.recorder.calls import SystemCall
from stelae.testing.recorder.image import DiskImage

_TRACED = (
    "openat,?open,?creat,write,pwrite64,writev,?pwritev,?pwritev2,ftruncate,?truncate,fallocate,fsync,fdatasync,"
    "?mkdir,mkdirat,?rmdir,?unlink,unlinkat,?rename,?renameat,?renameat2,?link,linkat,?symlink,symlinkat,mmap,"
    "lseek,chdir,fchdir"
)
_BYTES_MAX = 1 << 28
_DATA_SYNC = re.compile(r"\bRWF_D?SYNC\b")
_LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)(<[^>]*>)?")
_PAUSED = re.compile(r"^(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_HANDLE = re.compile(r"(?<![\w\"])(AT_FDCWD|-?\d+)(?:<((?:\\x[0-9a-f]{2})*)>)?(\(deleted\))?")


@functools.cache
def available() -> bool:
    """Say whether ``strace`` is installed and processes may be traced."""
    found = shutil.which("strace")
    if found is None:
        return False
    done = subprocess.run([found, "-qq", "-y", "-e", "trace=fsync", "true"], capture_output=True, check=False)
    return done.returncode == 0


def run(command: Sequence[str], environment: dict[str, str], root: str, marks: str, folder: str) -> tuple[int, str]:
    """Run a command and record what it does; return its exit code and standard error."""
    options = ("-f", "-qq", "-y", "-xx", "-s", str(_BYTES_MAX), "-e", "signal=none", "-e", f"trace={_TRACED}")
    traced = ["strace", *options, "-o", f"{folder}/trace", "--", *command]
    done = subprocess.run(traced, env=environment, capture_output=True, check=False)
    return done.returncode, done.stderr.decode(errors="replace")


def read(folder: str, marks: str, before: DiskImage, root: str) -> Iterator[SystemCall]:
    """Yield the calls of a trace that concern ``root``, in the order in which they ended."""
    reader = _TraceReader({f"{root}{path}": len(data) for path, data in before.files.items()})
    for line in _whole_lines(Path(folder, "trace").read_text(errors="surrogateescape")):
        found = _LINE.match(line)
        if found is None or int(found[3]) < 0:
            continue
        for call in reader.calls_of(found[1], found[2], int(found[3]), found[4] or ""):
            if call.path == marks:
                if isinstance(call, calls.RecordedWrite):
                    yield from (calls.Mark(text) for text in call.data.decode().splitlines())
            elif any(_is_below(path, root) for path in (call.path, getattr(call, "target", ""))):
                yield call


def _whole_lines(trace: str) -> Iterator[str]:
    """Yield the lines of a trace. The two parts of a call that another thread interrupted are joined."""
    paused: dict[str, str] = {}
    for line in trace.splitlines():
        if found := _PAUSED.match(line):
            paused[found[1]] = found[2]
        elif found := _RESUMED.match(line):
            yield f"{found[1]} {paused.pop(found[1], '')}{found[2]}"
        else:
            yield line


class _TraceReader:
    """Turns traced calls into recorded ones.

    Attributes:
        sizes: the length of each file.
        working_directory: where relative paths begin.
        offsets: the offset of each descriptor.
        flags: the flags with which each descriptor was opened.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.working_directory = os.getcwd()
        self.offsets: dict[int, int] = {}
        self.flags: dict[int, str] = {}

    def calls_of(self, name: str, given: str, result: int, handle: str) -> Iterator[CallWithPath]:
        """Yield what one traced call did, if anything."""
        match name:
            case "open" | "openat" | "creat":
                yield from self._open(name, given, result, _decoded(handle[1:-1]))
            case "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2":
                yield from self._write(name, given, result)
            case "lseek":
                self.offsets[_handle(given)[0]] = result
            case "chdir" | "fchdir":
                self.working_directory = self._absolute(given) or _handle(given)[1]
            case "ftruncate" | "truncate" | "fallocate":
                yield from self._resize(name, given)
            case "fsync" | "fdatasync":
                if path := _handle(given)[1]:
                    yield calls.RecordedSync(path)
            case "mmap":
                _, _, protection, flags, mapped = given.split(", ", 4)
                if "PROT_WRITE" in protection and "MAP_SHARED" in flags and (path := _handle(mapped)[1]):
                    yield calls.Mapped(path)
            case _:
                yield from self._names(name, given)

    def _open(self, name: str, given: str, fd: int, path: str) -> Iterator[CallWithPath]:
        flags = "O_CREAT|O_TRUNC" if name == "creat" else given[_TEXT.search(given).end() :]  # type: ignore[union-attr]
        self.offsets[fd], self.flags[fd] = 0, flags
        known = path in self.sizes
        if "O_CREAT" in flags and not known:
            yield calls.Create(path)
            self.sizes[path] = 0
        elif "O_TRUNC" in flags and known:
            yield calls.Resize(path, 0)
            self.sizes[path] = 0

    def _write(self, name: str, given: str, written: int) -> Iterator[CallWithPath]:
        fd, path = _handle(given)
        if not path or not written:
            return
        texts = list(_TEXT.finditer(given))
        rest = given[texts[-1].end() :] if texts else ""
        flags = self.flags.get(fd, "")
        if name == "pwrite64":
            offset = int(rest.split(", ")[2])
        elif name.startswith("p"):
            offset = int(rest.split("], ")[-1].split(", ")[1])
        else:
            offset = self.sizes.get(path, 0) if "O_APPEND" in flags else self.offsets.get(fd, 0)
            self.offsets[fd] = offset + written
        self.sizes[path] = max(self.sizes.get(path, 0), offset + written)
        data = b"".join(_bytes(text[1]) for text in texts)[:written]
        dsync = "O_DSYNC" in flags or "O_SYNC" in flags or bool(_DATA_SYNC.search(rest))
        yield calls.RecordedWrite(path, offset, data, dsync)

    def _resize(self, name: str, given: str) -> Iterator[CallWithPath]:
        arguments = given.split(", ")
        path = self._absolute(given) if name == "truncate" else _handle(given)[1]
        if not path:
            return
        size = int(arguments[-1])
        if name == "fallocate":
            if arguments[1] != "0":
                if arguments[1] != "FALLOC_FL_KEEP_SIZE":
                    yield calls.Unknown(path)
                return
            size = max(self.sizes.get(path, 0), int(arguments[2]) + size)
        self.sizes[path] = size
        yield calls.Resize(path, size)

    def _names(self, name: str, given: str) -> Iterator[CallWithPath]:
        path = self._absolute(given)
        match name:
            case "mkdir" | "mkdirat":
                yield calls.MakeDirectory(path)
            case "unlink" | "unlinkat" | "rmdir":
                directory = name == "rmdir" or given.endswith("AT_REMOVEDIR")
                self.sizes.pop(path, None)
                yield calls.RemoveDirectory(path) if directory else calls.Remove(path)
            case "rename" | "renameat" | "renameat2":
                target = self._absolute(given[_TEXT.search(given).end() :])  # type: ignore[union-attr]
                for known in [one for one in self.sizes if _is_below(one, path)]:
                    self.sizes[target + known.removeprefix(path)] = self.sizes.pop(known)
                yield calls.Rename(path, target)
            case _:
                yield calls.Unknown(self._absolute(given[_TEXT.search(given).end() :]))  # type: ignore[union-attr]

    def _absolute(self, given: str) -> str:
        """Return the first name of a call's arguments as an absolute path, below its directory if it names one."""
        found = _TEXT.search(given)
        if found is None:
            return ""
        directory = _handle(given[: found.start()])[1] or self.working_directory
        path = os.path.normpath(os.path.join(directory, _decoded(found[1])))
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


CallWithPath = (
    calls.RecordedWrite
    | calls.Resize
    | calls.RecordedSync
    | calls.Create
    | calls.MakeDirectory
    | calls.Rename
    | calls.Remove
    | calls.RemoveDirectory | calls.Mapped | calls.Unknown
)  # fmt: skip


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _decoded(text: str) -> str:
    return os.fsdecode(_bytes(text))


def _handle(given: str) -> tuple[int, str]:
    """Return the first descriptor of a call's arguments and its path; empty if the file has no name any more."""
    found = _HANDLE.search(given)
    if found is None or found[3]:
        return -1, ""
    return -1 if found[1] == "AT_FDCWD" else int(found[1]), _decoded(found[2] or "")
