"""The batcher: what all clients asked of a tablet in one turn becomes one log entry.

Rows of consecutive operations of one kind are built into one Arrow batch, column by column: a row
that shares a batch costs about a microsecond, one in a batch of its own thirty. A column that does
not fit the schema as a whole is searched for the rows at fault; they leave the batch and become
row errors of their operation, and nobody else's rows notice. Operations that arrive as Arrow are
checked and passed on untouched."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgspec

from stelae.rows.batch_building import describe_misfit, misfits
from stelae.rows.declared_size import check_declared_size
from stelae.rows.keys import encode_keys
from stelae.rows.limits import DEFAULTS, RANGES, LimitSettings, out_of_range
from stelae.rows.operations import decode_rows
from stelae.rows.schema_change import check_change
from stelae.rows.typed_rows import TypedRows
from stelae.spi.errors import Corrupt, SchemaMismatch, TooLarge
from stelae.spi.ids import ClientId
from stelae.spi.log import ENTRY_BYTES_MAX
from stelae.spi.payload import OpGroup, PayloadClient, PayloadSequenceRange, WritePayload, encode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.write import OpKind, RowCode, RowError, SequenceRange

# Sizes are estimated in Arrow. A payload that is all but full and one more operation fit an entry.
OP_BYTES_MAX = ENTRY_BYTES_MAX // 2  #: Largest single operation.
PAYLOAD_BYTES_MAX = ENTRY_BYTES_MAX // 4  #: From here another payload is begun.
ERROR_DETAILS_MAX = 16  #: Row errors of an operation that come with words, not only a code.
PAYLOAD_DETAILS_MAX = 4096  #: The same of a payload: words stand in the log, in results and in superblocks.
RUN_BYTES, OP_BYTES = 32, 16  #: What a run and each of its operations take beside their rows.
LAYOUTS_MAX = 64  #: Most column subsets whose check is remembered; clients may name any number.

_NEEDS_WHOLE_ROW = frozenset({OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE})
_KEY_ONLY = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})


Outside: TypeAlias = Callable[[RowBatch], Mapping[int, str]]
"""Says which rows of a batch do not belong to the tablet, and why."""

_Bad: TypeAlias = dict[int, tuple[RowCode, str]]
"""Rows at fault, by place."""


class _Most(NamedTuple):
    """A limit in bytes, and whose it is."""

    size_bytes: int
    whose: str


class _Part(msgspec.Struct):
    """Consecutive rows of one kind: to be built, or one ``group`` that is ready; whose, from run ``first_asked`` on."""

    kind: OpKind
    columns: tuple[int, ...] | None
    layout: Layout
    first_asked: int
    rows: list[tuple[Any, ...]]
    typed: TypedRows | None = None  #: What read the rows, if they are of their columns' types.
    group: OpGroup | None = None


class _Draft:
    """A payload in the making. Its runs own as many rows as were sent until rows prove bad."""

    def __init__(self) -> None:
        self.clients: dict[ClientId, list[int]] = {}
        """Number within the payload and highest ``first_incomplete`` of each client."""
        self.asked: list[PayloadSequenceRange] = []
        self.tokens: list[Any] = []
        self.parts: list[_Part] = []
        self.size_bytes = 0
        self.details = PAYLOAD_DETAILS_MAX

    def ask(self, client_id: ClientId, first_incomplete: int, *fields: Any) -> None:
        client = self.clients.setdefault(client_id, [len(self.clients), first_incomplete])
        client[1] = max(client[1], first_incomplete)
        self.asked.append(PayloadSequenceRange(client[0], *fields))

    def add_rows(
        self, kind: OpKind, columns: tuple[int, ...] | None, layout: Layout, rows: list[Any], typed: TypedRows | None
    ) -> None:
        last = self.parts[-1] if self.parts else None
        if last and last.kind is kind and last.columns == columns and last.group is None:
            last.rows += rows
            last.typed = typed and last.typed
        else:
            self.parts.append(_Part(kind, columns, layout, len(self.asked), rows, typed))


class Batcher:
    """Collects operations for one tablet and builds payloads. Pure; used on the event loop.

    Args:
        schema: of the rows.
        key_bytes_max: of encoded keys, where the store takes no longer ones.
        limits: of this node. They hold for what comes in here; what is in the log was let in, and is applied.
        bounds: the tablet's own rows under a schema; ``None``: it takes all. They hold as the limits do."""

    def __init__(
        self,
        schema: Schema,
        key_bytes_max: int | None = None,
        limits: LimitSettings = DEFAULTS,
        bounds: Callable[[Schema], Outside] | None = None,
    ) -> None:
        self.schema = schema
        self._cell_max = _Most(limits.cell_bytes_max, "cell_bytes_max in [limits]")
        self._key_max = _Most(limits.key_bytes_max, "key_bytes_max in [limits]")
        if key_bytes_max is not None and key_bytes_max < limits.key_bytes_max:
            self._key_max = _Most(key_bytes_max, "of its store")
        self._bounds = bounds
        self._outside = bounds(schema) if bounds else None
        self._drafts = [_Draft()]
        self._built: list[tuple[bytes, Sequence[Any]]] = []
        self._layouts: dict[tuple[OpKind, tuple[int, ...] | None], tuple[Layout, TypedRows]] = {}

    def __len__(self) -> int:
        return sum(len(draft.asked) for draft in self._drafts) + sum(len(tokens) for _, tokens in self._built)

    def check_change(self, schema: Schema) -> None:
        """``SchemaMismatch``: rows of the present schema cannot be had under this one, or it is not the next."""
        check_change(self.schema, schema)

    def change_schema(self, schema: Schema) -> None:
        """Check rows against another schema from now on; what was taken before is built under its own."""
        self._built = self.build()
        self._layouts.clear()
        self.schema = schema
        self._outside = self._bounds(schema) if self._bounds else None

    def add(
        self, client_id: ClientId, first_incomplete: int, run: SequenceRange, digests: tuple[int, ...], token: Any
    ) -> None:
        """Take a run of operations; ``token`` comes back with the payload that holds it.

        ``CallerError``, and nothing is taken: malformed, too large, or of the wrong columns."""
        kind, columns = run.kind, run.columns
        if columns is None and kind in _KEY_ONLY:
            columns = self.schema.key
        layout, typed = self._layouts.get((kind, columns)) or self._check_columns(kind, columns)
        fitting = typed.decode(run)
        given = fitting or decode_rows(run)
        errors: tuple[tuple[int, RowError], ...] = ()
        if isinstance(given, bytes):
            batch = _read_arrow(layout, given)
            row_bytes = len(batch) * layout.row_bytes_min
            draft = self._draft(RUN_BYTES + OP_BYTES + max(batch.nbytes, len(given), row_bytes))
            group, unfit = self._check_arrow(kind, columns, batch, given)
            errors = tuple((0, error) for error in unfit)
            draft.parts.append(_Part(kind, columns, layout, len(draft.asked), [], group=group))
            counts: tuple[int, ...] = (group.row_count,)
        else:
            counts = tuple(map(len, given))
            own = RUN_BYTES + OP_BYTES * len(counts)
            draft = self._draft(own + sum(map(len, run.ops)) + sum(counts) * layout.row_bytes_min)
            draft.add_rows(kind, columns, layout, [*chain.from_iterable(given)], typed if fitting else None)
        draft.ask(client_id, first_incomplete, run.first_sequence, counts, digests, errors)
        draft.tokens.append(token)

    def build(self) -> list[tuple[bytes, Sequence[Any]]]:
        """Return payloads for everything taken since the last call, in that order; often one. Each is encoded and comes
        with the callers' tokens, in order of its runs."""
        built, self._built = self._built, []
        drafts, self._drafts = self._drafts, [_Draft()]
        return built + [self._build(draft) for draft in drafts if draft.asked]

    def _build(self, draft: _Draft) -> tuple[bytes, Sequence[Any]]:
        groups = [part.group or self._build_rows(part, draft) for part in draft.parts]
        payload = WritePayload(
            self.schema.version,
            tuple(PayloadClient(name, seen) for name, (_, seen) in draft.clients.items()),
            tuple(draft.asked),
            tuple(group for group in groups if group.row_count),
        )
        return encode_payload(payload), draft.tokens

    def _draft(self, size_bytes: int) -> _Draft:
        if size_bytes > OP_BYTES_MAX:
            raise TooLarge("a write operation", size_bytes, OP_BYTES_MAX)  # a run of several is tried one by one
        draft = self._drafts[-1]
        if draft.asked and draft.size_bytes + size_bytes > PAYLOAD_BYTES_MAX:
            draft = _Draft()
            self._drafts.append(draft)
        draft.size_bytes += size_bytes
        return draft

    def _check_columns(self, kind: OpKind, columns: tuple[int, ...] | None) -> tuple[Layout, TypedRows]:
        schema, layout = self.schema, self.schema.project(columns)
        given = set(layout.ids)
        lacking = set(schema.key) - given
        if kind in _NEEDS_WHOLE_ROW:
            lacking |= {c.id for c in schema.columns if c.required} - given
        if lacking:
            names = ", ".join(repr(schema.by_id[i].name) for i in sorted(lacking))
            raise SchemaMismatch(f"{kind.name.lower()} needs values for the columns {names}")
        if kind in _KEY_ONLY and len(given) > len(schema.key):
            raise SchemaMismatch(f"{kind.name.lower()} takes the key columns and no others")
        if len(self._layouts) >= LAYOUTS_MAX:
            del self._layouts[next(iter(self._layouts))]
        found = self._layouts[kind, columns] = layout, TypedRows(layout)
        return found

    def _check_arrow(
        self, kind: OpKind, columns: tuple[int, ...] | None, batch: RowBatch, data: bytes
    ) -> tuple[OpGroup, tuple[RowError, ...]]:
        """The group of an Arrow message; it is re-encoded only when rows must leave it."""
        bad: _Bad = {}
        for column, array in zip(batch.layout.columns, batch.arrow.columns, strict=True):
            if array.null_count and not column.nullable:
                for place, valid in enumerate(array.is_valid().to_pylist()):
                    if not valid:
                        bad.setdefault(place, (RowCode.BAD_VALUE, describe_misfit(column, None)))
        fits = batch.filter([p not in bad for p in range(len(batch))]) if bad else batch
        fits = self._drop_unfit(fits, bad)
        group = OpGroup(kind, columns, len(fits), fits.to_ipc() if bad else data)
        return group, _row_errors(bad)

    def _build_rows(self, part: _Part, draft: _Draft) -> OpGroup:
        """Build the rows of a part into one batch; rows at fault become errors of operations."""
        rows = part.rows
        bad: _Bad = {}
        if not rows:
            return OpGroup(part.kind, part.columns, 0, b"")
        try:
            batch = part.typed.build(rows) if part.typed else RowBatch.from_equal_rows(part.layout, rows)
        except SchemaMismatch:
            bad = _bad_values(_find_bad(part.layout, rows))
            good = [row for place, row in enumerate(rows) if place not in bad]
            batch = RowBatch.from_equal_rows(part.layout, good)
        batch = self._drop_unfit(batch, bad, ranges_known=part.typed is not None)
        if bad:
            _blame(part, draft, bad)
        return OpGroup(part.kind, part.columns, len(batch), batch.to_ipc())

    def _drop_unfit(self, batch: RowBatch, bad: _Bad, *, ranges_known: bool = False) -> RowBatch:
        """Drop rows of another tablet, with a key or a cell above its limit, or a time that there is not.

        The batch lacks ``bad``. ``ranges_known``: they were read as numbers within their ranges."""
        unfit = _bad_values({} if ranges_known else _out_of_range(batch))
        unfit |= _bad_values(_oversized(self.schema, batch, self._key_max, self._cell_max))
        if self._outside is not None:
            for place, why in self._outside(batch).items():
                unfit.setdefault(place, (RowCode.OUTSIDE_PARTITION, why))
        if not unfit:
            return batch
        places = [place for place in range(len(batch) + len(bad)) if place not in bad]
        bad |= {places[place]: why for place, why in unfit.items()}
        return batch.filter([place not in unfit for place in range(len(batch))])


