"""Recording the file calls of a command, with a check that no change was missed.

After the command has ended, its calls are repeated on a virtual disk with the earlier contents of the directory. The
virtual disk must then equal the real directory, byte by byte. A change that was not recorded makes a difference and
raises an error, so an engine cannot pass because of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from stelae.spi.errors import StelaeError
from stelae.testing.recorder import calls, preload, strace
from stelae.testing.recorder.calls import SystemCall
from stelae.testing.recorder.disk import RecordedDisk
from stelae.testing.recorder.image import DiskImage


class RecordingFailed(Exception):
    """The command failed, or it changed something that was not recorded."""


class RecordingMethod(Protocol):
    """A way of recording file calls."""

    def available(self) -> bool:
        """Say whether this machine can record in this way."""
        ...

    def run(
        self, command: Sequence[str], environment: dict[str, str], root: str, marks: str, folder: str
    ) -> tuple[int, str]:
        """Run a command and record into ``folder`` what it does below ``root`` and to the file ``marks``.

        Returns its exit code and standard error."""
        ...

    def read(self, folder: str, marks: str, before: DiskImage, root: str) -> Iterator[SystemCall]:
        """Yield the recorded calls in order. Writes to ``marks`` are marks. ``root`` held ``before`` at first."""
        ...


METHODS: dict[str, RecordingMethod] = {"preload": preload, "strace": strace}
"""The methods by name. The first one is faster, and also works where processes may not be traced."""


def available_method() -> RecordingMethod | None:
    """Return the first method that works on this machine, if any."""
    return next((method for method in METHODS.values() if method.available()), None)


class Recording(msgspec.Struct, frozen=True):
    """The calls of a command below one directory.

    Attributes:
        before: the contents of the directory at first.
        calls: the calls in order. Paths are relative to the directory and begin with ``/``.
    """

    before: DiskImage
    calls: tuple[SystemCall, ...]


def record(
    command: Sequence[str],
    environment: dict[str, str],
    root: str,
    marks: str,
    mapped: frozenset[str] = frozenset(),
    method: RecordingMethod | None = None,
) -> Recording:
    """Run a command and record what it does below ``root``.

    Args:
        command: what to run.
        environment: its whole environment.
        root: a directory, given without symbolic links.
        marks: a file outside of it, to which the command appends a line for each mark.
        mapped: names of files that are written through a mapping and do not matter after a restart.
        method: how to record; the first available one if ``None``.

    Raises:
        RecordingFailed: no method is available, the command failed, or its calls do not explain the files that it left.
    """
    chosen = method or available_method()
    if chosen is None:
        raise RecordingFailed(f"none of {', '.join(METHODS)} is available")
    before = DiskImage.of(root)
    with tempfile.TemporaryDirectory(prefix="stelae-record-") as folder:
        code, stderr = chosen.run(command, environment, root, marks, folder)
        if code:
            raise RecordingFailed(f"the command ended with code {code}: {stderr[-2000:]}")
        found = tuple(_inside(call, root) for call in chosen.read(folder, marks, before, root))
    recording = Recording(before, found)
    _check(recording, DiskImage.of(root), mapped)
    return recording


def _inside(call: SystemCall, root: str) -> SystemCall:
    """Return a call with paths relative to the root."""
    if isinstance(call, calls.Mark):
        return call
    for name in ("path", "target"):
        path = getattr(call, name, None)
        if path is not None:
            if path != root and not path.startswith(f"{root}{os.sep}"):
                raise RecordingFailed(f"{path} was moved into or out of {root}")
            call = msgspec.structs.replace(call, **{name: path.removeprefix(root) or "/"})
    return call


def _check(recording: Recording, after: DiskImage, mapped: frozenset[str]) -> None:
    disk = RecordedDisk.holding(recording.before)
    for number, call in enumerate(recording.calls):
        if isinstance(call, calls.Mapped) and call.path.rpartition("/")[2] not in mapped:
            raise RecordingFailed(f"{call.path} is written through a mapping, which cannot be recorded")
        try:
            disk.repeat(call)
        except (OSError, ValueError, StelaeError) as error:
            raise RecordingFailed(f"call {number}, {call!r:.200}, cannot have succeeded: {error}") from error
    difference = disk.image().difference(after, mapped)
    if difference:
        raise RecordingFailed(f"the calls do not explain the files: {difference}")
