"""Creates and deletes tablets on a running node, one operation per tablet at a time.

Every operation can be repeated: it has no effect, and costs no sync, if the tablet already exists or is already
deleted. A deletion has a fence (``durability.md`` rule 27): the op id of the committed config that the caller has seen,
or that the table of the tablet is deleted for good."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from stelae.host.hybrid_clock import physical_us
from stelae.host.ports import BlockingPool
from stelae.host.superblock import DataState, Superblock
from stelae.lifecycle.abandoned_copy import abandon_copy
from stelae.lifecycle.blocking_steps import Ask, OffLoop, StepRunner, Steps, Until, WithLog, in_pool
from stelae.lifecycle.copy_stage import remove_stage
from stelae.lifecycle.deletion import (
    LastOpId,
    copy_log_aside,
    lost_superblock,
    set_data_aside,
    set_log_aside,
    tombstone_of,
    write_tombstone,
)
from stelae.lifecycle.leader_hints import repeat_hint
from stelae.lifecycle.quarantine import DeletionRecord, Quarantined, is_superseded, purge, tablet_of
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.spi.errors import CallerError, StelaeError, Unavailable
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.wal import LogState, WalEngine

if TYPE_CHECKING:
    from stelae.host.new_replica import LogStart
    from stelae.host.node import Node
    from stelae.host.replica import Replica
    from stelae.host.settings import TabletSettings

log = logging.getLogger(__name__)

Done: TypeAlias = Callable[[StelaeError | None], None]
OverTombstone: TypeAlias = Callable[[TabletFinding], Steps[None]]
"""The steps by which a replica without rows begins over a tombstone."""

_TOMBSTONES = (StartupAction.TOMBSTONE, StartupAction.ROLL_FORWARD, StartupAction.DELETE_SELF)
"""What a tombstone is found as. A deletion, or a copy over it, may have been cut short by an error."""


class TabletExists(CallerError, code="TABLET_EXISTS"):
    """Another tablet with this id exists on this node, or existed and was deleted."""


class FenceMismatch(CallerError, code="FENCE_MISMATCH"):
    """The tablet's committed config is not the one that the caller has seen. The caller's view is out of date."""


class TabletManager:
    """The tablets of one node, on its event loop."""

    def __init__(self, node: Node, loader: TabletLoader) -> None:
        self._node = node
        self._loader = loader
        self._in_progress: dict[TabletId, str] = {}
        self.cancel_copy: Callable[[TabletId, str], bool] = lambda _tablet, _why: False
        """Cancels the copy of a tablet to this node, for a reason. Returns False if none is in progress."""
        self._waiting: dict[TabletId, Callable[[], None]] = {}  # The deletion that waits for the end of a copy.

    def create(self, new: TabletSettings, done: Done) -> None:
        """Create a tablet and start its replica. Harmless if it exists. ``done`` is called once.

        ``done`` gets ``TabletExists`` if another tablet with this id exists or existed, ``Unavailable`` if another
        operation on the tablet is in progress or the tablet has failed, and ``StorageError`` if the disk fails; the
        call can then be repeated."""
        self._run(new.id, "created", self._create(new), done)

    def create_log_only(self, new: TabletSettings, start: LogStart, done: Done, over: OverTombstone) -> None:
        """Create a replica without rows, whose log begins at ``start.base``, and start it. ``done`` as for ``create``.

        Harmless if the tablet has a replica here. If it is a tombstone, the steps of ``over`` are done instead."""
        self._run(new.id, "created", self._create_log_only(new, start, over), done)

    def delete(self, tablet_id: TabletId, reason: str, done: Done, *, seen: OpId | None) -> None:
        """Shut a replica down, leave a tombstone that votes, and move its data into quarantine.

        Harmless if the replica is already deleted. A copy of the tablet that is in progress is cancelled first if the
        fence holds; one deletion waits for its end. A copy that has no replica yet has no config for a fence. It is
        cancelled only if the table is deleted for good. After an error the call can be repeated: the replica runs
        again, unless its tombstone was written.

        Args:
            tablet_id: the tablet. A tablet that was never on this node is an error, because it can have no tombstone.
            reason: for the quarantine and the node's log.
            done: called once. It gets ``FenceMismatch`` if another config was committed on this node, and
            ``Unavailable``
                or ``StorageError`` as for ``create``.
            seen: the op id of the tablet's committed config that the caller knows. ``None`` means that the table is
                deleted for good."""
        if (replica := self._node.replicas.get(tablet_id)) is not None:
            try:
                self._check_fence(replica.status.committed_config.op_id, tablet_id, seen)
            except FenceMismatch as error:
                done(error)
                return
        may_cancel = tablet_id not in self._waiting and (replica is not None or seen is None)
        if may_cancel and self.cancel_copy(tablet_id, f"the tablet is deleted: {reason}"):
            steps = self._delete(tablet_id, reason, seen, copied=True)
            self._waiting[tablet_id] = lambda: self._run(tablet_id, "deleted", steps, done)
            return
        self._run(tablet_id, "deleted", self._delete(tablet_id, reason, seen), done)

    def end_deletion(self, tablet_id: TabletId, done: Done, *, removed: bool) -> None:
        """Complete a deletion that an error has interrupted, as of a full disk. Harmless if there is none.

        ``removed``: also make durable that the table of the tombstone is deleted for good. Otherwise a leader that does
        not know it yet could have the tablet copied here again. ``done`` as for ``create``."""
        self._run(tablet_id, "deleted", self._end_deletion_of(tablet_id, removed=removed), done)

    def purge(self, name: str, done: Done) -> None:
        """Remove a directory of the quarantine permanently, while no other operation on its tablet is in progress.

        ``done`` gets ``Unavailable`` if the deletion of the tablet is not complete. Raises ``BadIdentifier`` if
        ``name`` is not the name of such a directory. To remove large directories takes long, so it is done in the pool
        for scans, where it does not delay votes."""
        tablet_id = tablet_of(name)
        self._run(tablet_id, "purged", self.purge_steps(name), done, pool=self._node.scans)

    def operation(self, tablet_id: TabletId) -> str:
        """Return the operation on a tablet that is in progress, as a past participle, or an empty text."""
        return self._in_progress.get(tablet_id, "")

    def run(self, tablet_id: TabletId, what: str, steps: Steps[None], done: Done, *, pool: BlockingPool) -> None:
        """Run an operation on a tablet while no other one is in progress.

        ``what`` is a past participle. ``done`` is called once. It gets ``Unavailable`` if another operation is in
        progress; no step was run then. Blocking steps run in ``pool``."""
        self._run(tablet_id, what, steps, done, pool=pool)

    def _run(
        self, tablet_id: TabletId, what: str, steps: Steps[None], done: Done, *, pool: BlockingPool | None = None
    ) -> None:
        if tablet_id in self._in_progress:
            done(Unavailable(f"tablet {tablet_id} is being {self._in_progress[tablet_id]}"))
            return
        self._in_progress[tablet_id] = what

        def ended(result: Exception | None) -> None:
            del self._in_progress[tablet_id]
            if result is not None and not isinstance(result, StelaeError):
                log.error("tablet not %s tablet=%s", what, tablet_id, exc_info=result)
                result = Unavailable(f"the tablet was not {what}: {result}")
            done(result)
            if tablet_id in self._waiting and tablet_id not in self._in_progress:
                self._waiting.pop(tablet_id)()

        node = self._node
        StepRunner(pool or node.metadata_pool, node.writer, node.turns).run(_key(tablet_id), steps, ended)

    # -- the protocols ---------------------------------------------------------------------------

    def _create(self, new: TabletSettings) -> Steps[None]:
        replica = self._node.replicas.get(new.id)
        if replica is not None:
            _check_first_schema(replica.flusher.superblock, new)
            return
        found = yield from self.look(new.id)
        if (made := self._made_before(found)) is not None:
            _check_first_schema(made, new)
            block = made
        else:
            yield from self._check_absent(found)
            self._node.engines.consensus.check_members(self._node.node_id, new.initial_config())
            block = yield OffLoop(lambda: self._loader.save_consensus_metadata(new))
            yield WithLog(lambda wal: self._loader.create_log(wal, block))
        yield OffLoop(lambda: self._loader.save_superblock(block))
        hinted = new.hinted_leader == self._node.node_id
        yield from self._host(new.id, campaign=hinted)
        if hinted and (replica := self._node.replicas.get(new.id)) is not None:
            repeat_hint(replica, self._node.turns)

    def _create_log_only(self, new: TabletSettings, start: LogStart, over: OverTombstone) -> Steps[None]:
        if new.id in self._node.replicas:
            return
        found = yield from self.look(new.id)
        if found.decision.action in _TOMBSTONES:
            yield from over(found)
            return
        if (made := self._made_before(found)) is not None:
            yield OffLoop(lambda: self._loader.save_superblock(made))
            yield from self._host(new.id, campaign=False)
            return
        yield from self._check_absent(found)
        if start.had_vote:
            fact = f"this node has, or had, a vote in tablet {new.id}, and neither a replica of it nor its tombstone"
            raise Unavailable(f"{fact}: they were lost; remove the member, and add another node")
        creation = self._loader.log_only_creation(new, start)
        yield OffLoop(creation.begin)
        yield WithLog(creation.create_log)
        yield OffLoop(creation.save_metadata)
        yield OffLoop(creation.finish)
        yield from self._host(new.id, campaign=False)

    def _made_before(self, found: TabletFinding) -> Superblock | None:
        """Return the superblock of a creation that an error has interrupted when it was written; ``None`` if none was.

        After a failed sync it may not be durable (rule 7), so it must be written again."""
        made = found.decision.action is StartupAction.START and found.tablet_id not in self._loader.failed
        return found.superblock if made else None

    def _check_absent(self, found: TabletFinding) -> Steps[None]:
        """Check that the tablet was never on this node. What a creation without rows or a first copy has left is
        removed first.

        It was cut short by an error, as of a full disk, and has promised nothing."""
        tablet_id, block = found.tablet_id, found.superblock
        if found.decision.action is StartupAction.REMOVE and block is not None:
            yield from self.abandon_copy(block, keep_stage=True)
            self._loader.forget_failure(tablet_id)
            return
        if found.decision.action is StartupAction.TOMBSTONE:
            raise TabletExists(f"tablet {tablet_id} was on this node and was deleted; a new tablet needs a new id")
        if found.decision.action is not StartupAction.NOTHING:
            raise Unavailable(f"tablet {tablet_id} is on this node but offline: {self._why_offline(found)}")

    def _host(self, tablet_id: TabletId, *, campaign: bool) -> Steps[None]:
        """Recover a tablet that was just created, and start its replica."""
        found = yield from self.look(tablet_id)
        recovered = yield OffLoop(lambda: self._loader.recover(found))
        if recovered is None:
            raise Unavailable(f"tablet {tablet_id} was created but has failed: {self._why_offline(found)}")
        self._node.host(recovered, campaign=campaign)

    def _delete(self, tablet_id: TabletId, reason: str, seen: OpId | None, *, copied: bool = False) -> Steps[None]:
        replica = self._node.replicas.get(tablet_id)
        if replica is not None:
            self._check_fence(replica.status.committed_config.op_id, tablet_id, seen)
            try:
                yield from self.set_aside(replica, reason, removed=seen is None)
            except (StelaeError, OSError):  # Masters take a tablet that is no replica for deleted.
                yield from self.start_again(replica)
                raise
            self._node.peers.members.forget(tablet_id)
            yield from self._remove_stage(tablet_id)
            return
        found = yield from self.look(tablet_id)
        if copied and found.decision.action is StartupAction.NOTHING:  # A first copy, which left nothing else.
            yield from self._remove_stage(tablet_id)
        elif _is_deleted(found):
            yield from self._remove_stage(tablet_id)
            yield from self._end_deletion(found, removed=seen is None)
        else:
            yield from self._delete_offline(found, reason, seen)

    def _delete_offline(self, found: TabletFinding, reason: str, seen: OpId | None) -> Steps[None]:
        block, last = self._offline(found, seen)
        yield from self._remove_stage(found.tablet_id)
        if last == "UNKNOWN":
            self._loader.unknown_op_ids.add(found.tablet_id)
        yield from self._leave_tombstone(block, last, reason, removed=seen is None, lost=found.superblock is None)

    def _remove_stage(self, tablet_id: TabletId) -> Steps[None]:
        """Remove what a copy has left, if anything: a deletion without that need not wait for a thread for scans."""
        node = self._node
        if not (yield OffLoop(lambda: node.files.exists(node.layout.stage_of(tablet_id)))):
            return
        yield Ask(partial(node.scans.run, _key(tablet_id), lambda: remove_stage(node.files, node.layout, tablet_id)))

    def abandon_copy(self, block: Superblock, *, keep_stage: bool) -> Steps[None]:
        """Undo a copy that was interrupted. To remove its rows takes long, so it is done in the pool for scans."""
        steps = abandon_copy(self._node.files, self._node.layout, block, keep_stage=keep_stage)
        return in_pool(steps, self._node.scans, _key(block.tablet_id))

    def set_aside(self, replica: Replica, reason: str, *, removed: bool = False) -> Steps[None]:
        """Shut a replica down, leave a tombstone that votes, and move its data into quarantine.

        ``removed``: the table is deleted for good, so the replica never comes back.

        After an error the replica is shut down, and READY or deleted; its files say which."""
        last = yield from self.shut_down(replica)
        yield from self._leave_tombstone(replica.flusher.superblock, last, reason, removed=removed)

    def set_aside_offline(self, found: TabletFinding, reason: str) -> Steps[None]:
        """Leave the tombstone of a replica that did not start. Its last op id must be known (rule 19)."""
        block, last = self._offline(found, None)
        if last == "UNKNOWN":
            raise Unavailable(f"the last op id of tablet {found.tablet_id} is not known")
        yield from self._leave_tombstone(block, last, reason, removed=False)

    def _leave_tombstone(
        self, block: Superblock, last: LastOpId, reason: str, *, removed: bool, lost: bool = False
    ) -> Steps[None]:
        node, tablet_id = self._node, block.tablet_id
        about = DeletionRecord(
            tablet_id=tablet_id,
            table_name=block.table_name,
            deleted_us=physical_us(node.time.last),
            reason=reason,
            wal_engine=node.config.wal.name,
        )
        files, layout = node.files, node.layout
        tombstone = yield OffLoop(
            lambda: write_tombstone(files, layout, block, last, about, removed=removed, lost=lost)
        )
        yield from self.complete_deletion(tombstone)
        self._loader.forget_failure(tablet_id)
        log.info("tablet deleted tablet=%s last=%s quarantine=%s: %s", tablet_id, last, tombstone.quarantine, reason)

    def _end_deletion_of(self, tablet_id: TabletId, *, removed: bool) -> Steps[None]:
        if tablet_id in self._node.replicas:
            return
        found = yield from self.look(tablet_id)
        if _is_deleted(found):
            yield from self._end_deletion(found, removed=removed)

    def _end_deletion(self, found: TabletFinding, *, removed: bool) -> Steps[None]:
        """End a deletion, or a copy over a tombstone, that was interrupted. The last op id that it kept stays.

        ``removed``: make durable that the table is deleted for good, so that no leader has it copied here again."""
        block, tablet_id = found.superblock, found.tablet_id
        assert block is not None
        if found.decision.action is StartupAction.FAIL:  # What it has promised is unknown, so it never votes again.
            unknown = block = msgspec.structs.replace(block, tombstone="UNKNOWN")
            yield OffLoop(lambda: self._loader.superblock_file(tablet_id).save(unknown))
        if found.decision.action in (StartupAction.DELETE_SELF, StartupAction.REMOVE):
            yield from self.abandon_copy(block, keep_stage=False)
            self._loader.forget_failure(tablet_id)
            if block.tombstone is None:
                return  # A first copy, of which nothing stays.
            block = tombstone_of(block, block.tombstone)
        elif found.log is not None:
            yield from self.complete_deletion(block)
        self._loader.forget_failure(tablet_id)
        if removed and block.removed:  # A save that has failed may have ended before this sync (rule 7).
            yield OffLoop(lambda: self._node.files.sync_directory(self._node.layout.superblocks))
        elif removed:
            file, gone = self._loader.superblock_file(tablet_id), msgspec.structs.replace(block, removed=True)
            yield OffLoop(lambda: file.save(gone))

    def complete_deletion(self, tombstone: Superblock) -> Steps[None]:
        """Move data and log of a tombstone into its quarantine directory. May be repeated."""
        node = self._node
        yield OffLoop(lambda: set_data_aside(node.files, node.layout, tombstone))
        while (yield WithLog(lambda wal: copy_log_aside(node.layout, tombstone, wal))):
            pass  # Appends to other logs run in between.
        yield WithLog(lambda wal: set_log_aside(node.layout, tombstone, wal.set_aside))
        node.writer.close_log(tombstone.log_id)

    def purge_steps(self, name: str, *, superseded: Quarantined | None = None) -> Steps[None]:
        """Remove a directory of the quarantine, while the caller holds the lock of its tablet. Not for pools of votes.

        With ``superseded``, what the caller knows of it, it is removed only if it still is superseded. Raises
        ``Unavailable`` if it is not, or the deletion of the tablet is not complete."""
        node, tablet_id = self._node, tablet_of(name)
        found = yield from self.look(tablet_id)
        if found.decision.action is StartupAction.ROLL_FORWARD:
            raise Unavailable(f"the deletion of tablet {tablet_id} is not complete: its log is not in quarantine yet")

        def work() -> None:
            if superseded is not None and not is_superseded(node.files, node.layout, superseded):
                raise Unavailable(f"{name} has the last data of a deleted replica of tablet {tablet_id}")
            purge(node.files, node.layout, [name])

        yield OffLoop(work)

    def start_again(self, replica: Replica) -> Steps[None]:
        """Start a replica again that was shut down, from its files. A tombstone stays one.

        The tablet is offline if it does not start. That holds for a replica that has failed meanwhile, too: its files
        cannot be relied on before a restart (``durability.md`` rule 7)."""
        tablet = replica.tablet_id
        if replica.failure:
            reason = f"it failed, and was shut down: {replica.failure}; restart the node"
            self._loader.fail(tablet, reason, replica.status.committed_config)
            if replica.read_faults.explain(replica.failure):
                self._loader.damaged.add(tablet)
            return
        self._node.writer.close_log(replica.log)
        found = yield from self.look(tablet)
        if found.failure:
            self._loader.fail(tablet, found.failure, replica.status.committed_config)
        if found.decision.action is not StartupAction.START:
            return
        recovered = yield OffLoop(lambda: self._loader.recover(found))
        if recovered is None:
            return
        self._node.host(recovered)
        if (again := self._node.replicas.get(tablet)) is not None:
            # Copies from this replica go on. What follows them in the log is needed as before.
            again.flusher.retention.share_anchors(replica.flusher.retention)

    def shut_down(self, replica: Replica) -> Steps[OpId]:
        """Step 1 of a deletion: stop appends, applying and flushing, and close the store. Return the last op id.

        Afterwards the replica writes no consensus metadata, so its tombstone may vote. The Readies of a failed replica
        may never end. Those that wait behind a save are dropped: nothing that depends on them was sent."""
        replica.stop()
        self._node.peers.remove(replica.tablet_id)
        applier, flusher, executor = replica.applier, replica.flusher, replica.executor
        yield Until(lambda: bool(replica.failure) or (applier.idle and (not flusher.busy or bool(flusher.unsaved))))
        flusher.halt()
        yield Until(lambda: not flusher.saving)  # It must not come after the tombstone.
        if replica.failure:
            applier.halt()  # Work that waits between groups must not run any more.
        # A closed replica does not try a save again that has failed.
        yield Until(lambda: executor.idle or executor.waits_to_save or bool(replica.failure))
        executor.halt()
        yield Until(lambda: not executor.saving)
        yield Ask(applier.stop)  # What was committed meanwhile is perhaps being applied.
        writer = self._node.writer
        yield Until(lambda: not writer.has_queued(replica.log))  # The log must not grow behind its last op id.
        last = writer.acknowledged(replica.log)
        yield OffLoop(applier.store.close)
        return last

    def _offline(self, found: TabletFinding, seen: OpId | None) -> tuple[Superblock, LastOpId]:
        """Return superblock and last op id of a replica that could not be recovered."""
        if found.superblock is None and not found.failure:
            raise CallerError(f"tablet {found.tablet_id} cannot be deleted: it was never on this node")
        if found.consensus is not None:
            self._check_fence(found.consensus.committed_config.op_id, found.tablet_id, seen)
        if found.superblock is None:
            return lost_superblock(found.tablet_id, found.newest_log), "UNKNOWN"
        if found.consensus is None:
            # Without term and vote it is not known which votes this replica gave.
            return found.superblock, "UNKNOWN"
        lost = found.decision.action is StartupAction.FAIL or found.tablet_id in self._loader.unknown_op_ids
        if lost or found.log is None or found.log.damage is not None:
            return found.superblock, "UNKNOWN"
        return found.superblock, found.log.last

    def _check_fence(self, committed: OpId, tablet_id: TabletId, seen: OpId | None) -> None:
        if seen is not None and seen != committed:
            raise FenceMismatch(f"the committed config of tablet {tablet_id} on this node is {committed}, not {seen}")

    def look(self, tablet_id: TabletId) -> Steps[TabletFinding]:
        """Inspect the files of a tablet, in the same way as at start."""
        logs: Mapping[LogId, LogState] = yield WithLog(_logs_of(tablet_id))
        found: TabletFinding = yield OffLoop(lambda: self._loader.inspect(tablet_id, logs))
        return found

    def _why_offline(self, found: TabletFinding) -> str:
        return self._loader.failed.get(found.tablet_id) or found.failure or found.decision.why


def _key(tablet_id: TabletId) -> str:
    """Return the key of a tablet's operations in each pool."""
    return f"tablet/{tablet_id}"


def _check_first_schema(block: Superblock, new: TabletSettings) -> None:
    if block.schemas[:1] != (new.schema.to_bytes(),):
        raise TabletExists(f"tablet {new.id} exists on this node with another first schema")


def _is_deleted(found: TabletFinding) -> bool:
    """Return whether there is a tombstone, or a copy that was interrupted and ends as one or as nothing."""
    deleted = found.superblock is not None and found.superblock.data_state is DataState.DELETED
    return deleted or found.decision.action in (StartupAction.DELETE_SELF, StartupAction.REMOVE)


def _logs_of(tablet_id: TabletId) -> Callable[[WalEngine], Mapping[LogId, LogState]]:
    return lambda wal: {name: state for name, state in wal.logs().items() if name.tablet_id == tablet_id}
