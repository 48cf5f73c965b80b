"""Recording by a small library that is loaded before the C library of the process (``preload.c``).

The system's C compiler compiles it into a temporary directory of this process. It records the calls that go through
functions of the C library. ``record`` detects other changes, because it compares the replayed calls with the files that
the process left."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path

from stelae.testing.recorder import calls
from stelae.testing.recorder.calls import SystemCall
from stelae.testing.recorder.image import DiskImage

_HEAD = struct.Struct("<IIqIIIIQ")
_MAGIC = 0x43455253
_DSYNC = 1
_FLAGS = ("-std=gnu11", "-O1", "-shared", "-fPIC")
_LIBRARIES = ("-ldl", "-lpthread")
_COMPILE_SECONDS_MAX = 120


def available() -> bool:
    """Say whether this machine can record in this way: Linux, little-endian, and a compiler that accepts the source."""
    return library() is not None


@functools.cache
def library() -> str | None:
    """Return the path of the compiled library, or ``None`` if it cannot be compiled or loaded."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or sys.byteorder != "little" or compiler is None:
        return None
    source = resources.files("stelae.testing.recorder").joinpath("preload.c").read_bytes()
    folder = _folder()
    (Path(folder.name) / "preload.c").write_bytes(source)
    target = f"{folder.name}/preload.so"
    command = [compiler, *_FLAGS, "-o", target, f"{folder.name}/preload.c", *_LIBRARIES]
    done = subprocess.run(command, capture_output=True, timeout=_COMPILE_SECONDS_MAX, check=False)
    return target if done.returncode == 0 and _records(target, folder.name) else None


def _records(library: str, folder: str) -> bool:
    """Try the library on a Python process. A statically linked interpreter would not load it."""
    root = os.path.realpath(folder)
    settings = _settings(library, root, "", f"{folder}/trial")
    command = [sys.executable, "-I", "-c", f"open({root!r} + '/tried', 'w').write('x')"]
    subprocess.run(command, env={**os.environ, **settings}, capture_output=True, check=False)
    found = list(_calls(f"{folder}/trial", "")) if os.path.exists(f"{folder}/trial") else []
    return found == [calls.Create(f"{root}/tried"), calls.RecordedWrite(f"{root}/tried", 0, b"x")]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return the directory of the library. It is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix=f"stelae-recorder-{platform.machine()}-")


def run(command: Sequence[str], environment: dict[str, str], root: str, marks: str, folder: str) -> tuple[int, str]:
    """Run a command and record what it does below ``root``; return its exit code and standard error.

    Args:
        command: what to run.
        environment: its whole environment.
        root: the directory to record.
        marks: the file whose writes are marks.
        folder: the directory for the record.
    """
    found = library()
    assert found is not None
    recorded = {**environment, **_settings(found, root, marks, f"{folder}/record")}
    done = subprocess.run(command, env=recorded, capture_output=True, check=False)
    return done.returncode, done.stderr.decode(errors="replace")


def read(folder: str, marks: str, before: DiskImage, root: str) -> Iterator[SystemCall]:
    """Yield the calls of a record, in order. ``before`` and ``root`` are not needed here."""
    return _calls(f"{folder}/record", marks)


def _settings(library: str, root: str, marks: str, record: str) -> dict[str, str]:
    """Return the additional environment variables of a recorded process; ``preload.c`` explains each."""
    return {"LD_PRELOAD": library, "STELAE_RECORD_ROOT": root, "STELAE_RECORD_MARKS": marks, "STELAE_RECORD_TO": record}


def _calls(record: str, marks: str) -> Iterator[SystemCall]:
    data, at = Path(record).read_bytes(), 0
    while at < len(data):
        magic, kind, offset, flags, path_bytes, other_bytes, _, data_bytes = _HEAD.unpack_from(data, at)
        if magic != _MAGIC:
            raise ValueError(f"the record is broken at byte {at}")
        start = at + _HEAD.size
        path = os.fsdecode(data[start : start + path_bytes])
        other = os.fsdecode(data[start + path_bytes : start + path_bytes + other_bytes])
        body = start + path_bytes + other_bytes
        at = body + data_bytes
        call = _call(kind, path, other, offset, flags, data[body:at])
        if path != marks:
            yield call
        elif isinstance(call, calls.RecordedWrite):
            yield from (calls.Mark(line) for line in call.data.decode().splitlines())


def _call(kind: int, path: str, other: str, offset: int, flags: int, data: bytes) -> SystemCall:
    """Return one call; ``kind`` is numbered as in ``preload.c``."""
    match kind:
        case 1:
            return calls.RecordedWrite(path, offset, data, bool(flags & _DSYNC))
        case 2:
            return calls.Resize(path, offset)
        case 6:
            return calls.Rename(path, other)
        case 9 | 11:
            return calls.Unknown(path)
        case _:
            return _PLAIN[kind](path)


_PLAIN: dict[int, Callable[[str], SystemCall]] = {
    3: calls.RecordedSync,
    4: calls.Create,
    5: calls.MakeDirectory,
    7: calls.Remove,
    8: calls.RemoveDirectory,
    10: calls.Mapped,
}
