"""Changes the consensus engine of the tablets of a stopped node: one field of each superblock, and nothing else.

All engines write the same entries and the same consensus metadata: both are the kernel's. So an engine can continue the
log, the term and the config that another one wrote. A tablet with several members keeps its engine, because its
replicas would run two engines until every node is converted, and each engine understands only its own messages.

The steps of :func:`change_engine`:

1. Every superblock is read. For each replica with another engine, its newest config is read: the committed one in the
   consensus metadata, and the config entries of the log above it. Every replica must be the only member of its tablet,
   and the new engine must accept the config. Nothing is changed before all replicas are checked.
2. Each of these superblocks is replaced by one with the name of the new engine.

Ordering and durability
    Each superblock is replaced atomically, so after a crash a tablet has the old engine or the new one. Rows, log,
    results, term and vote do not change. Repeating the change completes it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from stelae.convert.conversion import ConversionPaths
from stelae.convert.log_check import batches
from stelae.convert.offline import SILENT, ProgressMeter
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import tablet_names
from stelae.host.instance import InstanceFile
from stelae.host.settings import ChosenEngine
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.spi.errors import CallerError, ConfigError, Corrupt
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.log import EntryKind
from stelae.spi.members import MemberType, TabletConfig, decode_config
from stelae.spi.wal import WalEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTablet:
    """A tablet whose engine was changed, or can be changed."""

    tablet_id: TabletId
    old_engine: str


class KeepsItsEngine(CallerError, code="KEEPS_ITS_ENGINE"):
    """The consensus engine of a tablet cannot be changed. Nothing was changed."""


def change_engine(
    paths: ConversionPaths,
    wal: WalEngine,
    target: ChosenEngine,
    meter: ProgressMeter = SILENT,
    *,
    dry_run: bool = False,
) -> list[ChangedTablet]:
    """Give every tablet of a node the consensus engine ``target``. Return the tablets that had another one.

    Args:
        wal: the node's log engine, open. The caller has locked the node's directory.
        dry_run: do only step 1.

    Raises:
        KeepsItsEngine: a tablet has other members than this node, or the engine cannot serve its config. Nothing was
            changed.
        StorageError: a superblock, consensus metadata or a log cannot be read; nothing was changed. Or a superblock
            could not be replaced; those before it, in the order of their ids, were.
    """
    files, layout = paths.services.files, paths.layout
    node_id = InstanceFile(files, layout).load().node_id
    blocks = [SuperblockFile(files, layout, tablet).load() for tablet in tablet_names(files, layout.superblocks)]
    wanted = [block for block in blocks if block.consensus_engine != target.name]
    for block in wanted:
        if block.data_state is DataState.READY:  # Others have no log, and tombstones belong to no config.
            _check(paths, wal, target, node_id, block, meter)
    for block in () if dry_run else wanted:
        changed = msgspec.structs.replace(block, consensus_engine=target.name)
        SuperblockFile(files, layout, block.tablet_id, paths.crash).save(changed)
    return [ChangedTablet(tablet_id=block.tablet_id, old_engine=block.consensus_engine) for block in wanted]


def _check(
    paths: ConversionPaths,
    wal: WalEngine,
    target: ChosenEngine,
    node_id: NodeId,
    block: Superblock,
    meter: ProgressMeter,
) -> None:
    """Refuse a replica that is not the only member of its tablet, or whose config the new engine cannot serve."""
    committed = ConsensusMetadata(paths.services.files, paths.layout, block.tablet_id).load().committed_config
    config = _newest_config(wal, block, committed, meter)
    alone = [m.node_id for m in config.members] == [node_id] and config.members[0].member_type is MemberType.VOTER
    if not alone:
        found = ", ".join(f"{m.node_id} ({m.member_type})" for m in config.members) or "none"
        kept = f"tablet {block.tablet_id} keeps the consensus engine {block.consensus_engine!r}"
        advice = f"only a tablet whose only member is this node ({node_id}) as VOTER can change"
        raise KeepsItsEngine(
            f"{kept}: its members are {found}; {advice}: remove the other members first. Nothing was changed"
        )
    try:
        target.engine.check_members(node_id, config)
    except ConfigError as error:
        raise KeepsItsEngine(f"tablet {block.tablet_id} cannot change: {error}. Nothing was changed") from error


def _newest_config(wal: WalEngine, block: Superblock, committed: TabletConfig, meter: ProgressMeter) -> TabletConfig:
    """Return the config of the newest config entry in the log, or the committed one if that is not in the log."""
    log, state = block.log_id, wal.logs().get(block.log_id)
    damage = "is missing" if state is None else "is damaged: " + state.damage.detail if state.damage else ""
    if state is None or damage:
        fact = f"the log of tablet {block.tablet_id} {damage}"
        raise Corrupt(f"{fact}; restore or delete this replica first. Nothing was changed")
    config, first, end = committed, max(state.base.index, committed.op_id.index) + 1, state.last.index + 1
    meter.begin(f"reading the members of tablet {block.tablet_id}", max(end - first, 0))
    for batch in batches(wal, log, first, end):
        for entry in batch:
            if entry.kind is EntryKind.CONFIG:
                config = decode_config(entry)
        meter.add(len(batch), sum(len(entry.body) for entry in batch))
    return config
