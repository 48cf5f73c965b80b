"""Puts together what a target has fetched: a store with the copied rows, and the copied log."""

from __future__ import annotations

from collections.abc import Iterator

from stelae.host.node import Node
from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.lifecycle.copy_items import ItemKind, file_of, kind_of
from stelae.lifecycle.copy_log import decode_entries
from stelae.lifecycle.copy_rows import decode_rows
from stelae.spi.copy_plan import CopyOffer
from stelae.spi.ids import ZERO
from stelae.spi.log import Entry, EntryKind
from stelae.spi.payload import decode_payload
from stelae.spi.schema import Schema
from stelae.spi.store import ApplyEntry, TabletStore, VersionedRows
from stelae.testing.copy_world import MemorySink


def entries_of(offer: CopyOffer, sink: MemorySink) -> list[Entry]:
    entries: list[Entry] = []
    after = offer.snapshot.base
    for unit in offer.snapshot.items:
        if kind_of(unit.name) is ItemKind.LOG:
            entries += decode_entries(unit.name, sink.durable[unit.name], after)
            after = entries[-1].op_id
    assert after == offer.snapshot.last
    return entries


def built(node: Node, offer: CopyOffer, sink: MemorySink, directory: str) -> TabletStore:
    """Return a store with the copied rows, and the copied log applied to it."""
    facts = CopyFacts.from_bytes(offer.snapshot.facts)
    schemas = {schema.version: schema for schema in map(Schema.from_bytes, facts.schemas)}
    engines, files = node.engines, node.files
    files.make_directory(directory)
    for name, data in sink.durable.items():
        if kind_of(name) is ItemKind.ROWS:
            files.replace(f"{directory}/{file_of(name)}", data)
    is_export = facts.rows_form is RowsForm.EXPORT
    manifest, flushed = (b"", ZERO) if is_export else (facts.manifest, facts.flushed)
    store = engines.store.open(directory, manifest, flushed, schemas, engines.store_config, engines.services)

    def batches() -> Iterator[VersionedRows]:
        for unit in offer.snapshot.items:
            if kind_of(unit.name) is ItemKind.EXPORT:
                yield from decode_rows(unit.name, sink.durable[unit.name], schemas)

    if is_export and facts.flushed.index:
        store.import_(batches(), facts.flushed)
    writes = [entry for entry in entries_of(offer, sink) if entry.kind is EntryKind.WRITE]
    store.apply([ApplyEntry(e.op_id, e.timestamp, decode_payload(e.body)) for e in writes])
    return store
