"""Copies the rows to a replica without rows, which goes on to vote and to keep the log meanwhile.

Source: the appendix of "Raft config change", t=4 to t=5: the new replica "has finished copying its data snapshot, and
then replays its own log"; ``durability.md`` rules 12, 18, 21, 22 and 24.

1. The replica is checked, and an anchor keeps its log.
2. A source opens a session. Its rows must be as of an op id that the replica's log has, or after which it begins. Files
   of a source that has flushed too little are of no use; it is asked for an export as of now then.
3. The rows are fetched into the stage of the tablet, verified, and installed in the directory of the store, which the
   replica does not use. So until here a crash leaves the replica as it was.
4. The replica is stopped. The superblock says that it has rows, as of that op id. This is the commit point.
5. The replica starts again: its recovery applies its own log from there on. Its next answer tells the leader.

Term, vote and log are not touched, so nothing that the replica promised can be lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import msgspec

from stelae.host.hybrid_clock import physical_us
from stelae.host.replica import Replica
from stelae.host.start_copy import StartCopy
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.abandoned_copy import remove_copied_files
from stelae.lifecycle.blocking_steps import Ask, OffLoop, Steps, WithLog
from stelae.lifecycle.copy_environment import CopyControlFlags, CopyEnvironment
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_fences import CopyFences, inconsistent
from stelae.lifecycle.copy_install import install_rows
from stelae.lifecycle.copy_items import ItemKind, kind_of
from stelae.lifecycle.copy_stage import CopyStage, remove_stage
from stelae.spi.copy_plan import Complete, CopyOffer, CopyOutcome, CopyPlan, CopySnapshot, Fences
from stelae.spi.errors import Full, StelaeError, Unavailable
from stelae.spi.ids import ZERO, OpId
from stelae.spi.members import Member
from stelae.spi.wal import WalEngine

log = logging.getLogger(__name__)

ANCHOR = "copy of the rows"


class RowsCopy:
    """One copy. ``steps`` is run under the tablet's lock, in the pool for copies.

    Args:
        asked: the request of the leader. The caller holds a slot until the copy has ended.
    """

    def __init__(self, environment: CopyEnvironment, asked: StartCopy) -> None:
        self._env = environment
        self._asked = asked
        self.control = CopyControlFlags()
        self.reason = ""  #: Why the copy did not complete.
        self.offer: CopyOffer | None = None  #: The open session. The caller ends it.
        self.begun = False  #: Something was fetched.
        self.committed = False  #: The replica has its rows.
        self._stopped = False  # The superblock may say that there are rows, even if its save failed.
        node, bytes_max = environment.node, environment.settings.bytes_max
        self._stage = CopyStage(node.files, node.layout, asked.tablet_id, bytes_max, environment.crash)

    def steps(self) -> Steps[None]:
        """Do the copy. Operating errors are not raised: they are in ``reason``."""
        replica = self._env.node.replicas.get(self._asked.tablet_id)
        self.reason = self._refusal(replica)
        if self.reason or replica is None:
            return
        retention = replica.flusher.retention
        retention.anchor(ANCHOR, replica.flusher.log_base.index + 1)
        try:
            yield from self._copy(replica)
        except (StelaeError, OSError) as error:  # ``Files`` raises ``OSError`` for missing names.
            self.reason = str(error)
        finally:
            retention.release(ANCHOR)
        if self.begun and not self._stopped:
            yield from self._put_back(replica.flusher.superblock)

    def _put_back(self, block: Superblock) -> Steps[None]:
        """Move rows that were installed back into the stage, for the next copy. A start does the same."""
        files, layout, crash = self._env.node.files, self._env.node.layout, self._env.crash
        with suppress(StelaeError, OSError):
            yield OffLoop(self._stage.close)
            yield OffLoop(lambda: remove_copied_files(files, layout, block, keep_stage=True, crash=crash))

    def _refusal(self, replica: Replica | None) -> str:
        """Return why no copy may begin, or an empty text. Nothing was changed."""
        asked, node = self._asked, self._env.node
        if asked.to != node.node_id:
            return f"the request is for node {asked.to}, and this is node {node.node_id}"
        if replica is None or not replica.log_only or replica.failure:
            return "this node has no running replica without rows of the tablet"
        if asked.term < replica.status.term:
            return f"the leader is of term {asked.term}, and this replica knows term {replica.status.term}"
        return ""

    def _copy(self, replica: Replica) -> Steps[None]:
        node, crash = self._env.node, self._env.crash
        snapshot, facts = yield from self._open(replica)
        yield from self._fetch(snapshot)
        manifest = yield OffLoop(
            lambda: install_rows(node.files, node.layout, self._stage, snapshot, facts, node.engines, crash)
        )
        self._check_cancelled()
        yield from self._commit(replica, facts, manifest)

    # -- the source ----------------------------------------------------------------------------------

    def _open(self, replica: Replica) -> Steps[tuple[CopySnapshot, CopyFacts]]:
        """Open a session with the first source whose rows meet the log. Raises ``Unavailable`` if none has such."""
        why = "no source was named"
        for source in self._asked.sources:
            for as_export in (False, True):
                self._check_cancelled()
                try:
                    offer: CopyOffer = yield Ask(self._beginning(source, as_export=as_export))
                except StelaeError as error:
                    why = f"{source.node_id} does not serve the copy: {error}"
                    break
                self.offer = offer
                wrong = yield from self._wrong(replica, offer.snapshot)
                if not wrong:
                    return _rows_of(offer.snapshot), CopyFacts.from_bytes(offer.snapshot.facts)
                why = f"{source.node_id}: {wrong}"
                self._env.sources.end(offer)
                self.offer = None
        raise Unavailable(why)

    def _beginning(self, source: Member, *, as_export: bool) -> Callable[[Callable[[object], None]], None]:
        return lambda done: self._env.sources.begin(source, self._asked.tablet_id, done, as_export=as_export)

    def _wrong(self, replica: Replica, snapshot: CopySnapshot) -> Steps[str]:
        """Return why the rows of a snapshot cannot be those of this replica, or an empty text."""
        node = self._env.node
        fences = CopyFences(
            op_ids=Fences(tombstone=ZERO, config_op_id=replica.status.committed_config.op_id),
            consensus=node.config.consensus.name,
            store=node.config.store.name,
            keeps_rows="durable_flush" in node.engines.store.capabilities,
        )
        refused = yield OffLoop(lambda: inconsistent(snapshot, self._asked.tablet_id))
        refused = refused or fences.refusal(snapshot)
        if refused is not None:
            return str(refused)
        self._env.check_facts(CopyFacts.from_bytes(snapshot.facts))
        base, applied = replica.flusher.log_base, replica.applier.applied
        if snapshot.base.index < base.index:
            return f"its rows are as of {snapshot.base}, and the log of this replica begins after {base}"
        if snapshot.base.index > applied.index:
            return f"its rows are as of {snapshot.base}, and this replica knows entries up to {applied} as committed"
        return ""

    def _fetch(self, snapshot: CopySnapshot) -> Steps[None]:
        """Fetch the rows into the stage, and verify them. Raises ``Unavailable`` if they are not complete."""
        env, stage = self._env, self._stage
        assert self.offer is not None
        offer = msgspec.structs.replace(self.offer, snapshot=snapshot)
        self.begun = True
        now_us = physical_us(env.node.time.last)
        yield OffLoop(lambda: stage.prepare(snapshot, now_us))
        fences = Fences(tombstone=ZERO, config_op_id=ZERO)  # They were checked.
        plan = CopyPlan(offers=(offer,), items=snapshot.items, fences=fences)
        network = env.sources.network()
        found: CopyOutcome = yield OffLoop(
            lambda: env.transport.run(plan, have=stage.have(), sink=stage, network=network, control=self.control)
        )
        yield OffLoop(stage.close)
        self._check_cancelled()
        if not isinstance(found, Complete):
            raise Unavailable(f"the rows are not complete: {found}")
        damaged = yield OffLoop(stage.verify)
        if damaged:
            raise Unavailable(f"{len(damaged)} items in the stage are damaged, the first one is {damaged[0]!r}")
        env.crash.hit("rows.after_verified")

    def _check_cancelled(self) -> None:
        if self.control.cancelled():
            raise Unavailable(self.control.why_cancelled)

    # -- the replica ---------------------------------------------------------------------------------

    def _commit(self, replica: Replica, facts: CopyFacts, manifest: bytes) -> Steps[None]:
        """Stop the replica, write the superblock, and start it again: with rows if the superblock was durable.

        A replica that has failed is not started again in this process, nor one whose superblock may be the old or the
        new one: what it has in its files cannot be relied on before a restart (``durability.md`` rule 7)."""
        env, node = self._env, self._env.node
        _check_running(replica)
        self._stopped = True
        yield from env.manager.shut_down(replica)
        block, saving = replica.flusher.superblock, False
        try:
            _check_running(replica)
            yield WithLog(lambda wal: _check_log(wal, block, facts.flushed))
            env.crash.hit("rows.after_stopped")
            ready = with_rows(block, facts, manifest, node.config.store.name)
            superblock = SuperblockFile(node.files, node.layout, block.tablet_id, env.crash)
            saving = True
            yield OffLoop(lambda: superblock.save(ready))
            self.committed = True
            env.crash.hit("rows.after_committed")
            yield OffLoop(lambda: remove_stage(node.files, node.layout, block.tablet_id))
        except (StelaeError, OSError) as error:
            self.reason = str(error)
            unsure = saving and not self.committed and not isinstance(error, Full)
            if replica.failure or unsure:
                env.loader.fail(block.tablet_id, f"it was stopped to get its rows: {error}; restart the node")
                return
        yield from env.manager.start_again(replica)


def _check_running(replica: Replica) -> None:
    if replica.failure:
        raise Unavailable(f"the replica has failed: {replica.failure}")


def with_rows(block: Superblock, facts: CopyFacts, manifest: bytes, store: str) -> Superblock:
    """Return the superblock of a replica that has its rows now."""
    return msgspec.structs.replace(
        block,
        log_only=False,
        table_name=facts.table_name,
        partition=facts.partition,
        store_engine=store,
        schemas=facts.schemas,
        manifest=manifest,
        flushed=facts.flushed,
        timestamp=facts.timestamp,
        results=facts.results,
    )


def _rows_of(snapshot: CopySnapshot) -> CopySnapshot:
    """Return a snapshot without the items of the log."""
    rows = tuple(item for item in snapshot.items if kind_of(item.name) is not ItemKind.LOG)
    return msgspec.structs.replace(snapshot, items=rows)


def _check_log(wal: WalEngine, block: Superblock, flushed: OpId) -> None:
    """Check that the log of a stopped replica continues rows as of ``flushed``. Raises ``Unavailable``.

    If it did not, the next start would find that acknowledged entries are missing, and the replica would never vote
    again."""
    state = wal.logs()[block.log_id]
    if not state.base.index <= flushed.index <= state.last.index:
        raise Unavailable(f"the rows are as of {flushed}, and the log of this replica has {state.base} to {state.last}")
    if flushed != ZERO and wal.op_id_at(block.log_id, flushed.index) != flushed:
        raise Unavailable(f"the rows are as of {flushed}, which is not in the log of this replica")
