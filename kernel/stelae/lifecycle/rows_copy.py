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
from contextlib import suppress

import msgspec

from stelae.host.replica import Replica
from stelae.host.start_copy import StartCopy
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.abandoned_copy import remove_copied_files
from stelae.lifecycle.blocking_steps import OffLoop, Steps, WithLog
from stelae.lifecycle.copy_cancelled import CopyCancelled
from stelae.lifecycle.copy_environment import CopyControlFlags, CopyEnvironment
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_install import install_rows
from stelae.lifecycle.copy_source import ChosenSource
from stelae.lifecycle.copy_stage import remove_stage
from stelae.lifecycle.copy_states import CopyPhase
from stelae.lifecycle.rows_fetch import RowsFetch
from stelae.spi.errors import Full, StelaeError, Unavailable
from stelae.spi.ids import ZERO, OpId
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
        self.asked = asked
        self.control = CopyControlFlags()
        self.reason = ""  #: Why the copy did not complete.
        self.source = ChosenSource(environment, asked, self.control)
        self._fetch: RowsFetch | None = None
        self.committed = False  #: The replica has its rows.
        self._installs = False
        self._stopped = False  # The superblock may say that there are rows, even if its save failed.
        self._stage = environment.stage(asked.tablet_id)

    @property
    def begun(self) -> bool:
        """Whether something was fetched."""
        return self._fetch is not None and self._fetch.begun

    @property
    def phase(self) -> CopyPhase:
        """What the copy does, for people."""
        if self._installs:
            return CopyPhase.INSTALLING
        return CopyPhase.PREPARING if self._fetch is None else self._fetch.phase

    def steps(self) -> Steps[None]:
        """Do the copy. Operating errors are not raised: they are in ``reason``."""
        replica = self._env.node.replicas.get(self.asked.tablet_id)
        self.reason = self._refusal(replica)
        if self.reason or replica is None:
            return
        self._env.admitted(self.asked.tablet_id)
        retention = replica.flusher.retention
        retention.anchor(ANCHOR, replica.flusher.log_base.index + 1)
        try:
            yield from self._copy(replica)
        except CopyCancelled:
            self.reason = self.control.why_cancelled
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
        asked, node = self.asked, self._env.node
        if asked.to != node.node_id:
            return f"the request is for node {asked.to}, and this is node {node.node_id}"
        if replica is None or not replica.log_only or replica.failure:
            return "this node has no running replica without rows of the tablet"
        if asked.term < replica.status.term:
            return f"the leader is of term {asked.term}, and this replica knows term {replica.status.term}"
        return ""

    def _copy(self, replica: Replica) -> Steps[None]:
        node, crash, stage, cancelled = self._env.node, self._env.crash, self._stage, self.control.cancelled
        self._fetch = RowsFetch(self._env, self.asked, replica, stage, self.control, self.source)
        snapshot, facts = yield from self._fetch.steps()
        self._installs = True
        manifest = yield OffLoop(
            lambda: install_rows(node.files, node.layout, stage, snapshot, facts, node.engines, cancelled, crash)
        )
        if self.control.cancelled():
            raise Unavailable(self.control.why_cancelled)
        yield from self._commit(replica, facts, manifest)

    def _commit(self, replica: Replica, facts: CopyFacts, manifest: bytes) -> Steps[None]:
        """Stop the replica, write the superblock, and start it again: with rows if the superblock was durable.

        A replica that has failed is not started again in this process, nor one whose superblock may be the old or the
        new one: what it has in its files cannot be relied on before a restart (``durability.md`` rule 7)."""
        env, node = self._env, self._env.node
        _check_running(replica)
        self._stopped = True
        block, saving = replica.flusher.superblock, False
        try:
            yield from env.manager.shut_down(replica)
            block = replica.flusher.superblock
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
            if unsure:
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


def _check_log(wal: WalEngine, block: Superblock, flushed: OpId) -> None:
    """Check that the log of a stopped replica continues rows as of ``flushed``. Raises ``Unavailable``.

    If it did not, the next start would find that acknowledged entries are missing, and the replica would never vote
    again."""
    state = wal.logs()[block.log_id]
    if not state.base.index <= flushed.index <= state.last.index:
        raise Unavailable(f"the rows are as of {flushed}, and the log of this replica has {state.base} to {state.last}")
    if flushed != ZERO and wal.op_id_at(block.log_id, flushed.index) != flushed:
        raise Unavailable(f"the rows are as of {flushed}, which is not in the log of this replica")
