"""The batcher: one entry of many requests, and rows that do not fit."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stelae.rows.batcher import LAYOUTS_MAX, OP_BYTES_MAX, Batcher
from stelae.rows.limits import DEFAULTS, RANGES, LimitSettings
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.rows.row_checks import ERROR_DETAILS_MAX
from stelae.spi.errors import CallerError, SchemaMismatch, TooLarge
from stelae.spi.ids import ClientId
from stelae.spi.payload import WritePayload, decode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, RowCode, SequenceRange, digests_of

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "name", "type": "string", "nullable": True},
            {"name": "count", "type": "int32", "default": 7},
            {"name": "price", "type": "decimal(6,2)", "nullable": True},
            {"name": "must", "type": "bool"},
        ],
        "key": ["id"],
    }
)
ALL = (1, 2, 3, 4, 5)


class Requests:
    """Adds operations to a batcher, each as a sequence range of its own."""

    def __init__(
        self, schema: Schema = SCHEMA, key_bytes_max: int | None = None, limits: LimitSettings = DEFAULTS
    ) -> None:
        self.batcher = Batcher(schema, key_bytes_max, limits)
        self.sequence = 0

    def add(
        self,
        kind: OpKind,
        rows: list[tuple[Any, ...]] | bytes,
        columns: tuple[int, ...] | None = None,
        client: str = "c",
        first_incomplete: int = 1,
    ) -> None:
        self.sequence += 1
        (run,) = sequence_ranges_of([(self.sequence, operation(kind, rows, columns))])
        self.add_run(run, client, first_incomplete)

    def add_run(self, run: SequenceRange, client: str = "c", first_incomplete: int = 1) -> None:
        token = f"token {run.first_sequence}"
        self.batcher.add(ClientId(client), first_incomplete, run, digests_of(run), token)

    def one(self) -> WritePayload:
        ((body, tokens),) = self.batcher.build()
        payload = decode_payload(body)
        assert tokens == [f"token {r.first_sequence}" for r in payload.sequences]
        return payload


def row(key: Any, name: Any = "n") -> tuple[Any, ...]:
    return (key, name, 1, "1.50", True)


def rows_of(payload: WritePayload) -> list[tuple[Any, ...]]:
    return [row for group in payload.groups for row in group.rows(SCHEMA).to_rows()]


def test_nothing_taken_builds_nothing() -> None:
    assert Batcher(SCHEMA).build() == []


def test_requests_of_many_clients_share_one_batch() -> None:
    requests = Requests()
    requests.add(OpKind.INSERT, [row(1)], client="a", first_incomplete=1)
    requests.add(OpKind.INSERT, [row(2), row(3)], client="b", first_incomplete=2)
    requests.add(OpKind.INSERT, [row(4)], client="a", first_incomplete=3)
    assert len(requests.batcher) == 3
    payload = requests.one()
    assert [(c.client_id, c.first_incomplete) for c in payload.clients] == [("a", 3), ("b", 2)]
    assert [(r.client, r.first_sequence, r.row_counts) for r in payload.sequences] == [
        (0, 1, (1,)),
        (1, 2, (2,)),
        (0, 3, (1,)),
    ]
    assert [g.row_count for g in payload.groups] == [4]
    assert [r[0] for r in rows_of(payload)] == [1, 2, 3, 4]
    assert len(requests.batcher) == 0


def test_order_is_kept_when_kinds_and_columns_change() -> None:
    requests = Requests()
    requests.add(OpKind.INSERT, [row(1)])
    requests.add(OpKind.DELETE, [(1,)])
    requests.add(OpKind.DELETE, [(2,)], (1,))
    requests.add(OpKind.UPDATE, [(1, "x")], (1, 2))
    requests.add(OpKind.UPDATE, [("y", 1)], (2, 1))
    requests.add(OpKind.INSERT, [row(2)])
    groups = requests.one().groups
    assert [(g.kind.name, g.columns, g.row_count) for g in groups] == [
        ("INSERT", None, 1),
        ("DELETE", (1,), 2),
        ("UPDATE", (1, 2), 1),
        ("UPDATE", (2, 1), 1),
        ("INSERT", None, 1),
    ]


def test_bad_rows_become_errors_of_their_own_request_and_the_rest_stands() -> None:
    requests = Requests()
    requests.add(OpKind.INSERT, [row(1), row("two"), row(3), row(4)[:4]], client="a")
    requests.add(OpKind.INSERT, [row(5), row(6)], client="b")
    requests.add(OpKind.INSERT, [row(None), row(2**63)], client="c")
    requests.add(OpKind.INSERT, [row(7, b"bytes"), row(8)], client="d")
    payload = requests.one()
    assert [r[0] for r in rows_of(payload)] == [1, 3, 5, 6, 8]
    assert [r.row_counts for r in payload.sequences] == [(2,), (2,), (0,), (1,)]
    errors = [[(e.row, e.code, e.detail) for _, e in r.errors] for r in payload.sequences]
    bad = RowCode.BAD_VALUE
    assert errors == [
        [(1, bad, "column 'id': expected int64, got str 'two'"), (3, bad, "expected 5 values, got 4")],
        [],
        [
            (0, bad, "column 'id': expected int64, got null"),
            (1, bad, f"column 'id': expected int64, got int {1 << 63}; int64 goes from {-1 << 63} to {(1 << 63) - 1}"),
        ],
        [(0, bad, "column 'name': expected string or null, got bytes b'bytes'")],
    ]


def test_bad_rows_within_a_run_become_errors_of_their_own_operation() -> None:
    requests = Requests()
    inserts = [[row(1)], [row("x"), row(2)], [], [row(3), row(4), row(None)], [row(5)]]
    (run,) = sequence_ranges_of((n, operation(OpKind.INSERT, rows)) for n, rows in enumerate(inserts, start=8))
    requests.add(OpKind.INSERT, [row("y")])
    requests.add_run(run, "other")
    payload = requests.one()
    assert [r[0] for r in rows_of(payload)] == [1, 2, 3, 4, 5]
    assert [(r.first_sequence, r.row_counts) for r in payload.sequences] == [(1, (0,)), (8, (1, 1, 0, 2, 1))]
    assert [[(place, e.row) for place, e in r.errors] for r in payload.sequences] == [[(0, 0)], [(1, 0), (3, 2)]]


def test_a_run_above_the_limit_of_one_operation_is_left_to_be_tried_one_by_one() -> None:
    half = [row(1, "x" * (OP_BYTES_MAX // 2))]
    (run,) = sequence_ranges_of((n, operation(OpKind.INSERT, half)) for n in (1, 2))
    requests = Requests()
    with pytest.raises(TooLarge):
        requests.add_run(run)
    assert len(requests.batcher) == 0


def test_a_request_whose_rows_are_all_bad_is_recorded_without_rows() -> None:
    requests = Requests()
    requests.add(OpKind.INSERT, [row("x")])
    payload = requests.one()
    assert payload.groups == ()
    assert [(r.row_counts, len(r.errors)) for r in payload.sequences] == [((0,), 1)]


def test_a_request_without_rows_is_recorded() -> None:
    requests = Requests()
    requests.add(OpKind.INSERT, [])
    payload = requests.one()
    assert (payload.groups, [r.row_counts for r in payload.sequences]) == ((), [(0,)])


def test_only_the_first_errors_come_with_words() -> None:
    requests = Requests()
    requests.add(OpKind.INSERT, [row("x") for _ in range(100)])
    (run,) = requests.one().sequences
    assert [bool(e.detail) for _, e in run.errors] == [True] * ERROR_DETAILS_MAX + [False] * 84


def test_words_are_for_the_first_errors_of_a_payload_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stelae.rows.batcher.PAYLOAD_DETAILS_MAX", 5)
    requests = Requests()
    for _ in range(4):
        requests.add(OpKind.INSERT, [row("x"), row("y")])
    assert [[bool(e.detail) for _, e in run.errors] for run in requests.one().sequences] == [
        [True, True],
        [True, True],
        [True, False],
        [False, False],
    ]


def test_operations_without_rows_fill_a_payload_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stelae.rows.batcher.PAYLOAD_BYTES_MAX", 1000)
    requests = Requests()
    for _ in range(100):
        requests.add(OpKind.INSERT, [])
    assert len(requests.batcher.build()) > 4


def test_column_subsets_that_nobody_uses_any_more_make_room() -> None:
    requests = Requests()
    plain = schema_from_plain({"columns": [{"name": f"c{n}", "type": "int8"} for n in range(80)], "key": ["c0"]})
    requests.batcher = Batcher(plain)
    for column in range(2, 80):
        requests.add(OpKind.UPDATE, [(1, 2)], (1, column))
    assert len(requests.batcher._layouts) == LAYOUTS_MAX
    assert (OpKind.UPDATE, (1, 79)) in requests.batcher._layouts


def test_arrow_rows_are_passed_on_untouched() -> None:
    data = RowBatch.from_equal_rows(SCHEMA.layout, [row(n) for n in range(100)]).to_ipc()
    requests = Requests()
    requests.add(OpKind.INSERT, [row(500)])
    requests.add(OpKind.INSERT, data)
    requests.add(OpKind.INSERT, [row(501)])
    payload = requests.one()
    assert [bytes(g.body) == data for g in payload.groups] == [False, True, False]
    assert [r.row_counts for r in payload.sequences] == [(1,), (100,), (1,)]
    assert [r[0] for r in rows_of(payload)] == [500, *range(100), 501]


def test_nulls_in_arrow_rows_become_errors_where_none_may_be() -> None:
    plain = schema_to_plain(SCHEMA)
    plain["columns"][4]["nullable"] = True
    loose = schema_from_plain(plain)
    rows = [(n, None, 1, None, None if n in (1, 3) else True) for n in range(5)]
    requests = Requests()
    requests.add(OpKind.UPSERT, RowBatch.from_equal_rows(loose.layout, rows).to_ipc())
    payload = requests.one()
    assert [r[0] for r in rows_of(payload)] == [0, 2, 4]
    (run,) = payload.sequences
    assert [(e.row, e.detail) for _, e in run.errors] == [
        (1, "column 'must': expected bool, got null"),
        (3, "column 'must': expected bool, got null"),
    ]


@pytest.mark.parametrize("kind", [OpKind.INSERT, OpKind.DELETE])
@pytest.mark.parametrize("data", [b"", b"arrow?", b"\xff\xff\xff\xff" + bytes(60)])
def test_bytes_that_are_no_arrow_rows_are_refused(kind: OpKind, data: bytes) -> None:
    requests = Requests()
    with pytest.raises(SchemaMismatch):
        requests.add(kind, data)
    assert requests.batcher.build() == []


@pytest.mark.parametrize(
    ("kind", "columns", "says"),
    [
        (OpKind.INSERT, (2, 5), "'id'"),
        (OpKind.INSERT, (1, 2), "'must'"),
        (OpKind.UPSERT, (1,), "'must'"),
        (OpKind.INSERT_IGNORE, (1,), "'must'"),
        (OpKind.UPDATE, (2, 3), "'id'"),
        (OpKind.DELETE, (2,), "'id'"),
        (OpKind.DELETE, (1, 2), "no others"),
        (OpKind.DELETE_IGNORE, ALL, "no others"),
        (OpKind.UPDATE, (1, 99), "99"),
        (OpKind.UPDATE, (1, 1), "distinct"),
        (OpKind.UPDATE, (), "'id'"),
    ],
)
def test_columns_that_do_not_fit_the_kind_are_refused(kind: OpKind, columns: tuple[int, ...], says: str) -> None:
    requests = Requests()
    with pytest.raises(SchemaMismatch, match=says):
        requests.add(kind, [(1,)], columns)
    assert len(requests.batcher) == 0


def test_malformed_operations_are_refused() -> None:
    with pytest.raises(CallerError):
        Requests().add_run(SequenceRange(1, OpKind.INSERT, None, [msgspec.Raw(b"\xc1")]))


def test_an_operation_above_the_limit_is_refused_with_both_sizes() -> None:
    requests = Requests()
    with pytest.raises(TooLarge) as caught:
        requests.add(OpKind.INSERT, [row(1, "x" * OP_BYTES_MAX)])
    assert caught.value.size_bytes > caught.value.size_bytes_max == OP_BYTES_MAX
    assert len(requests.batcher) == 0


def test_what_is_too_much_for_one_entry_becomes_several_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stelae.rows.batcher.PAYLOAD_BYTES_MAX", 400)
    requests = Requests()
    for number in range(30):
        requests.add(OpKind.INSERT, [row(number)], client=f"c{number % 3}")
    built = requests.batcher.build()
    assert len(built) > 3
    payloads = [decode_payload(body) for body, _ in built]
    assert [r[0] for payload in payloads for r in rows_of(payload)] == [*range(30)]
    assert [t for _, tokens in built for t in tokens] == [f"token {n}" for n in range(1, 31)]
    for payload in payloads:
        owners = [payload.clients[r.client].client_id for r in payload.sequences]
        assert owners == [f"c{(r.first_sequence - 1) % 3}" for r in payload.sequences]


NAMED = schema_from_plain(
    {
        "columns": [
            {"name": "name", "type": "string"},
            {"name": "part", "type": "binary"},
            {"name": "text", "type": "string", "nullable": True},
        ],
        "key": ["name", "part"],
    }
)
in_both_forms = pytest.mark.parametrize("arrow", [False, True], ids=["rows", "arrow"])


def taken(
    rows: list[tuple[Any, ...]], arrow: bool, key_bytes_max: int | None = None, limits: LimitSettings = DEFAULTS
) -> tuple[list[Any], list[tuple[int, str]]]:
    """The first cells of the rows that the batcher takes, and the errors of the others."""
    requests = Requests(NAMED, key_bytes_max, limits)
    requests.add(OpKind.UPSERT, [("first", b"", None)])
    data = RowBatch.from_equal_rows(NAMED.layout, rows).to_ipc() if arrow else rows
    requests.add(OpKind.UPSERT, data)
    payload = requests.one()
    found = [row[0] for group in payload.groups for row in group.rows(NAMED).to_rows()]
    first, mine = payload.sequences
    assert (first.row_counts, first.errors, mine.row_counts) == ((1,), (), (len(found) - 1,))
    assert all(e.code is RowCode.BAD_VALUE for _, e in mine.errors)
    return found[1:], [(e.row, e.detail) for _, e in mine.errors]


@in_both_forms
def test_a_cell_above_its_limit_is_a_row_error_with_both_sizes(arrow: bool) -> None:
    most = "x" * DEFAULTS.cell_bytes_max
    rows = [("a", b"", most), ("b", b"", most + "x"), ("c", b"", None), ("d", b"", "\u00e9" * 40_000)]
    assert taken(rows, arrow) == (
        ["a", "c"],
        [
            (1, "column 'text' has 65537 bytes; at most 65536 are accepted (cell_bytes_max in [limits])"),
            (3, "column 'text' has 80000 bytes; at most 65536 are accepted (cell_bytes_max in [limits])"),
        ],
    )


@in_both_forms
def test_a_key_above_its_limit_once_encoded_is_a_row_error_with_both_sizes(arrow: bool) -> None:
    fits = "k" * (DEFAULTS.key_bytes_max - 2)
    rows = [(fits, b"", None), (fits, b"x", None), ("\0" * (DEFAULTS.key_bytes_max // 2), b"", None)]
    says = "the encoded key has 1638{} bytes; at most 16384 are accepted (key_bytes_max in [limits])"
    assert taken(rows, arrow) == ([fits], [(1, says.format(5)), (2, says.format(6))])


@in_both_forms
def test_many_keys_that_are_long_together_are_all_taken(arrow: bool) -> None:
    rows = [(f"{n:0200}", b"", "text" * 100) for n in range(1000)]
    assert taken(rows, arrow) == ([row[0] for row in rows], [])


@in_both_forms
def test_a_store_that_takes_shorter_keys_lowers_the_limit(arrow: bool) -> None:
    rows = [("k" * 96, b"22", None), ("k" * 96, b"333", None)]
    says = "the encoded key has 101 bytes; at most 100 are accepted (of its store)"
    assert taken(rows, arrow, 100) == (["k" * 96], [(1, says)])


def test_a_store_that_takes_longer_keys_does_not_raise_the_limit() -> None:
    assert taken([("k" * DEFAULTS.key_bytes_max, b"", None)], False, 1 << 30)[0] == []


@in_both_forms
def test_cells_and_keys_are_held_to_what_the_node_is_set_to_not_to_what_is_usual(arrow: bool) -> None:
    more = LimitSettings(cell_bytes_max=100 << 10, key_bytes_max=32 << 10)
    large = [("k" * (20 << 10), b"", "x" * (100 << 10)), ("b", b"", "x" * ((100 << 10) + 1))]
    says = "column 'text' has 102401 bytes; at most 102400 are accepted (cell_bytes_max in [limits])"
    assert taken(large, arrow, None, more) == ([large[0][0]], [(1, says)])
    less = LimitSettings(cell_bytes_max=64, key_bytes_max=128)
    small = [("a", b"", "x" * 64), ("b", b"", "x" * 65), ("k" * 64, b"p" * 64, None), ("c", b"", None)]
    assert taken(small, arrow, None, less) == (
        ["a", "c"],
        [
            (1, "column 'text' has 65 bytes; at most 64 are accepted (cell_bytes_max in [limits])"),
            (2, "the encoded key has 130 bytes; at most 128 are accepted (key_bytes_max in [limits])"),
        ],
    )


DATED = schema_from_plain(
    {
        "columns": [
            {"name": "at", "type": "timestamp"},
            {"name": "day", "type": "date", "nullable": True},
            {"name": "share", "type": "decimal(3,1)", "nullable": True},
        ],
        "key": ["at"],
    }
)


@pytest.mark.parametrize("columns", [(1, 2), None], ids=["read by type", "read by value"])
@pytest.mark.parametrize("arrow", [False, True], ids=["rows", "arrow"])
def test_a_date_or_time_that_no_calendar_has_is_a_row_error_with_the_range(
    arrow: bool, columns: tuple[int, ...] | None
) -> None:
    """They were stored, and nothing that reads rows into Python could show them, or their neighbours, again."""
    (first, last), (least, greatest) = RANGES["timestamp"], RANGES["date"]
    rows = [(first, least), (first - 1, 0), (last, greatest), (1, None), (2, greatest + 1), (last + 1, least - 1)]
    given = rows if columns else [(*row, None) for row in rows]
    requests = Requests(DATED)
    data = RowBatch.from_equal_rows(DATED.project(columns), given).to_ipc() if arrow else given
    requests.add(OpKind.UPSERT, data, columns)
    payload = requests.one()
    assert [row[0] for row in payload.groups[0].rows(DATED).to_rows()] == [first, last, 1]
    goes = "0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999"
    assert [(error.row, error.detail) for _, error in payload.sequences[0].errors] == [
        (1, f"column 'at': expected timestamp, got int {first - 1}; timestamp goes from {goes}"),
        (4, f"column 'day': expected date or null, got int {greatest + 1}; date goes from 0001-01-01 to 9999-12-31"),
        (5, f"column 'at': expected timestamp, got int {last + 1}; timestamp goes from {goes}"),
    ]


def test_a_row_that_does_not_fit_and_one_that_is_too_large_keep_their_places() -> None:
    rows = [("a", b"", 1), ("b", b"", "x" * 70_000), ("c", b"", None), (None, b"", None)]
    found, errors = taken(rows, False)
    assert found == ["c"]
    assert [(row, detail.split(":")[0][:20]) for row, detail in errors] == [
        (0, "column 'text'"),
        (1, "column 'text' has 70"),
        (3, "column 'name'"),
    ]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_arrow_that_would_expand_beyond_the_limit_is_refused_with_both_sizes(codec: str) -> None:
    values = pa.array(range(5_000_000), pa.int64())
    requests = Requests(schema_from_plain(LONG))
    small = compressed(pa.record_batch([values.slice(0, 1000)], ["id"]), codec)
    requests.add(OpKind.INSERT, small)
    assert requests.one().row_count == 1000
    bomb = compressed(pa.record_batch([pa.array([7] * 5_000_000)], ["id"]), codec)
    assert len(bomb) < 2 << 20
    with pytest.raises(TooLarge) as caught:
        requests.add(OpKind.INSERT, bomb)
    assert caught.value.size_bytes >= 40_000_000 > caught.value.size_bytes_max == OP_BYTES_MAX
    assert len(requests.batcher) == 0


def test_arrow_with_more_rows_than_an_operation_may_have_is_refused_by_size() -> None:
    """Forty million rows of one bit each are five megabytes, and no small thing to apply."""
    schema = schema_from_plain({"columns": [{"name": "k", "type": "bool"}], "key": ["k"]})
    data = pa.record_batch([pa.array([True]).take(pa.array([0] * 1000))], ["k"])
    requests = Requests(schema)
    requests.add(OpKind.UPSERT, data.serialize().to_pybytes())
    bits = pa.Array.from_buffers(pa.bool_(), 40_000_000, [None, pa.py_buffer(bytes(5_000_000))])
    with pytest.raises(TooLarge):
        requests.add(OpKind.UPSERT, pa.record_batch([bits], ["k"]).serialize().to_pybytes())


LONG = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}


def compressed(batch: Any, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    data: bytes = reader.read_next_message().serialize().to_pybytes()
    return data
