"""Rows in row form, decoded directly into the types of their columns.

Arrow would cut 1.5 to 1, read True as 1.0 and bytes as text. So types must be checked before values become Arrow. The
decoder does that while it reads, without extra cost. Rows that do not fit are decoded again without types, to find the
value at fault."""

import types
from typing import Annotated, Any, Union

import msgspec

from stelae.rows.limits import RANGES
from stelae.rows.operation_encoding import Rows, check_rows
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import MALFORMED, RowBatch
from stelae.spi.schema import Column, Layout
from stelae.spi.write import SequenceRange

_ENCODER = msgspec.msgpack.Encoder()

# Only types that the decoder recognises: not float (whose range Arrow must check), and not decimal (which is text).
_READ_AS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", *RANGES), (int,)),
    "double": (float, int),  # Arrow refuses an integer that is not exact as a double
    "bool": (bool,),
    "string": (str,),
    "binary": (bytes,),
}


class TypedRows:
    """Decodes rows of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._decoder: msgspec.msgpack.Decoder[list[Rows]] | None = None
        if all(column.type in _READ_AS for column in layout.columns):
            row = types.GenericAlias(tuple, tuple(_type_of(column) for column in layout.columns))
            self._decoder = msgspec.msgpack.Decoder(list[list[row]])  # type: ignore[valid-type]

    def decode(self, sequence_range: SequenceRange) -> list[Rows] | None:
        """Return the rows of each operation, or ``None`` if a value has another type, or the layout cannot be decoded
        so.

        ``CallerError``: an operation has too many rows for the row form."""
        if self._decoder is None:
            return None
        try:
            return check_rows(self._decoder.decode(_ENCODER.encode(sequence_range.ops)))
        except (ValueError, RecursionError):
            return None

    def build(self, rows: Rows) -> RowBatch:
        """Build a batch of rows that ``decode`` returned. ``SchemaMismatch``: a value is out of range."""
        import pyarrow as pa

        try:
            struct = pa.array(rows, self._layout.struct)
        except (pa.ArrowException, *MALFORMED) as error:
            raise SchemaMismatch(f"a value does not fit its column: {error}") from error
        return RowBatch(self._layout, pa.RecordBatch.from_struct_array(struct))


def _type_of(column: Column) -> Any:
    kinds: tuple[Any, ...] = _READ_AS[column.type]
    if column.type in RANGES:
        low, high = RANGES[column.type]
        kinds = (Annotated[int, msgspec.Meta(ge=low, le=high)],)
    return Union[*kinds, *((types.NoneType,) if column.nullable else ())]
