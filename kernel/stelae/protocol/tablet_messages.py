"""Requests that a tablet server answers, besides writes (``stelae.spi.write``).

Kinds are the names under which they travel. Bodies are MessagePack of these types; rows travel as
Arrow IPC messages in frames of their own."""

from __future__ import annotations

import msgspec

from stelae.rows.parquet_rows import StoredRows
from stelae.spi.errors import CallerError
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.scan import ScanSpec

WRITE = "tablet.write"
SCAN = "tablet.scan"
DIFF = "tablet.diff"
DESCRIBE = "tablet.describe"
STATUS = "tablet.status"
CHECKSUM = "tablet.checksum"
ALTER = "tablet.alter"
TRANSFER_LEADERSHIP = "tablet.transfer_leadership"

TIMESTAMP_MAX = (1 << 63) - 1
"""The highest hybrid timestamp."""

SCAN_PAGE_ROWS_MAX = 65_536
"""Most rows of one answer to a scan: what a page costs besides its rows is then little beside them."""


IN_VALUES_MAX = 10_000
"""Most values of one ``in``: they travel with every page, and each row of a scan is held against them."""


class NoSuchTablet(CallerError, code="NO_SUCH_TABLET"):
    """The tablet has no replica on this node. Others may have one: it may have moved."""


class ScanRequest(msgspec.Struct, frozen=True, array_like=True):
    """One page of a scan.

    ``at`` is the hybrid timestamp of the snapshot; ``None`` on the first page, when the leader
    chooses one at which the scan is linearizable. Later pages repeat what the first one said.
    ``at_least``, without ``at``, lets any replica choose that has applied an entry of that time.

    ``file`` says that rows may also come as they are stored, and of which file the footer is known already; empty: of
    none. ``None``: rows come as Arrow.

    ``since``, under the kind ``DIFF`` and there alone, asks for what entries above that time, up to ``at``, have
    changed (``stelae.rows.changes``); the columns, range of keys, limit and ``after`` of ``spec`` hold for it."""

    tablet_id: TabletId
    spec: ScanSpec
    at: int | None = None
    rows_max: int = SCAN_PAGE_ROWS_MAX
    at_least: int | None = None
    file: bytes | None = None
    since: int | None = None


class ScanPage(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a scan; the rows, if any, are the next frame: an Arrow IPC message, or the column chunks of ``stored``.
    The footer of a file of which the request did not know follows in a frame of its own.

    ``after`` is the resume token behind which the next page begins; ``None`` at the end."""

    at: int
    schema_version: int
    row_count: int
    after: bytes | None
    stored: StoredRows | None = None


class DescribeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a tablet's schema and where its leader is, as this replica knows them."""

    tablet_id: TabletId


class Description(msgspec.Struct, frozen=True, array_like=True):
    """Answer: the schema (``Schema.to_bytes``), the leader, and the members' addresses."""

    schema: bytes
    leader: NodeId | None
    members: tuple[tuple[NodeId, str], ...]


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica stands; for people, for tests and for the demo."""

    tablet_id: TabletId
    node_id: NodeId
    state: str
    role: str
    term: int
    leader: NodeId | None
    last: OpId
    durable_index: int
    commit: int
    applied: int
    failure: str = ""
    match_indexes: tuple[tuple[NodeId, int], ...] = ()
    """On a leader: up to where each peer has acknowledged the log."""


class StatusRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for reports of every replica of a node."""


class StatusReply(msgspec.Struct, frozen=True, array_like=True):
    """Answer: one report per replica."""

    replicas: tuple[ReplicaReport, ...]


class ChecksumRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask one replica, leader or not, for the logical checksum of the rows that it has applied.

    ``at``: as of a hybrid timestamp; ``None``: as of the last entry applied. ``Unavailable``: the replica has not
    applied entries up to then, or none at all."""

    tablet_id: TabletId
    at: int | None = None


class Checksum(msgspec.Struct, frozen=True, array_like=True):
    """Answer: the checksum, the op id up to which entries were applied then, and ``at`` which time rows were read."""

    checksum: str
    applied: OpId
    at: int = 0


class AlterRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader to put the next schema (``Schema.to_bytes``) into force. Its version is the fence; repeating the
    request is harmless."""

    tablet_id: TabletId
    schema: bytes


class AlterReply(msgspec.Struct, frozen=True, array_like=True):
    """Answer: the version in force, applied by the leader and durable on a majority."""

    schema_version: int


class TransferRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a leader to transfer its leadership. The answer is empty.

    A leader that is asked to transfer to itself answers at once."""

    tablet_id: TabletId
    to: NodeId | None = None
    """A voter of the tablet; ``None``: the most up-to-date one."""
