"""The interfaces that a replica's drivers need from outside: real in production, simulated in the simulator."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from stelae.host.new_replica import NewReplica
from stelae.host.start_copy import CancelCopy, StartCopy
from stelae.host.superblock import PartitionBounds
from stelae.spi.consensus import Beats, CopyRequest, Fatal, HardState, Outbound, ReadReady
from stelae.spi.consensus_events import Event
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ClientId, LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.rejections import Rejection
from stelae.spi.schema import Schema
from stelae.spi.wal import Failed
from stelae.spi.write import SequenceRange


class Timer(Protocol):
    """A pending call of ``Turns.call_at``."""

    def cancel(self) -> None:
        """Cancel the call. Harmless if it has run."""


class Turns(Protocol):
    """The turns of the event loop."""

    def now_us(self) -> int:
        """Return the monotonic time in microseconds. It never decreases and may be constant within a turn."""

    def defer(self, call: Callable[[], None]) -> None:
        """Run ``call`` in this turn, after the current call."""

    def defer_last(self, call: Callable[[], None]) -> None:
        """Run ``call`` in this turn, after all deferred calls and all earlier calls of ``defer_last``."""

    def call_at(self, when_us: int, call: Callable[[], None]) -> Timer:
        """Run ``call`` on the loop at or after monotonic ``when_us``."""


class HybridTime(Protocol):
    """The node's hybrid clock."""

    def now(self) -> int:
        """Return the next hybrid timestamp. It is above all that were returned or observed before."""


class PeerNetwork(Protocol):
    """Sends messages to the replicas of the same tablet on other nodes. It never blocks and may lose messages."""

    def send(self, tablet_id: TabletId, outbound: Outbound, entries: Sequence[Entry]) -> None:
        """Queue one consensus message with its entries."""

    def create_replica(self, to: NodeId, new: NewReplica) -> None:
        """Ask the node of a new member to create an empty replica."""

    def start_copy(self, to: NodeId, asked: StartCopy) -> None:
        """Ask the node of a member to copy the tablet."""

    def cancel_copy(self, to: NodeId, cancelled: CancelCopy) -> None:
        """Tell a node to end a copy: it was removed from the tablet, or has the log alone and needs no rows."""


class HardStates(Protocol):
    """Saves term, vote and committed config of the tablets of a node, in order per tablet."""

    def save(
        self,
        tablet_id: TabletId,
        hard_state: HardState,
        committed_config: TabletConfig,
        done: Callable[[StelaeError | None], None],
    ) -> None:
        """Make a record durable.

        ``done`` is called once, on the loop, in order per tablet, and not before the record is durable."""


class LogReader(Protocol):
    """Reads durable entries off the event loop."""

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """Read as ``WalEngine.read`` does. ``done`` is called once, on the loop, with the entries or the error."""


class BlockingPool(Protocol):
    """Threads for blocking work of many tablets, in order per key."""

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work`` off the loop, after earlier work with the same key.

        ``done`` gets its result or its exception, on the loop."""


class WriteBatcher(Protocol):
    """Builds the payloads of entries from the write operations of one tablet, on the event loop.

    Each added sequence range becomes one range of one payload, with the given client, sequence numbers, digests and
    fence, even if none of its rows remains. Exactly-once depends on that. Payloads and their ranges are in the order of
    ``add``."""

    @property
    def schema(self) -> Schema:
        """The schema against which rows are checked. Payloads have its version."""

    def check_change(self, schema: Schema) -> None:
        """Check that ``schema`` may follow the present one.

        Raises ``SchemaMismatch`` if it is not the next version, or rows of the present schema do not fit it."""

    def change_schema(self, schema: Schema) -> None:
        """Check rows against ``schema`` from now on. Ranges that were added before are built with their own schema."""

    def __len__(self) -> int:
        """Return the number of sequence ranges that were added since the last ``build``."""

    def add(
        self, client_id: ClientId, first_incomplete: int, sequences: SequenceRange, digests: tuple[int, ...], token: Any
    ) -> None:
        """Add a sequence range. ``token`` is the caller's; ``build`` returns it.

        A row that does not fit becomes a row error of its operation. Raises ``CallerError``, and adds nothing, if an
        operation or the whole range cannot be accepted."""

    def build(self) -> Sequence[tuple[bytes, Sequence[Any]]]:
        """Return the encoded payloads of all ranges since the last call, each with the tokens of its ranges."""


BatcherFactory: TypeAlias = Callable[[Schema, int | None, PartitionBounds], WriteBatcher]
"""Makes the batcher of a tablet from its schema, the store's ``key_bytes_max`` and the tablet's partition."""


class ReadySink(Protocol):
    """Takes the effects of a core that are neither disk nor network. All methods are called on the event loop."""

    def deliver(self, event: Event) -> None:
        """Queue an event for the core."""

    def entries_changed(self, entries: tuple[Entry, ...], replace_from: int | None) -> None:
        """Called when entries were appended or replaced in the cache. They are not durable yet."""

    def entries_cut(self, from_index: int) -> None:
        """Called when an append failed: entries at or above ``from_index`` are not in the log.

        ``log_failed`` follows."""

    def committed(self, index: int) -> None:
        """Called when entries up to ``index`` may be applied."""

    def drained(self) -> None:
        """Called when every Ready so far is durable, and the messages that depended on them are queued."""

    def accepted(self, token: int, op_id: OpId) -> None:
        """Called when a proposal has an op id in the log. It is not durable and not committed yet."""

    def rejected(self, rejection: Rejection) -> None:
        """Called when a proposal, a read or a transfer was rejected."""

    def read_ready(self, ready: ReadReady) -> None:
        """Called when a majority has confirmed a read index."""

    def handed_over(self, token: int) -> None:
        """Called when a leadership transfer has succeeded."""

    def beats_changed(self, beats: Beats) -> None:
        """Called when the peers that get heartbeats have changed."""

    def members_changed(self, token: int, config: TabletConfig) -> None:
        """Called when a requested change of config is committed."""

    def change_aborted(self, token: int) -> None:
        """Called when a change of config was aborted as requested."""

    def stood_down(self, token: int) -> None:
        """Called when the term in which the replica stands down for a survivor is durable."""

    def copy_requested(self, request: CopyRequest) -> None:
        """Called when the log no longer has the entries that a peer needs."""

    def config_durable(self, config: TabletConfig) -> None:
        """Called when a committed config is in durable metadata. The log before its entry may now be collected."""

    def log_failed(self, failed: Failed) -> None:
        """Called when an append failed. The replica must stop to accept input. Only ``Full`` can be repaired."""

    def metadata_failed(self, error: StelaeError, retry: Callable[[], None]) -> None:
        """Called when a hard state or a config could not be made durable. Nothing that depends on it is sent meanwhile.

        ``retry`` saves it again, for example when a full disk has space again."""

    def fatal(self, effect: Fatal) -> None:
        """Called when the core found a broken invariant. The replica must stop."""
