"""The requests that a tablet server answers, except for writes (``stelae.spi.write``).

The constants are message kinds. Bodies are these types in MessagePack. Rows are Arrow IPC messages in frames of their
own."""

from __future__ import annotations

import msgspec

from stelae.rows.parquet_rows import StoredRows
from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.scan import ScanSpec

WRITE = "tablet.write"
SCAN = "tablet.scan"
DIFF = "tablet.diff"
DESCRIBE = "tablet.describe"
STATUS = "tablet.status"
CHECKSUM = "tablet.checksum"
ALTER = "tablet.alter"
SPLIT_KEYS = "tablet.split_keys"
TRANSFER_LEADERSHIP = "tablet.transfer_leadership"

TIMESTAMP_MAX = (1 << 63) - 1
"""The highest hybrid timestamp."""

SCAN_PAGE_ROWS_MAX = 65_536
"""The most rows of one page of a scan. In a page of this size, all costs but those of the rows are negligible."""


IN_VALUES_MAX = 10_000
"""The most values of one ``in``. They are sent with every page, and each row of a scan is compared with them."""


SPLIT_BYTES_MIN = 1 << 20
"""The least size of a part of a tablet that can be asked for. A smaller part costs more to ask for than to read."""

SPLIT_KEYS_MAX = 1000
"""The most keys that divide one tablet. With more, the parts are larger than asked for."""


class NoSuchTablet(CallerError, code="NO_SUCH_TABLET"):
    """The tablet has no replica on this node. It may have moved to another node."""


class ScanRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for one page of a scan, or of a diff."""

    tablet_id: TabletId
    spec: ScanSpec
    #: The hybrid timestamp of the snapshot. ``None`` for the first page: the leader then chooses a timestamp at which
    #: the scan is linearizable. Later pages repeat the timestamp of the first page.
    at: int | None = None
    rows_max: int = SCAN_PAGE_ROWS_MAX
    #: Without ``at``: any replica that has applied an entry at or above this timestamp may choose the timestamp.
    at_least: int | None = None
    #: If set, rows may also be returned as they are stored. It names the file whose footer the client already has;
    #: empty: none. ``None``: rows are returned as Arrow.
    file: bytes | None = None
    #: For the kind ``DIFF`` only: return what entries above this time and up to ``at`` have changed
    #: (``stelae.rows.changes``). The columns, the key range, the limit and ``after`` of ``spec`` apply to it.
    since: int | None = None
    #: Whether rows that are returned as Arrow may be compressed with LZ4.
    lz4: bool = False


class ScanPage(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``ScanRequest``.

    The rows, if any, are in the next frame: an Arrow IPC message, or the column chunks of ``stored``. If the client
    does not have the footer of the file, it follows in a frame of its own."""

    at: int  #: The hybrid timestamp of the snapshot.
    schema_version: int
    row_count: int
    after: bytes | None  #: The resume token for the next page; ``None`` at the end.
    stored: StoredRows | None = None


class DescribeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a tablet's schema, leader and members, as this replica knows them."""

    tablet_id: TabletId


class Description(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``DescribeRequest``."""

    schema: bytes  #: As of ``Schema.to_bytes``.
    leader: NodeId | None
    members: tuple[tuple[NodeId, str], ...]  #: Node ids and addresses.
    config: OpId = ZERO  #: The op id of the config with these members. The higher one is newer.


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one replica, for commands, tests and the demo."""

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
    """Leaders only: up to which index each peer has acknowledged the log."""


class StatusRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the reports of all replicas of a node."""


class StatusReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``StatusRequest``: one report per replica."""

    replicas: tuple[ReplicaReport, ...]


class ChecksumRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask any replica for the logical checksum of the rows that it has applied.

    The rows have the columns of the replica's newest schema version, also those of an earlier time. The answer is
    ``Unavailable`` if the replica has not applied entries up to ``at``, or no entries at all, or if the table was
    altered while the rows were read."""

    tablet_id: TabletId
    at: int | None = None  #: A hybrid timestamp; ``None``: as of the last applied entry.


class Checksum(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``ChecksumRequest``."""

    checksum: str
    applied: OpId  #: The op id of the last applied entry when the checksum was computed.
    at: int = 0  #: The hybrid timestamp of the rows.
    schema_version: int = 0  #: The version whose columns the rows have. Only checksums of one version are comparable.


class SplitKeysRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask any replica for keys that divide a key range of the tablet into parts of about ``bytes_max``."""

    tablet_id: TabletId
    bytes_max: int  #: At least ``SPLIT_BYTES_MIN``.
    key_from: bytes | None = None  #: An encoded key; ``None``: from the first row.
    key_until: bytes | None = None  #: An encoded key, exclusive; ``None``: to the last row.


class SplitKeys(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``SplitKeysRequest``: increasing encoded keys within the range, at most ``SPLIT_KEYS_MAX``."""

    keys: tuple[bytes, ...]
    size_bytes: int  #: The files of the whole store and the rows in memory, without the log.


class AlterRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader to change the tablet to the next schema. Its version is the fence. May be repeated."""

    tablet_id: TabletId
    schema: bytes  #: As of ``Schema.to_bytes``.


class AlterReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to an ``AlterRequest``."""

    schema_version: int  #: The version in force: applied by the leader, and durable on a majority.


class TransferRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a leader to transfer its leadership. The answer is empty.

    A leader that is asked to transfer to itself answers at once."""

    tablet_id: TabletId
    to: NodeId | None = None
    """A voter of the tablet; ``None``: the most up-to-date one."""
    committed_config_id: OpId | None = None
    """The op id of the committed config that the transfer is meant for. ``None``: any."""
