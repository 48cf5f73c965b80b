"""The consensus metadata of a tablet: term, vote, and the committed config with its op id.

It is kept for ever, even for a tombstone: a replica that forgot its vote could vote twice.

Ordering and durability
    Terms and the op ids of committed configs never decrease, and within one term a vote is never changed or withdrawn.
    ``save`` refuses such a record before it touches the disk, because only a bug can ask for it. A message that depends
    on a term or a vote may be sent only after ``save`` has returned."""

from collections.abc import Callable

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints, FileKind, TabletFile
from stelae.host.ports import BlockingPool
from stelae.spi.consensus import HardState
from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.services import Files


class ConsensusRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file. A config without members means that no config was ever committed here."""

    tablet_id: TabletId
    term: int
    voted_for: NodeId | None
    committed_config: TabletConfig
    promised_us: int = 0

    @property
    def hard_state(self) -> HardState:
        """Term, vote and promise, as a consensus core restores them."""
        return HardState(self.term, self.voted_for, self.promised_us)


CONSENSUS = FileKind("consensus-meta", b"STcm", 1, msgspec.msgpack.Decoder(ConsensusRecord))


class ConfigRegression(StorageError, code="CONFIG_REGRESSION"):
    """A record whose committed config is older than the present one. Nothing was written."""


class VoteRegression(StorageError, code="VOTE_REGRESSION"):
    """A record that would lower the term or change the vote. Nothing was written."""


class ConsensusMetadata(TabletFile[ConsensusRecord]):
    """The consensus metadata of a tablet on disk. If it cannot be read, the replica must not vote."""

    def __init__(self, files: Files, layout: DirectoryLayout, tablet: TabletId, crash: CrashPoints = NO_CRASH) -> None:
        super().__init__(files, CONSENSUS, layout.consensus_of(tablet), tablet, crash)

    def save(self, hard_state: HardState, committed_config: TabletConfig) -> None:
        """Replace the file. Durable on return. Blocks.

        Raises ``VoteRegression`` if the term would decrease or the vote change, and ``ConfigRegression`` if the config
        would become an older one; nothing was written. Raises as ``load``
        does if the present file cannot be read; nothing was written. Raises as ``metadata_files.save`` does; the caller
        must then not send anything that depends on the record."""
        known = self._known()
        term, vote = hard_state.term, hard_state.voted_for
        old = known.hard_state if known is not None else HardState()
        if term < old.term or (term == old.term and old.voted_for not in (None, vote)):
            fact = f"term {term}, vote {vote} would replace term {old.term}, vote {old.voted_for}"
            raise VoteRegression(fact, path=self._path)
        if known is not None and committed_config.op_id < known.committed_config.op_id:
            fact = f"config {committed_config.op_id} would replace config {known.committed_config.op_id}"
            raise ConfigRegression(fact, path=self._path)
        record = ConsensusRecord(
            tablet_id=self._tablet,
            term=term,
            voted_for=vote,
            committed_config=committed_config,
            promised_us=hard_state.promised_us,
        )
        self._replace(record)


class HardStateWriter:
    """Saves the hard states of all tablets of a node, off the event loop, in order per tablet."""

    def __init__(self, files: Files, layout: DirectoryLayout, pool: BlockingPool) -> None:
        self._files = files
        self._layout = layout
        self._pool = pool

    def save(
        self,
        tablet_id: TabletId,
        hard_state: HardState,
        committed_config: TabletConfig,
        done: Callable[[StelaeError | None], None],
    ) -> None:
        """Make a record durable.

        ``done`` is called once, on the loop, in order per tablet, and not before the record is durable."""
        metadata = ConsensusMetadata(self._files, self._layout, tablet_id)

        def finished(result: object) -> None:
            if result is not None and not isinstance(result, StelaeError):
                result = StorageError(f"consensus metadata was not saved: {result!r}")
            done(result)

        key = f"consensus/{tablet_id}"
        self._pool.run(key, lambda: metadata.save(hard_state, committed_config), finished)
