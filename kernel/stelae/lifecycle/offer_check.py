"""Checks what a source has offered: first the session, and the snapshot before anything of it is used. Pure.

An offer comes from another node. A snapshot may have 100 000 items, so it is checked once, off the event loop. It does
not change afterwards. What this node needs of a snapshot that is consistent, ``copy_fences`` decides."""

from __future__ import annotations

from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.lifecycle.copy_items import ItemKind, check_items, kind_of
from stelae.spi.copy_plan import CopyOffer, CopySnapshot
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.recovery_epoch import is_too_far_ahead
from stelae.spi.schema import Schema

SESSION_CHARACTERS_MAX = 64


def check_session(offer: CopyOffer, source: NodeId) -> CopyOffer:
    """Return an offer whose session can be used. Raises ``PeerError``. The snapshot was not checked. Cheap."""
    if offer.source != source:
        fault = f"it is of node {offer.source[:32]!r}"
    elif not 0 < len(offer.session) <= SESSION_CHARACTERS_MAX or offer.ttl_ms <= 0:
        fault = f"its session has {len(offer.session)} characters and lives {offer.ttl_ms} ms"
    else:
        return offer
    raise PeerError(f"{source} offers a copy that cannot be used: {fault}; ask another source")


def contradiction(snapshot: CopySnapshot, tablet_id: TabletId) -> str | None:
    """Return what no correct source sends for a tablet, or ``None`` if the snapshot is consistent.

    Takes long for many items (``copy_items.check_items``)."""
    try:
        facts = CopyFacts.from_bytes(snapshot.facts)
        return _of_op_ids(snapshot, facts, tablet_id) or _of_contents(snapshot, facts)
    except StelaeError as error:
        return str(error)


def _of_op_ids(snapshot: CopySnapshot, facts: CopyFacts, tablet_id: TabletId) -> str | None:
    base, last, config = snapshot.base, snapshot.last, snapshot.committed_config.op_id
    if {snapshot.tablet_id, snapshot.log.tablet_id, facts.tablet_id} != {tablet_id}:
        return (
            f"it is of tablet {snapshot.tablet_id}, its log of {snapshot.log.tablet_id}, its rows of {facts.tablet_id}"
        )
    if min(*base, *config, snapshot.log.generation) < 0:
        return f"base {base}, config {config} or log generation {snapshot.log.generation} is below 0"
    if last < base or last.index < base.index:
        return f"the log from {base} to {last} ends before it begins"
    if last.term > snapshot.term:
        return f"the log ends at {last}, but the source is in term {snapshot.term}"
    if is_too_far_ahead(snapshot.term, last.term):
        return f"the log ends at {last}, and the source is in term {snapshot.term}, too many recoveries later"
    if config > last or config.index > last.index:
        return f"config {config} is committed, but the log ends at {last}"
    if facts.flushed != base:
        return f"the rows are as of {facts.flushed}, but the log begins after {base}"
    return None


def _of_contents(snapshot: CopySnapshot, facts: CopyFacts) -> str | None:
    check_items(snapshot.items, snapshot.base, snapshot.last)
    versions = [Schema.from_bytes(body).version for body in facts.schemas]
    if not versions or versions != sorted(set(versions)):
        return f"the schema versions {versions[:8]} do not increase"
    forms = {kind_of(item.name) for item in snapshot.items} - {ItemKind.LOG}
    allowed = ItemKind.ROWS if facts.rows_form is RowsForm.FILES else ItemKind.EXPORT
    return None if forms <= {allowed} else f"the rows are {facts.rows_form}, but there are other items"
