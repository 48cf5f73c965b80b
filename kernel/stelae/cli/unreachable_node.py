"""Runs the node of a stopped master within a command, for one piece of work on its system tablet.

It is the node as it always runs: directory lock, recovery, log, consensus. It differs in two ways. It has no services
but those of the work, and it listens on a port of the loopback interface that no other node knows. So no leader, client
or server reaches it: it gives no vote, and no request is served, before the node is started for good."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from stelae.cli.node_config import read_config
from stelae.config.observers import HookObserver
from stelae.config.registry import Registry
from stelae.convert.conversion import settle
from stelae.host.consensus_metadata import ConsensusMetadata, ConsensusRecord
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, InstanceFile, lock_directory
from stelae.host.metadata_files import MetadataMissing
from stelae.host.node import Node
from stelae.host.settings import NodeConfig
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.machine.files import RealFiles
from stelae.machine.real import RealMachine
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.server.limits import batchers_of
from stelae.server.master.driver.first_start import SystemTabletLoader
from stelae.server.master.role import as_master
from stelae.spi.hooks import ServiceFactory

UNKNOWN_ADDRESS = "127.0.0.1:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedMaster:
    """What the directory of a stopped master has. ``None`` for what is not in it."""

    config: NodeConfig
    instance: Instance
    superblock: Superblock | None
    consensus: ConsensusRecord | None

    @property
    def address(self) -> str:
        """The address at which others know the node when it runs."""
        return self.config.node.advertise or self.config.node.listen


def read_stopped_master(config_path: str, registry: Registry) -> StoppedMaster:
    """Read the directory of a stopped master. An interrupted conversion of its log is completed.

    Raises:
        Locked: the node runs.
        ConfigError, NotFormatted, StorageError: its file or its directory cannot be used.
    """
    config = as_master(read_config(config_path, registry), config_path)
    files, layout = RealFiles(), DirectoryLayout(config.node.directory)
    instance = InstanceFile(files, layout).load()
    lock = lock_directory(files, layout, os.getpid(), offline=True)
    try:
        settle(files, layout)
        try:
            superblock = SuperblockFile(files, layout, SYSTEM_TABLET).load()
        except MetadataMissing:
            superblock = None
        try:
            consensus = ConsensusMetadata(files, layout, SYSTEM_TABLET).load()
        except MetadataMissing:
            consensus = None
    finally:
        lock.release()
    return StoppedMaster(config=config, instance=instance, superblock=superblock, consensus=consensus)


@asynccontextmanager
async def unreachable_node(
    master: StoppedMaster, registry: Registry, services: Sequence[ServiceFactory] = ()
) -> AsyncIterator[Node]:
    """Run the node of a stopped master, out of reach of all others, and stop it in order at the end.

    Raises ``Locked`` if it runs elsewhere, and as ``Node.start``."""
    settings = replace(master.config.node, listen=UNKNOWN_ADDRESS, advertise=master.address)
    machine = RealMachine()
    node = Node(
        replace(master.config, node=settings),
        services=services,
        machine=machine,
        batcher=batchers_of(master.config),
        tablets=SystemTabletLoader,
        observer=HookObserver(registry),
    )
    await node.start()
    try:
        yield node
    finally:
        await node.stop()
