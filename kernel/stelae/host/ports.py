"""What the drivers of a replica need from outside: real in production, virtual in the simulator."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from stelae.host.superblock import PartitionBounds
from stelae.spi.consensus import (
    Beats,
    CopyRequest,
    Event,
    Fatal,
    HardState,
    Outbound,
    ReadReady,
    Rejection,
    TabletConfig,
)
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ClientId, LogId, OpId, TabletId
from stelae.spi.log import Entry
from stelae.spi.schema import Schema
from stelae.spi.wal import Failed
from stelae.spi.write import SequenceRange


class Timer(Protocol):
    """A pending call of ``Turns.call_at``."""

    def cancel(self) -> None:
        """Make sure that it does not run. Harmless when it has."""


class Turns(Protocol):
    """The event loop, as replicas see it."""

    def now_us(self) -> int:
        """Monotonic microseconds; the same for everything within one turn or later."""

    def defer(self, call: Callable[[], None]) -> None:
        """Run ``call`` on the loop after what is running now, before waiting again."""

    def defer_last(self, call: Callable[[], None]) -> None:
        """As ``defer``, when all that was deferred is done, and what was to be sent before."""

    def call_at(self, when_us: int, call: Callable[[], None]) -> Timer:
        """Run ``call`` on the loop at or after monotonic ``when_us``."""


class HybridTime(Protocol):
    """The node's hybrid clock."""

    def now(self) -> int:
        """The next hybrid timestamp: above every one given or observed before."""


class PeerNetwork(Protocol):
    """The way to the same tablet's replicas on other nodes. Never blocks; may lose messages."""

    def send(self, tablet_id: TabletId, outbound: Outbound, entries: Sequence[Entry]) -> None:
        """Queue one consensus message with the entries that travel along."""


class HardStates(Protocol):
    """Durable term, vote and committed config of the tablets of a node, ordered per tablet."""

    def save(
        self,
        tablet_id: TabletId,
        hard_state: HardState,
        committed_config: TabletConfig,
        done: Callable[[StelaeError | None], None],
    ) -> None:
        """Make a record durable; ``done`` once, on the loop, in order, never before it is."""


class LogReader(Protocol):
    """Reads of durable entries that may block, run off the loop."""

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """Read as ``WalEngine.read`` does; ``done`` once, on the loop."""


class BlockingPool(Protocol):
    """Threads for store work of many tablets, in order per key."""

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work`` off the loop after earlier work of the key; an exception is the result."""


class WriteBatcher(Protocol):
    """Makes entries of one tablet's write operations. On the loop.

    Each run taken is one run of one payload, with the client, sequence and digests given, also when none of its rows is
    left: exactly-once rests on it. Payloads and their runs are in the order taken."""

    @property
    def schema(self) -> Schema:
        """What rows are checked against; its version is the payloads'."""

    def check_change(self, schema: Schema) -> None:
        """``SchemaMismatch``: rows of the present schema cannot be had under this one, or it is not the next."""

    def change_schema(self, schema: Schema) -> None:
        """Check rows against another schema from now on; what was taken before is built under its own."""

    def __len__(self) -> int:
        """Runs taken since the last ``build``."""

    def add(
        self, client_id: ClientId, first_incomplete: int, run: SequenceRange, digests: tuple[int, ...], token: Any
    ) -> None:
        """Take a run of operations; ``CallerError``, and nothing is taken: unfit as a whole, or one of them is. Rows at
        fault become row errors of their operation. ``token`` is the caller's."""

    def build(self) -> Sequence[tuple[bytes, Sequence[Any]]]:
        """Return encoded payloads for everything taken since the last call, each with the tokens of its runs."""


BatcherFactory: TypeAlias = Callable[[Schema, int | None, PartitionBounds], WriteBatcher]
"""Makes the batcher of a tablet from its schema, the store's ``key_bytes_max`` and which keys the tablet holds."""


class ReadySink(Protocol):
    """Where the executor hands the effects that are not disk or network. On the loop."""

    def deliver(self, event: Event) -> None:
        """An event for the core."""

    def entries_changed(self, entries: tuple[Entry, ...], replace_from: int | None) -> None:
        """The log changed in memory (nothing is durable yet)."""

    def entries_cut(self, from_index: int) -> None:
        """An append failed: entries at or above ``from_index`` are not in the log. ``log_failed`` follows."""

    def committed(self, index: int) -> None:
        """Entries up to ``index`` may be applied."""

    def drained(self) -> None:
        """Every Ready so far is durable, and what depended on it queued to be sent."""

    def accepted(self, token: int, op_id: OpId) -> None:
        """A proposal has its place in the log."""

    def rejected(self, rejection: Rejection) -> None:
        """A proposal or read was not taken."""

    def read_ready(self, ready: ReadReady) -> None:
        """A read index was confirmed."""

    def handed_over(self, token: int) -> None:
        """A transfer of leadership has ended well."""

    def beats_changed(self, beats: Beats) -> None:
        """Whom to keep alive changed."""

    def copy_requested(self, request: CopyRequest) -> None:
        """A peer cannot be caught up from the log."""

    def config_durable(self, config: TabletConfig) -> None:
        """A committed config is in durable metadata: the log before it may be collected."""

    def log_failed(self, failed: Failed) -> None:
        """An append failed: stop taking input; ``Full`` may be repaired, others may not."""

    def metadata_failed(self, error: StelaeError, retry: Callable[[], None]) -> None:
        """Hard state or config is not durable; nothing that depends on it goes out meanwhile. ``retry`` saves again,
        for a disk that was full."""

    def fatal(self, effect: Fatal) -> None:
        """The core found a broken invariant: stop the tablet."""
