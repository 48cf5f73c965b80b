"""Creates further tablets on the nodes of a local cluster before their first start.

``node.toml`` describes one tablet, and a node also starts every other tablet that it finds in its directory. So the
further tablets of a benchmark are created as a node creates its first one: consensus metadata (term 0, no vote, the
initial config), an empty log, then the superblock, which marks that the tablet exists. One cluster then serves all
parts of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stelae.config.node_toml import load_config
from stelae.config.registry import Registry
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import lock_directory
from stelae.host.settings import NodeConfig, TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.local.cluster import LocalCluster, TabletSpec
from stelae.machine.real import RealMachine
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.consensus import HardState
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO
from stelae.spi.services import EngineServices, Files
from stelae.spi.wal import WalEngine


def add_tablets(cluster: LocalCluster, specs: Sequence[TabletSpec]) -> None:
    """Create empty tablets with one replica on each node of a cluster that has never run.

    Args:
        cluster: the cluster.
        specs: the tablets. Their names are unique, and differ from that of the cluster's first tablet.

    Raises:
        StelaeError, OSError: a node's directory is in use, or cannot be written to.
    """
    registry = Registry.installed()
    for node in cluster.nodes:
        _add(load_config(str(node.config_path), registry), specs)


def _add(config: NodeConfig, specs: Sequence[TabletSpec]) -> None:
    assert config.tablet is not None, "a local cluster is created with a tablet"
    machine, layout = RealMachine(), DirectoryLayout(config.node.directory)
    services = EngineServices(machine.files, machine.clock, machine.metrics, _InlineBenchWorkers())
    lock = lock_directory(machine.files, layout, machine.pid, offline=True)
    try:
        wal = config.wal.engine.open(layout.wals, config.wal.config, services)
        try:
            for spec in specs:
                schema = schema_from_plain({"columns": spec.columns, "key": spec.key})
                tablet = TabletSettings(id=spec.tablet_id, schema=schema, members=config.tablet.members)
                _create(machine.files, layout, wal, config, tablet)
        finally:
            wal.close()
    finally:
        lock.release()


def _create(files: Files, layout: DirectoryLayout, wal: WalEngine, config: NodeConfig, tablet: TabletSettings) -> None:
    superblock = Superblock(
        tablet_id=tablet.id,
        consensus_engine=config.consensus.name,
        store_engine=config.store.name,
        schemas=(tablet.schema.to_bytes(),),
    )
    ConsensusMetadata(files, layout, tablet.id).save(HardState(), tablet.initial_config())
    wal.create(superblock.log_id, ZERO)
    SuperblockFile(files, layout, tablet.id).save(superblock)


class _InlineBenchWorkers:
    """``Workers`` that do the work at once, on the caller's thread, for an engine that is opened only briefly."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        try:
            result = work()
        except (StelaeError, OSError) as error:
            result = error
        if done is not None:
            done(result)
