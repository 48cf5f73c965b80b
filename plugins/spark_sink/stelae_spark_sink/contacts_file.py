"""Stores by which nodes a cluster was reached, so that later Python workers on this host reach it again.

Spark starts workers whenever it needs them: the commit of each batch of a stream may be a new one. A worker has the
option ``masters`` as it was given when the query started, and all masters of it may have been replaced since. So each
list of addresses has a file, which a worker writes when it has learned other nodes.

The files are hints. One that is lost, damaged or not writable is ignored. A folder of another user is not used: its
files could send rows elsewhere."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from stelae.client import Contacts

FILES_MAX = 64
"""The most files of a folder. The oldest ones are removed."""

_log = logging.getLogger(__name__)


class StoredContacts(msgspec.Struct, frozen=True):
    """The content of a file."""

    masters: tuple[str, ...]  #: The option ``masters``.
    contacts: Contacts


def read_contacts(masters: Sequence[str]) -> Contacts | None:
    """Return the contacts that were stored for the addresses of an option; ``None``: there are none."""
    for folder in _folders():
        try:
            if _is_private(folder):
                stored = msgspec.json.decode(_file(folder, masters).read_bytes(), type=StoredContacts)
                if stored.masters == tuple(masters):
                    return stored.contacts
        except (OSError, ValueError) as error:
            _log.debug("contacts not read folder=%s error=%s", folder, error)
    return None


def write_contacts(masters: Sequence[str], contacts: Contacts) -> None:
    """Store contacts in the first folder that this user can write."""
    content = msgspec.json.encode(StoredContacts(tuple(masters), contacts))
    for folder in _folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(folder):
                _replace(_file(folder, masters), content)
                return
        except OSError as error:
            _log.debug("contacts not written folder=%s error=%s", folder, error)


def _folders() -> Iterator[Path]:
    """Yield the user's cache folder, then a folder of the user among the temporary files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with suppress(RuntimeError):  # A user of a container may have no home.
        yield (cache if cache.is_absolute() else Path.home() / ".cache") / "stelae-spark"
    yield Path(tempfile.gettempdir()) / f"stelae-spark-{os.getuid()}"


def _is_private(folder: Path) -> bool:
    """Return whether only this user can write a folder."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _file(folder: Path, masters: Sequence[str]) -> Path:
    return folder / f"{hashlib.sha256(','.join(masters).encode()).hexdigest()[:32]}.json"


def _replace(path: Path, content: bytes) -> None:
    """Write a file at once: a reader sees the old or the new content."""
    number, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    by_age = sorted(path.parent.iterdir(), key=lambda one: one.lstat().st_mtime_ns)
    for old in by_age[:-FILES_MAX]:
        old.unlink(missing_ok=True)
