"""Flushes of replicas that are not running."""

from __future__ import annotations

from stelae.host.assembly import RecoveredTablet
from stelae.host.superblock import Superblock
from stelae.spi.store import Edit


def flushed(recovered: RecoveredTablet, schema: bytes) -> tuple[Edit, Superblock]:
    """Flush the rows of a replica of the store ``durable``. Return the edit, and its superblock, which is not saved."""
    edit = recovered.store.flush()
    assert edit is not None
    block = Superblock(
        tablet_id=recovered.superblock.tablet_id,
        store_engine="durable",
        schemas=(schema,),
        manifest=edit.manifest,
        flushed=edit.flushed,
        results=recovered.results.dump(),
    )
    return edit, block
