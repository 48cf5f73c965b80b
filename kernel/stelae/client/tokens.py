"""Scan tokens: a part of a scan, ready to be carried out elsewhere, now or later.

They can be pickled, and turned into bytes that are safe to read from anywhere. A token names its table, the tablets it
reads and how far it has come, and fixes the snapshot once one is chosen; it holds no rows and no connection."""

from __future__ import annotations

import msgspec

from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema

_TOKEN_VERSION = 1


class BadToken(CallerError, code="BAD_TOKEN"):
    """Bytes that are no scan token, or a token of another table."""


class TokenPart(msgspec.Struct, frozen=True, array_like=True):
    """What is left to read of one tablet."""

    tablet_id: TabletId
    at: int | None = None  #: Hybrid timestamp of the snapshot; ``None``: chosen by whoever serves the first page.
    after: bytes | None = None  #: Go on behind the row with this encoded key.


class ScanToken(msgspec.Struct, frozen=True, array_like=True):
    """A scan, or a part or the rest of one."""

    addresses: tuple[str, ...]  #: Where to connect.
    table: str
    schema: bytes  #: As it was when the scan was made.
    spec: ScanSpec
    parts: tuple[TokenPart, ...]
    at_least: int | None = None
    version: int = _TOKEN_VERSION

    def to_bytes(self) -> bytes:
        """Return the token as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> ScanToken:
        """Read what :meth:`to_bytes` wrote; ``BadToken``: it is none, or of another version."""
        try:
            token = _DECODER.decode(data)
        except (ValueError, RecursionError) as error:
            raise BadToken(f"not a scan token: {error}") from error
        if token.version != _TOKEN_VERSION:
            raise BadToken(f"a scan token of version {token.version}; this release reads {_TOKEN_VERSION}")
        return token

    def check(self, table: str, schema: Schema, tablets: frozenset[TabletId]) -> None:
        """See that the token is of a table; ``BadToken``: it is not. ``SchemaMismatch``: one of its columns is gone."""
        mine = Schema.from_bytes(self.schema)
        key = [(c.name, c.type) for c in mine.key_layout.columns]
        strangers = [part.tablet_id for part in self.parts if part.tablet_id not in tablets]
        if self.table != table:
            raise BadToken(f"the token is of table {self.table!r}, this is {table!r}")
        if strangers or key != [(c.name, c.type) for c in schema.key_layout.columns]:
            what = f"tablet {strangers[0]!r}" if strangers else "another key"
            raise BadToken(f"the token is of another table of the name {table!r}: it has {what}; make a new one")
        asked = [*(self.spec.columns or ()), *(predicate.column for predicate in self.spec.predicates)]
        for column_id in asked:
            if column_id not in schema.by_id:
                gone = mine.by_id.get(column_id)
                raise dropped_column(gone.name if gone else f"id {column_id}", schema)


def dropped_column(name: str, schema: Schema) -> SchemaMismatch:
    """The error of a scan that asks for a column which the table had once."""
    known = ", ".join(schema.by_name)
    return SchemaMismatch(f"column {name!r} was dropped from the table; it has: {known}")


_DECODER = msgspec.msgpack.Decoder(ScanToken)
