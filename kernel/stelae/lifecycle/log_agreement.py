"""Whether a log agrees with the superblock and the consensus metadata beside it (``durability.md`` rule 3).

A store flushes only what its own log holds durably, and a committed config is saved only once its own entry is durable
in the log. Both stay in the log, or at its base, for ever. So a log that ends below either, begins above what is
flushed, or holds another term there, is not the log that this replica acknowledged entries from: it is an older copy,
or it lost its tail, or it has a hole. Nothing tells which entries are missing: the last op id is UNKNOWN (rule 19).

A store that runs ahead of the superblock does not matter here: only the superblock counts, and the store removes what
is above it when it is opened (row G of ``stelae_store_lmdb.opening``)."""

from collections.abc import Callable

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.wal import LogState


class LogContradicts(Corrupt, code="LOG_CONTRADICTS"):
    """The log does not hold what the superblock or the consensus metadata say that it held."""


def contradiction(flushed: OpId, config: OpId, log: LogState, op_id_at: Callable[[int], OpId]) -> str:
    """Return what is wrong with an undamaged log, in a sentence; empty if it agrees.

    Args:
        flushed: of the superblock.
        config: op id of the committed config.
        log: the log as recovery found it.
        op_id_at: gives the op id at an index from the base on; called for at most two of them.

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
    return ""
