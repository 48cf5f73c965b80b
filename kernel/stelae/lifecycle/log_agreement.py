"""Checks that a log agrees with the superblock and the consensus metadata of its tablet (``durability.md`` rule 3).

A store flushes only what its own log has durably, and a committed config is saved only once its own entry is durable in
the log. Both op ids stay in the log, or at its base, for ever. So a log that ends below one of them, that begins above
the flushed op id, or that has another term at one of them, is not the log from which this replica acknowledged entries.
It is an older copy, it has lost its tail, or it has a hole. It is not known which entries are missing, so the last op
id is UNKNOWN (rule 19).

A term is durable in the consensus metadata before any entry of it is in the log. So metadata with an earlier term than
the last entry, or than the last op id of a tombstone, is older than they are. The replica may have given votes that the
metadata lacks, and could give them twice. Its last op id is UNKNOWN too, so it never votes. Metadata that is older
within the same term cannot be detected, nor an older committed config: after a crash the metadata may lag behind the
configs in the log.

A store that is ahead of the superblock does not matter: only the superblock counts, and the store removes what is above
it when it is opened (row G of ``stelae_store_lmdb.opening``)."""

from collections.abc import Callable

from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import LogState


class LogContradicts(Corrupt, code="LOG_CONTRADICTS"):
    """The log lacks an entry that the superblock or the consensus metadata name, or the metadata lacks its term."""


def config_in_log(config: OpId, tombstone: OpId | str | None) -> OpId:
    """Return the op id of the committed config, whose entry the log must have, or ZERO if it need not have it.

    Args:
        config: of the committed config.
        tombstone: of the superblock. A witness that began over a tombstone knows the config of that before its log has
            reached it.
    """
    return ZERO if isinstance(tombstone, OpId) and config <= tombstone else config


def older_metadata(term: int, last: OpId) -> str:
    """Return that the consensus metadata is older than an entry which the replica had, or an empty text if it is not.

    Args:
        term: of the consensus metadata.
        last: the last op id of the log, or of a tombstone.
    """
    if last.term <= term:
        return ""
    return f"the last op id is {last}, but the durable term is {term}: votes that the replica gave are missing"


def contradiction(flushed: OpId, config: OpId, term: int, log: LogState, op_id_at: Callable[[int], OpId]) -> str:
    """Return what is wrong with an undamaged log, or an empty text if it agrees.

    Args:
        flushed: the flushed op id in the superblock.
        config: the op id of the committed config.
        term: of the consensus metadata.
        log: the state of the log.
        op_id_at: returns the op id at an index from the base on. It is called at most twice.

    Raises:
        StorageError: an op id cannot be read.
    """
    if flushed.index < log.base.index:
        return f"the log begins after {log.base}, and the store is flushed up to {flushed} only: there is a hole"
    for what, op_id in (("the store is flushed up to", flushed), ("the committed config is of", config)):
        if op_id.index > log.last.index:
            return f"the log ends at {log.last}, and {what} {op_id}: acknowledged entries are missing"
        if op_id.index >= max(1, log.base.index) and (found := op_id_at(op_id.index)) != op_id:
            return f"the log holds {found}, and {what} {op_id}: it is not the log of this replica"
    return older_metadata(term, log.last)
