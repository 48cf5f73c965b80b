"""Opening: what stands in the directory of a tablet, and what of it counts.

===  ==================================================  =====================================================
row  found                                               then
===  ==================================================  =====================================================
A    an empty manifest                                   whatever stands there was written in vain: it goes
B    a manifest, but no environment                      the replica has failed
C    not closed cleanly, or changed since it was         a child process reads all of it first
D    the child died, or found damage                     the replica has failed
E    a sync failed once                                  the replica has failed: nothing of the file is trusted
F    an environment with fewer flushes than manifest     the replica has failed: what was durable is gone
G    an environment with more flushes than the manifest  they are taken back, newest first
H    it cannot be read now, or the child not be run      ``StorageError``, which says nothing about what is in it
===  ==================================================  =====================================================

Taking back is done in transactions of a piece each, and may be interrupted anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stelae.spi.errors import Corrupt, FutureVersion, StorageError
from stelae.spi.services import Files
from stelae_shared.lmdb_files.environment import DATA_NAME
from stelae_shared.lmdb_files.marker import EnvironmentMarker, Left, Owner
from stelae_store_lmdb.child import check_in_child
from stelae_store_lmdb.config import LmdbStoreConfig
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import (
    HEADER_KEY,
    PIECES,
    Header,
    Piece,
    decode_header,
    decode_piece,
    encode_header,
    hiding_key,
    opened_value,
    piece_key,
    split_piece_key,
)
from stelae_store_lmdb.tree import RowTree

ENV_NAME = "env"
OWNER = Owner(b"stelslmm", "store")
_REMOVAL_BYTES = 256  #: What taking a version back may copy besides pages of the tree.


@dataclass(slots=True)
class Place:
    """The store's directory and what it needs to work in it."""

    files: Files
    directory: str
    config: LmdbStoreConfig

    @property
    def env_directory(self) -> str:
        """Where LMDB has its two files."""
        return f"{self.directory}/{ENV_NAME}"

    @property
    def data_path(self) -> str:
        """The file with all the data."""
        return f"{self.env_directory}/{DATA_NAME}"

    @property
    def marker(self) -> EnvironmentMarker:
        """How the environment was left."""
        return EnvironmentMarker(self.files, self.directory, self.data_path, OWNER)


def discard(place: Place) -> None:
    """Remove an environment that no superblock names (A)."""
    if place.files.exists(place.env_directory):
        place.files.remove_tree(place.env_directory)
        place.files.sync_directory(place.directory)


def created(place: Place) -> Environment:
    """Begin with a new environment. ``Full``: no space for it; ``Foreign``: the directory is not ours."""
    files = place.files
    files.make_directory(place.directory)
    files.sync_directory(place.directory.rpartition("/")[0] or "/")
    discard(place)
    place.marker.claim()
    place.marker.write(Left.OPEN)
    files.make_directory(place.env_directory)
    files.sync_directory(place.directory)
    env = Environment.open(files, place.env_directory, place.config)
    try:
        env.make_room(0, 1)
        with env.write() as txn:
            txn.put(HEADER_KEY, encode_header(Header()))
    except BaseException:
        env.close()
        raise
    return env


def opened(place: Place, flush: int) -> Environment:
    """Open the environment as of a flush that a superblock names.

    ``Corrupt``: it cannot be that any more. ``Full``: no map was granted, or no space to take something back."""
    if not place.files.exists(place.data_path):  # B
        raise Corrupt("the environment that the superblock names is gone", path=place.data_path)
    left = place.marker.claim()
    if left is Left.DISTRUSTED:  # E
        raise Corrupt("a sync of the environment failed once; replace this replica", path=place.data_path)
    if left is not Left.CLEAN or place.config.check == "always":  # C
        report = check_in_child(place.env_directory, place.config.check_seconds_max)
        if report.newer:
            raise FutureVersion(report.newer, path=place.data_path)
        if report.unread:  # H
            raise StorageError(report.unread, path=place.data_path)
        if report.broken:  # D
            raise Corrupt(report.broken, path=place.data_path)
    env = Environment.open(place.files, place.env_directory, place.config)
    try:
        with env.read() as txn:
            header = read_header(txn, env.path)
        if header.flush < flush:  # F
            fact = f"the environment ends with flush {header.flush}; the superblock names {flush}"
            raise Corrupt(fact, path=place.data_path)
        place.marker.write(Left.OPEN)
        if header.flush > flush:  # G
            _take_back(env, flush)
    except BaseException:
        env.close()
        raise
    return env


def read_header(txn: Any, path: str) -> Header:
    """Return the header of an environment. ``Corrupt``: it is gone or damaged."""
    data = txn.get(HEADER_KEY)
    if data is None:
        raise Corrupt("the header of the environment is gone", path=path, offset=0)
    return decode_header(data, path)


def _take_back(env: Environment, flush: int) -> None:
    """Remove what flushes behind ``flush`` wrote; last, the header says so."""
    while True:
        with env.read() as txn:
            found = _newest_piece(txn, flush, env.path)
        if found is None:
            break
        number, part, piece = found
        env.make_room(_REMOVAL_BYTES * len(piece.versions), len(piece.versions), removing=True)
        with env.write() as txn:
            tree = RowTree(txn, env.path)
            for key, timestamp, index in piece.versions:
                tree.remove(key, timestamp, index)
            if piece.hiding >= 0:
                txn.delete(hiding_key(piece.hiding, number, part))
            txn.delete(piece_key(number, part))
    with env.write() as txn:
        header = read_header(txn, env.path)
        txn.put(HEADER_KEY, encode_header(Header(flush, header.next_node, header.floor)))


def _newest_piece(txn: Any, flush: int, path: str) -> tuple[int, int, Piece] | None:
    """The last piece of all flushes, if it is of one behind ``flush``."""
    cursor = txn.cursor()
    after_all = bytes((PIECES[0] + 1,))
    there = cursor.prev() if cursor.set_range(after_all) else cursor.last()
    if not there or bytes(cursor.key())[:1] != PIECES:
        return None
    key = bytes(cursor.key())
    number, part = split_piece_key(key)
    return (number, part, decode_piece(opened_value(key, cursor.value(), path))) if number > flush else None
