"""Recording a command: with the means that this machine has, and with proof that nothing was missed.

After the command has ended, its calls are repeated on a virtual disk that began like the directory did. What is
visible there has to be what is on the real one, byte by byte. A change that the means did not see, for which there
are many ways, makes a difference and is an error here; it is never an engine that passes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from stelae.spi.errors import StelaeError
from stelae.testing.recorder import calls, preload, straced
from stelae.testing.recorder.calls import Call
from stelae.testing.recorder.disk import RecordedDisk
from stelae.testing.recorder.image import DiskImage


class RecordingFailed(Exception):
    """The command failed, or did something that was not recorded."""


class Means(Protocol):
    """A way of recording."""

    def available(self) -> bool:
        """Say whether this machine has it."""
        ...

    def run(
        self, command: Sequence[str], environment: dict[str, str], root: str, marks: str, folder: str
    ) -> tuple[int, str]:
        """Run a command and record what it does below ``root`` and to the file ``marks``, into ``folder``.

        Returns its exit code, and what it said in error."""
        ...

    def read(self, folder: str, marks: str, before: DiskImage, root: str) -> Iterator[Call]:
        """The recorded calls in order; writes to ``marks`` are marks. ``root`` held ``before`` at first."""
        ...


MEANS: dict[str, Means] = {"preload": preload, "strace": straced}
"""By name, the better one first: it is faster, and may be used where processes may not be traced."""


def means() -> Means | None:
    """What this machine records with, if it can."""
    return next((one for one in MEANS.values() if one.available()), None)


class Recording(msgspec.Struct, frozen=True):
    """What a command did below one directory.

    Attributes:
        before: what was there at first.
        calls: in order, with paths that begin with ``/`` in that directory.
    """

    before: DiskImage
    calls: tuple[Call, ...]


def record(
    command: Sequence[str],
    environment: dict[str, str],
    root: str,
    marks: str,
    mapped: frozenset[str] = frozenset(),
    using: Means | None = None,
) -> Recording:
    """Run a command and record what it does below ``root``.

    Args:
        command: what to run.
        environment: its whole environment.
        root: a directory, given without symbolic links.
        marks: a file outside of it, to which the command appends a line for each mark.
        mapped: names of files that are written through a mapping and mean nothing after a restart.
        using: the means; the best that there are if ``None``.

    Raises:
        RecordingFailed: there are no means, the command failed, or its calls do not explain what it left.
    """
    chosen = using or means()
    if chosen is None:
        raise RecordingFailed(f"none of {', '.join(MEANS)} is available")
    before = DiskImage.of(root)
    with tempfile.TemporaryDirectory(prefix="stelae-record-") as folder:
        code, said = chosen.run(command, environment, root, marks, folder)
        if code:
            raise RecordingFailed(f"the command ended with code {code}: {said[-2000:]}")
        found = tuple(_inside(call, root) for call in chosen.read(folder, marks, before, root))
    recording = Recording(before, found)
    _check(recording, DiskImage.of(root), mapped)
    return recording


def _inside(call: Call, root: str) -> Call:
    """A call with paths as they are below the root."""
    if isinstance(call, calls.Mark):
        return call
    for name in ("path", "target"):
        path = getattr(call, name, None)
        if path is not None:
            if path != root and not path.startswith(f"{root}{os.sep}"):
                raise RecordingFailed(f"{path} was moved over the edge of {root}")
            call = msgspec.structs.replace(call, **{name: path.removeprefix(root) or "/"})
    return call


def _check(recording: Recording, after: DiskImage, mapped: frozenset[str]) -> None:
    disk = RecordedDisk.holding(recording.before)
    for number, call in enumerate(recording.calls):
        if isinstance(call, calls.Mapped) and call.path.rpartition("/")[2] not in mapped:
            raise RecordingFailed(f"{call.path} is written through a mapping, which nothing here can see")
        try:
            disk.repeat(call)
        except (OSError, ValueError, StelaeError) as error:
            raise RecordingFailed(f"call {number}, {call!r:.200}, cannot have worked: {error}") from error
    difference = disk.image().difference(after, mapped)
    if difference:
        raise RecordingFailed(f"the calls do not explain what is there: {difference}")
