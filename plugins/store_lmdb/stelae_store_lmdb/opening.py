"""The opening of a store: what is found in the directory of a tablet, and what is done.

===  ==================================================  =====================================================
row  found                                               action
===  ==================================================  =====================================================
A    an empty manifest                                   remove the directory's data: it was never committed
B    a manifest, but no environment                      the replica has failed
C    not closed cleanly, or changed since it was closed  a child process reads the whole file first
D    the child died, or found damage                     the replica has failed
E    a sync failed once                                  the replica has failed: no byte of the file is trusted
F    an environment with fewer flushes than manifest     the replica has failed: durable versions are lost
G    an environment with more flushes than the manifest  remove the versions of these flushes, newest first
H    it cannot be read now, or the child cannot be run   ``StorageError``: the state of the file is unknown
===  ==================================================  =====================================================

Row G removes one transaction of a flush in each of its own transactions, or fewer versions where there is no space for
all of them. It may be interrupted at any point: what was removed stays removed, and its pages serve the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stelae.spi.errors import Corrupt, Full, FutureVersion, StorageError
from stelae.spi.services import Files
from stelae_shared.lmdb_files.environment import DATA_NAME
from stelae_shared.lmdb_files.marker import EnvironmentMarker, MarkerOwner, ShutdownState
from stelae_store_lmdb.child_check import check_in_child
from stelae_store_lmdb.config import LmdbStoreConfig
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import (
    HEADER_KEY,
    TRANSACTIONS,
    FlushTransaction,
    Header,
    decode_header,
    decode_transaction,
    encode_header,
    hiding_key,
    split_transaction_key,
    transaction_key,
    verified_contents,
)
from stelae_store_lmdb.tree import RowTree

ENV_NAME = "env"
OWNER = MarkerOwner(b"stelslmm", "store")
_REMOVAL_BYTES = 256  #: Bytes that the removal of a version may copy besides pages of the tree.


@dataclass(slots=True)
class StoreDirectory:
    """The directory of a store, and what is needed to work in it."""

    files: Files
    path: str
    config: LmdbStoreConfig

    @property
    def env_directory(self) -> str:
        """The directory of LMDB's two files."""
        return f"{self.path}/{ENV_NAME}"

    @property
    def data_path(self) -> str:
        """The path of the data file."""
        return f"{self.env_directory}/{DATA_NAME}"

    @property
    def marker(self) -> EnvironmentMarker:
        """The marker that says how the environment was left."""
        return EnvironmentMarker(self.files, self.path, self.data_path, OWNER)


def discard_environment(directory: StoreDirectory) -> None:
    """Remove an environment that no superblock names (row A)."""
    if directory.files.exists(directory.env_directory):
        directory.files.remove_tree(directory.env_directory)
        directory.files.sync_directory(directory.path)


def create_environment(directory: StoreDirectory) -> Environment:
    """Create a new environment.

    Raises:
        Full: there is no space for it.
        Foreign: the directory belongs to another tablet or store.
    """
    files = directory.files
    files.make_directory(directory.path)
    files.sync_directory(directory.path.rpartition("/")[0] or "/")
    discard_environment(directory)
    directory.marker.claim()
    directory.marker.write(ShutdownState.OPEN)
    files.make_directory(directory.env_directory)
    files.sync_directory(directory.path)
    env = Environment.open(files, directory.env_directory, directory.config)
    try:
        env.make_room(0, 1)
        with env.write() as txn:
            txn.put(HEADER_KEY, encode_header(Header()))
    except BaseException:
        env.close()
        raise
    return env


def open_environment(directory: StoreDirectory, flush: int) -> Environment:
    """Open the environment in the state of the flush that a superblock names.

    Raises:
        Corrupt: the environment is missing, damaged, not trusted, or older than the flush.
        Full: the system granted no map, or there is no space to remove later flushes.
    """
    if not directory.files.exists(directory.data_path):  # B
        raise Corrupt("the environment that the superblock names is missing", path=directory.data_path)
    left = directory.marker.claim()
    if left is ShutdownState.DISTRUSTED:  # E
        raise Corrupt("a sync of the environment failed earlier; replace this replica", path=directory.data_path)
    if left is not ShutdownState.CLEAN or directory.config.check == "always":  # C
        report = check_in_child(directory.env_directory, directory.config.check_seconds_max)
        if report.newer:
            raise FutureVersion(report.newer, path=directory.data_path)
        if report.unread:  # H
            raise StorageError(report.unread, path=directory.data_path)
        if report.broken:  # D
            raise Corrupt(report.broken, path=directory.data_path)
    env = Environment.open(directory.files, directory.env_directory, directory.config)
    try:
        with env.read() as txn:
            header = read_header(txn, env.path)
        if header.flush < flush:  # F
            fact = f"the environment ends with flush {header.flush}; the superblock names {flush}"
            raise Corrupt(fact, path=directory.data_path)
        directory.marker.write(ShutdownState.OPEN)
        if header.flush > flush:  # G
            _undo_flushes(env, flush)
    except BaseException:
        env.close()
        raise
    return env


def read_header(txn: Any, path: str) -> Header:
    """Return the header of an environment. ``Corrupt``: it is missing or damaged."""
    data = txn.get(HEADER_KEY)
    if data is None:
        raise Corrupt("the header of the environment is missing", path=path, offset=0)
    return decode_header(data, path)


def _undo_flushes(env: Environment, flush: int) -> None:
    """Remove the versions of all flushes after ``flush``, then record that in the header (row G)."""
    while True:
        with env.read() as txn:
            found = _newest_transaction(txn, flush, env.path)
        if found is None:
            break
        number, transaction_number, transaction = found
        lists = [transaction_key(number, transaction_number)]
        if transaction.hiding >= 0:
            lists.append(hiding_key(transaction.hiding, number, transaction_number))
        _undo_transaction(env, transaction.versions, lists)
    with env.write() as txn:
        header = read_header(txn, env.path)
        txn.put(HEADER_KEY, encode_header(Header(flush, header.next_node, header.floor)))


def _undo_transaction(env: Environment, versions: Sequence[tuple[bytes, int, int]], lists: Sequence[bytes]) -> None:
    """Remove versions, and lists with the last of them. Where there is no space for all at once, a few at a time.

    The lists stay as they are until then, because a missing version is ignored when the removal is repeated."""
    count = len(versions)
    while True:
        some, rest = versions[:count], versions[count:]
        try:
            env.make_room(_REMOVAL_BYTES * len(some), len(some), removing=True)
            with env.write() as txn:
                tree = RowTree(txn, env.path)
                for key, timestamp, index in some:
                    tree.remove(key, timestamp, index)
                for at in () if rest else lists:
                    txn.delete(at)
        except Full:
            if count <= 1:
                raise
            count //= 2
            continue
        if not rest:
            return
        versions = rest


def _newest_transaction(txn: Any, flush: int, path: str) -> tuple[int, int, FlushTransaction] | None:
    """Return the last transaction of the newest flush, with its flush and number, if that flush is after ``flush``."""
    cursor = txn.cursor()
    after_all = bytes((TRANSACTIONS[0] + 1,))
    found = cursor.prev() if cursor.set_range(after_all) else cursor.last()
    if not found or bytes(cursor.key())[:1] != TRANSACTIONS:
        return None
    key = bytes(cursor.key())
    number, transaction_number = split_transaction_key(key)
    if number <= flush:
        return None
    return number, transaction_number, decode_transaction(verified_contents(key, cursor.value(), path))
