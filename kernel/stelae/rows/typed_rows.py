"""Rows in row form, read straight into the types of their columns.

Arrow would cut 1.5 to 1, read True as 1.0 and bytes as text, so types are looked at before values become Arrow. The
decoder can do that while it reads, at no price; only what does not fit is read again without types, by whoever has to
say which value it was."""

import types
from typing import Annotated, Any, Union

import msgspec

from stelae.rows.limits import RANGES
from stelae.rows.operations import Rows, check_rows
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import MALFORMED, RowBatch
from stelae.spi.schema import Column, Layout
from stelae.spi.write import SequenceRange

_ENCODER = msgspec.msgpack.Encoder()

# Only types that the decoder reads as nothing else: not float (which Arrow must bound) or decimal (which are texts).
_READ_AS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", *RANGES), (int,)),
    "double": (float, int),  # an integer that no double holds exactly is for Arrow to refuse
    "bool": (bool,),
    "string": (str,),
    "binary": (bytes,),
}


class TypedRows:
    """Reads rows of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._decoder: msgspec.msgpack.Decoder[list[Rows]] | None = None
        if all(column.type in _READ_AS for column in layout.columns):
            row = types.GenericAlias(tuple, tuple(_type_of(column) for column in layout.columns))
            self._decoder = msgspec.msgpack.Decoder(list[list[row]])  # type: ignore[valid-type]

    def decode(self, run: SequenceRange) -> list[Rows] | None:
        """Return the rows of each operation of a run, or ``None`` if some value is of another type, or it has none.

        ``CallerError``: too many rows for the row form."""
        if self._decoder is None:
            return None
        try:
            return check_rows(self._decoder.decode(_ENCODER.encode(run.ops)))
        except (ValueError, RecursionError):
            return None

    def build(self, rows: Rows) -> RowBatch:
        """Build a batch of rows that ``decode`` returned; ``SchemaMismatch``: a value is out of range."""
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
