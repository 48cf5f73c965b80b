"""In which form a source serves the rows of a copy: as files of the store, or as an export."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.spi.copy_plan import Complete
from stelae.testing.copy_world import MemorySink
from stelae_store_columnar import ColumnarStore
from tests.e2e.copied_store import built
from tests.e2e.nodes import TABLET, Cluster
from tests.e2e.test_copy_source import Target, checksum_of, on_cluster, settings_of


def test_an_export_has_the_rows_as_of_now_also_for_the_same_engine(tmp_path: Path) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        replica = cluster.nodes[source].replicas[TABLET]
        offer = await target.begin(source, as_export=True)
        files = await target.begin(source)
        assert files.session != offer.session, "another form is another snapshot"
        facts = CopyFacts.from_bytes(offer.snapshot.facts)
        assert facts.rows_form is RowsForm.EXPORT
        assert offer.snapshot.base == replica.applier.applied
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(await target.fetch(offer, sink=sink), Complete)
        store = built(target.node, offer, sink, str(tmp_path / "built"))
        assert store.checksum(None) == checksum_of(cluster.nodes[source])
        store.close()

    on_cluster(tmp_path, settings_of(), work)


def test_files_in_a_format_that_the_target_does_not_read_are_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files were sent to every node with an engine of the same name. The copy ended, and the replica did not start."""

    class LaterColumnarStore(ColumnarStore):
        files_format = "a later one"

    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        same = await target.begin(source)
        config = target.node.config
        store = dataclasses.replace(config.store, engine=LaterColumnarStore)
        monkeypatch.setattr(target.node, "config", dataclasses.replace(config, store=store))
        offer = await target.begin(source)
        assert same.session != offer.session, "another format needs another snapshot"
        forms = [CopyFacts.from_bytes(one.snapshot.facts).rows_form for one in (same, offer)]
        assert forms == [RowsForm.FILES, RowsForm.EXPORT]
        assert isinstance(await target.fetch(offer, sink=MemorySink(offer.snapshot.items)), Complete)

    on_cluster(tmp_path, settings_of(), work)
