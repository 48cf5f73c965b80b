"""Scan tokens: a scan, or a part of one, that can be run elsewhere and later.

A token can be pickled, or converted into bytes that are safe to read from any source. It has the id of its table, which
survives renames, the tablets to read, how far each is read, and the snapshot once it is chosen. It has no rows and no
connection."""

from __future__ import annotations

from collections.abc import Container
from zlib import crc32

import msgspec

from stelae.spi.errors import CallerError, Corrupt, SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema

_TOKEN_VERSION = 2
_SUM_BYTES = 4


class BadToken(CallerError, code="BAD_TOKEN"):
    """Bytes that are not a scan token, a token of another table, or a token that reads a tablet that is gone."""


class TokenPart(msgspec.Struct, frozen=True, array_like=True):
    """The part of a scan that reads one tablet, from where it is now."""

    tablet_id: TabletId
    at: int | None = (
        None  #: Hybrid timestamp of the snapshot; ``None``: the replica that serves the first page chooses.
    )
    after: bytes | None = None  #: Continue behind the row with this encoded key; ``None``: from the start.


class ScanToken(msgspec.Struct, frozen=True, array_like=True):
    """A scan, a part of one, or the rest of one."""

    addresses: tuple[str, ...]  #: Addresses of the cluster.
    table: str  #: Name of the table when the token was made. With a ``table_id``, the id identifies the table.
    schema: bytes  #: Schema of the table when the token was made.
    spec: ScanSpec
    parts: tuple[TokenPart, ...] | None  #: ``None``: the scan has not begun, so its tablets are not determined yet.
    at_least: int | None = None  #: As in ``ScanRequest``.
    version: int = _TOKEN_VERSION
    table_id: str = ""  #: Id of the table. Empty in a cluster without masters, where the name identifies the table.
    at: int | None = None  #: Hybrid timestamp of the snapshot of all parts, if the scan has a given time.
    since: int | None = None  #: Of a diff: hybrid timestamp above which entries count as changes.

    def to_bytes(self) -> bytes:
        """Return the token as bytes, with a checksum in front."""
        data = msgspec.msgpack.encode(self)
        return crc32(data).to_bytes(_SUM_BYTES, "big") + data

    @classmethod
    def from_bytes(cls, data: bytes) -> ScanToken:
        """Return the token of the bytes that :meth:`to_bytes` returned.

        Raises:
            BadToken: the bytes are not a token, were changed, or are of another version.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise BadToken(f"expected the bytes of a scan token, not {type(data).__name__} {data!r:.60}")
        checksum, data = bytes(data[:_SUM_BYTES]), bytes(data[_SUM_BYTES:])
        if checksum != crc32(data).to_bytes(_SUM_BYTES, "big"):
            fact = "not a scan token: its checksum is wrong, so it was changed or cut in transit"
            raise BadToken(f"{fact}, or made by an older release; make a new one")
        try:
            token = _DECODER.decode(data)
        except (ValueError, RecursionError) as error:
            raise BadToken(f"not a scan token: {error}") from error
        if token.version != _TOKEN_VERSION:
            fact = f"the scan token has version {token.version}, and this release reads version {_TOKEN_VERSION}"
            raise BadToken(f"{fact}; make a new one")
        return token

    def check(self, table: str, table_id: str, schema: Schema, tablets: Container[TabletId]) -> None:
        """Check that the token is of a table, which is given by its name, id, schema and tablets.

        Raises:
            BadToken: the token is of another table.
            SchemaMismatch: a column that the token reads was dropped.
        """
        try:
            token_schema = Schema.from_bytes(self.schema)
        except Corrupt as error:
            raise BadToken(f"not a scan token: {error}") from error
        key = [(c.name, c.type) for c in token_schema.key_layout.columns]
        by_id = bool(self.table_id and table_id)
        if by_id and self.table_id != table_id:
            fact = f"the token is of table {self.table!r}"
            fact += ", which was dropped or renamed since" if self.table == table else ""
            raise BadToken(f"{fact}; this is another table, called {table!r}: make a new token of it")
        if not by_id and self.table != table:
            raise BadToken(f"the token is of table {self.table!r}, this is {table!r}")
        if not by_id:
            unknown = self.unknown_tablets(tablets)
            if unknown or key != [(c.name, c.type) for c in schema.key_layout.columns]:
                what = f"tablet {unknown[0]!r}" if unknown else "another key"
                raise BadToken(f"the token is of another table of the name {table!r}: it has {what}; make a new one")
        check_columns(self.spec, token_schema, schema)

    @property
    def tablet_ids(self) -> tuple[TabletId, ...]:
        """Ids of the tablets that the token reads."""
        return tuple(part.tablet_id for part in self.parts or ())

    def unknown_tablets(self, tablets: Container[TabletId]) -> tuple[TabletId, ...]:
        """Return the tablets that the token reads and that are not among ``tablets``."""
        return tuple(one for one in self.tablet_ids if one not in tablets)


def checked_token(token: ScanToken) -> ScanToken:
    """Return the argument if it is a token; ``BadToken``: it is something else, such as the bytes of a token."""
    if not isinstance(token, ScanToken):
        raise BadToken(f"expected a scan token, not {type(token).__name__}; ScanToken.from_bytes reads bytes")
    return token


def check_columns(spec: ScanSpec, then: Schema, now: Schema) -> None:
    """Check that a table still has the columns of a scan: ``then`` is the scan's schema, ``now`` the table's.

    Raises:
        SchemaMismatch: a column of the scan was dropped.
    """
    for column_id in (*(spec.columns or ()), *(predicate.column for predicate in spec.predicates)):
        if column_id not in now.by_id:
            gone, known = then.by_id.get(column_id), ", ".join(now.by_name)
            name = gone.name if gone else f"id {column_id}"
            raise SchemaMismatch(f"column {name!r} was dropped from the table; it has: {known}")


_DECODER = msgspec.msgpack.Decoder(ScanToken)