def _read_arrow(layout: Layout, data: bytes) -> RowBatch:
    try:
        check_declared_size(data, "a record batch", OP_BYTES_MAX)
        return RowBatch.from_ipc(layout, data, allow_nulls=True)
    except Corrupt as error:
        raise SchemaMismatch(f"rows in Arrow form do not fit their columns: {error}") from error


def _out_of_range(batch: RowBatch) -> dict[int, str]:
    """Rows with a date or a time beyond those that there are; Arrow and its clients can say more."""
    unfit: dict[int, str] = {}
    for index, column in enumerate(batch.layout.columns):
        if column.type in RANGES:
            places = out_of_range(column, batch.arrow.column(index))
            values = batch.values(index) if places else []
            for place in places:
                unfit.setdefault(place, describe_misfit(column, values[place]))
    return unfit


def _oversized(schema: Schema, batch: RowBatch, key_max: _Most, cell_max: _Most) -> dict[int, str]:
    """Rows above a limit. Looks closer only as the sizes of the batch and of its columns allow."""
    # Escapes at most double a text, which then ends in two bytes; a bit of a bool becomes a byte.
    size_bytes = batch.arrow.get_total_buffer_size()
    if (2 * size_bytes + 3) * len(schema.key) <= key_max.size_bytes and size_bytes <= cell_max.size_bytes:
        return {}
    import pyarrow.compute as pc

    large: dict[int, str] = {}
    key_bytes = 0
    for column, array in zip(batch.layout.columns, batch.arrow.columns, strict=True):
        longest = column.data_type.width_bytes
        is_key = column.id in schema.key
        if column.type in ("string", "binary"):
            longest = array.nbytes
            if longest > cell_max.size_bytes or (is_key and longest > key_max.size_bytes // 4):
                lengths = pc.binary_length(array)
                longest = pc.max(lengths).as_py() or 0
            if longest > cell_max.size_bytes:
                for place, size in enumerate(lengths.to_pylist()):
                    if size is not None and size > cell_max.size_bytes:
                        large.setdefault(place, _too_large(f"column {column.name!r}", size, cell_max))
        if is_key:
            key_bytes += 2 * longest + 2
    if key_bytes > key_max.size_bytes:
        for place, key in enumerate(encode_keys(schema, batch)):
            if len(key) > key_max.size_bytes:
                large[place] = _too_large("the encoded key", len(key), key_max)
    return large


def _too_large(what: str, size_bytes: int, most: _Most) -> str:
    return f"{what} has {size_bytes} bytes; at most {most.size_bytes} are accepted ({most.whose})"


def _blame(part: _Part, draft: _Draft, bad: _Bad) -> None:
    """Move the bad rows of a part from what operations own to their errors."""
    start, number = 0, part.first_asked
    while start < len(part.rows):
        run, counts = draft.asked[number], []
        errors: list[tuple[int, RowError]] = []
        for place, count in enumerate(run.row_counts):
            mine = {row - start: bad[row] for row in range(start, start + count) if row in bad}
            errors += [(place, error) for error in _row_errors(mine, min(ERROR_DETAILS_MAX, draft.details))]
            draft.details = max(0, draft.details - len(mine))
            counts.append(count - len(mine))
            start += count
        if errors:
            draft.asked[number] = msgspec.structs.replace(run, row_counts=tuple(counts), errors=tuple(errors))
        number += 1


def _find_bad(layout: Layout, rows: Sequence[tuple[Any, ...]]) -> dict[int, str]:
    width = len(layout.columns)
    bad = {place: f"expected {width} values, got {len(row)}" for place, row in enumerate(rows) if len(row) != width}
    good = [place for place in range(len(rows)) if place not in bad]
    for index, column in enumerate(layout.columns):
        values = [rows[place][index] for place in good]
        for found in misfits(column, values):
            bad.setdefault(good[found], describe_misfit(column, values[found]))
    return bad


def _bad_values(found: Mapping[int, str]) -> _Bad:
    return {place: (RowCode.BAD_VALUE, text) for place, text in found.items()}


def _row_errors(bad: _Bad, details_max: int = ERROR_DETAILS_MAX) -> tuple[RowError, ...]:
    return tuple(
        RowError(row, bad[row][0], bad[row][1] if number < details_max else "")
        for number, row in enumerate(sorted(bad))
    )
