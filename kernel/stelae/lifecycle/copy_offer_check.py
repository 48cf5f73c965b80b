"""Checks an offer that a source has sent, before anything of it is used. Pure."""

from __future__ import annotations

from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_items import check_items
from stelae.spi.copy_plan import CopyOffer
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import NodeId, TabletId


def check_offer(offer: CopyOffer, source: NodeId, tablet_id: TabletId) -> CopyOffer:
    """Return the offer of a source for a tablet. Raises ``PeerError`` if it contradicts itself or what was asked."""
    try:
        fault = _fault(offer, source, tablet_id)
        check_items(offer.snapshot.items, offer.snapshot.base, offer.snapshot.last)
    except StelaeError as error:
        fault = str(error)
    if fault:
        raise PeerError(f"{source} offers a copy of tablet {tablet_id} that cannot be used: {fault}")
    return offer


def _fault(offer: CopyOffer, source: NodeId, tablet_id: TabletId) -> str:
    snapshot = offer.snapshot
    facts = CopyFacts.from_bytes(snapshot.facts)
    checks = {
        "it is for another tablet": {snapshot.tablet_id, snapshot.log.tablet_id, facts.tablet_id} != {tablet_id},
        "it is of another node": offer.source != source,
        "it has no session": not 0 < len(offer.session) <= 64 or offer.ttl_ms <= 0,
        "its rows are not as of its base": facts.flushed != snapshot.base,
        "it ends before its base": snapshot.last < snapshot.base,
        "its term is below its log": snapshot.term < snapshot.last.term,
        "its committed config is not in its log": snapshot.committed_config.op_id.index > snapshot.last.index,
        "it has negative numbers": min(*snapshot.base, *snapshot.committed_config.op_id, snapshot.log.generation) < 0,
        "it has no schema": not facts.schemas,
    }
    return next((what for what, wrong in checks.items() if wrong), "")
