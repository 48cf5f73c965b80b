"""Scan tokens: a part of a scan, ready to be carried out elsewhere, now or later.

They can be pickled, and turned into bytes that are safe to read from anywhere. A token names its table, by an id that
outlives every name, the tablets it reads and how far it has come, and fixes the snapshot once one is chosen; it holds
no rows and no connection."""

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
    """Bytes that are no scan token, or a token of another table, or of a part of one that is gone."""


class TokenPart(msgspec.Struct, frozen=True, array_like=True):
    """What is left to read of one tablet."""

    tablet_id: TabletId
    at: int | None = None  #: Hybrid timestamp of the snapshot; ``None``: chosen by whoever serves the first page.
    after: bytes | None = None  #: Go on behind the row with this encoded key.


class ScanToken(msgspec.Struct, frozen=True, array_like=True):
    """A scan, or a part or the rest of one."""

    addresses: tuple[str, ...]  #: Where to connect.
    table: str  #: What it was called; who has its id is found by that.
    schema: bytes  #: As it was when the scan was made.
    spec: ScanSpec
    parts: tuple[TokenPart, ...] | None  #: ``None``: a scan that has not begun; what it reads is found out then.
    at_least: int | None = None
    version: int = _TOKEN_VERSION
    table_id: str = ""  #: Empty without masters: there a table is what its name says.
    at: int | None = None  #: Hybrid timestamp of the snapshot of all parts, if the scan names one.
    since: int | None = None  #: Of a diff: it tells what entries above this time have changed.

    def to_bytes(self) -> bytes:
        """Return the token as bytes: a checksum, and what it says."""
        data = msgspec.msgpack.encode(self)
        return crc32(data).to_bytes(_SUM_BYTES, "big") + data

    @classmethod
    def from_bytes(cls, data: bytes) -> ScanToken:
        """Read what :meth:`to_bytes` wrote; ``BadToken``: it is none, was changed, or is of another version."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise BadToken(f"the bytes of a scan token were expected, not {type(data).__name__} {data!r:.60}")
        said, data = bytes(data[:_SUM_BYTES]), bytes(data[_SUM_BYTES:])
        if said != crc32(data).to_bytes(_SUM_BYTES, "big"):
            fact = "not a scan token: its checksum is wrong, so it was changed or cut on the way"
            raise BadToken(f"{fact}, or made by an older release; make a new one")
        try:
            token = _DECODER.decode(data)
        except (ValueError, RecursionError) as error:
            raise BadToken(f"not a scan token: {error}") from error
        if token.version != _TOKEN_VERSION:
            raise BadToken(f"a scan token of version {token.version}; this release reads {_TOKEN_VERSION}")
        return token

    def check(self, table: str, table_id: str, schema: Schema, tablets: Container[TabletId]) -> None:
        """See that the token is of a table; ``BadToken``: it is not. ``SchemaMismatch``: one of its columns is gone."""
        try:
            mine = Schema.from_bytes(self.schema)
        except Corrupt as error:
            raise BadToken(f"not a scan token: {error}") from error
        key = [(c.name, c.type) for c in mine.key_layout.columns]
        by_id = bool(self.table_id and table_id)
        if by_id and self.table_id != table_id:
            called = f"was called {self.table!r} then" if self.table == table else f"is of table {self.table!r}"
            raise BadToken(f"the token {called}; this is another table, called {table!r}: make a new token of it")
        if not by_id and self.table != table:
            raise BadToken(f"the token is of table {self.table!r}, this is {table!r}")
        if not by_id:
            strangers = self.strangers(tablets)
            if strangers or key != [(c.name, c.type) for c in schema.key_layout.columns]:
                what = f"tablet {strangers[0]!r}" if strangers else "another key"
                raise BadToken(f"the token is of another table of the name {table!r}: it has {what}; make a new one")
        check_columns(self.spec, mine, schema)

    def strangers(self, tablets: Container[TabletId]) -> tuple[TabletId, ...]:
        """The tablets that it reads and that are none of these."""
        return tuple(part.tablet_id for part in self.parts or () if part.tablet_id not in tablets)


def checked_token(token: ScanToken) -> ScanToken:
    """Return what was handed in; ``BadToken``: it is not a token, but its bytes, for instance."""
    if not isinstance(token, ScanToken):
        raise BadToken(f"a scan token was expected, not {type(token).__name__}; ScanToken.from_bytes reads bytes")
    return token


def check_columns(spec: ScanSpec, then: Schema, now: Schema) -> None:
    """``SchemaMismatch``: a scan made for schema ``then`` asks for a column that the table does not have ``now``."""
    for column_id in (*(spec.columns or ()), *(predicate.column for predicate in spec.predicates)):
        if column_id not in now.by_id:
            gone, known = then.by_id.get(column_id), ", ".join(now.by_name)
            name = gone.name if gone else f"id {column_id}"
            raise SchemaMismatch(f"column {name!r} was dropped from the table; it has: {known}")


_DECODER = msgspec.msgpack.Decoder(ScanToken)
