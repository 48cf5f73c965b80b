"""Options of the Spark data source: parsed, checked, and named as users of other connectors may write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stelae.client import to_datetime
from stelae.spi.write import OpKind
from stelae_spark_sink import options
from stelae_spark_sink.foreign_options import FOREIGN
from stelae_spark_sink.options import (
    COLUMNS,
    MASTERS,
    OPERATION,
    OPTIONS,
    TABLE,
    TARGET_PARTITION_BYTES,
    TIMEOUT_S,
    TIMESTAMP_AS_OF,
    WHERE,
    BadOption,
    SourceOptions,
    SparkOption,
    Use,
)

GIVEN = {"masters": "a:1,b:2", "table": "readings"}


def read_options(**more: str) -> SourceOptions:
    return SourceOptions({**GIVEN, **more}, Use.READ)


def test_names_are_read_in_any_case_and_absent_options_have_their_defaults() -> None:
    given = SourceOptions({"MASTERS": " a:1 , b:2", "Table": "readings", "COLumns": "x, y"}, Use.READ)
    assert given[MASTERS] == ("a:1", "b:2")
    assert given[TABLE] == "readings"
    assert given[COLUMNS] == ("x", "y")
    assert given[TARGET_PARTITION_BYTES] == 128 << 20
    assert given[TIMEOUT_S] == 120
    assert given.get(TIMESTAMP_AS_OF) is None


@pytest.mark.parametrize(
    ("text", "found"), [("a,b", ("a", "b")), ('["a,b", "c"]', ("a,b", "c")), (" a ", ("a",)), ('["a"]', ("a",))]
)
def test_columns_are_names_with_commas_or_a_json_list(text: str, found: tuple[str, ...]) -> None:
    assert read_options(columns=text)[COLUMNS] == found


@pytest.mark.parametrize(
    ("text", "found"), [("1048576", 1 << 20), ("128m", 128 << 20), ("1 GiB", 1 << 30), ("2048k", 1 << 21)]
)
def test_sizes_have_units(text: str, found: int) -> None:
    assert read_options(targetPartitionBytes=text)[TARGET_PARTITION_BYTES] == found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-06-01T12:00:00Z", "2026-06-01T12:00:00+00:00"),
        ("2026-06-01 12:00:00.000001+02:00", "2026-06-01T10:00:00.000001+00:00"),
        ("7352005367837212672", "2026-11-17T13:46:25.507132+00:00"),
    ],
)
def test_times_have_a_zone_or_are_the_timestamp_of_a_write(text: str, shown: str) -> None:
    assert to_datetime(read_options(timestampAsOf=text)[TIMESTAMP_AS_OF]).isoformat() == shown


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("masters", "nowhere", "host:port"),
        ("masters", " ", "host:port"),
        ("table", "", "a name"),
        ("columns", "a,a", "each name once"),
        ("columns", "a,,b", "names such as"),
        ("columns", "[1]", "names such as"),
        ("columns", "[a", "names such as"),
        ("timestampAsOf", "2026-06-01T12:00:00", "with a zone"),
        ("timestampAsOf", "yesterday", "with a zone"),
        ("targetPartitionBytes", "0", "bytes"),
        ("targetPartitionBytes", "-1", "bytes"),
        ("targetPartitionBytes", "7k", "bytes from 1m"),
        ("targetPartitionBytes", "2000000t", "bytes"),
        ("targetPartitionBytes", "1.5m", "bytes"),
        ("compression", "zstd", "one of none, lz4"),
        ("timeoutSeconds", "0", "above 0"),
        ("timeoutSeconds", "nan", "above 0"),
        ("timeoutSeconds", "soon", "above 0"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_what_is_expected(name: str, text: str, expected: str) -> None:
    with pytest.raises(BadOption, match=f"option '{name}' is .*expected .*{expected}"):
        SourceOptions({**GIVEN, name: text}, Use.READ)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("column", "did you mean 'columns'"),
        ("timestampasoff", "did you mean 'timestampAsOf'"),
        ("kudu.master", "use 'masters'"),
        ("kudu.table", "use 'table'"),
        ("versionAsOf", "use 'timestampAsOf'"),
        ("as-of-timestamp", "use 'timestampAsOf'"),
        ("path", "use 'table'"),
        ("zzz", "known options: masters, table"),
    ],
)
def test_an_unknown_name_is_refused_with_the_name_to_use(name: str, advice: str) -> None:
    with pytest.raises(BadOption, match=f"unknown option '{name.lower()}': .*{advice}"):
        read_options(**{name: "x"})


@pytest.mark.parametrize("name", ["columns", "where"])
def test_json_that_is_nested_without_end_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match="such as"):
        read_options(**{name: "[" * 200_000})


def test_an_option_of_another_use_is_refused() -> None:
    with pytest.raises(BadOption, match="'timestampAsOf' applies to read, not to write"):
        SourceOptions({**GIVEN, "timestampAsOf": "2026-06-01T12:00:00Z"}, Use.WRITE)
    SourceOptions({**GIVEN, "timestampAsOf": "2026-06-01T12:00:00Z"}, Use.READ, Use.STREAM_READ)


@pytest.mark.parametrize("missing", ["masters", "table"])
def test_a_missing_option_is_named(missing: str) -> None:
    with pytest.raises(BadOption, match=f"the option '{missing}' is missing"):
        SourceOptions({name: text for name, text in GIVEN.items() if name != missing}, Use.READ)


def test_no_options_at_all_are_those_of_a_table_in_sql() -> None:
    with pytest.raises(BadOption, match="CREATE TEMPORARY VIEW"):
        SourceOptions({}, Use.READ)


def test_every_option_is_documented_and_has_a_name_of_its_own() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len({*names}) == len(names)
    assert not {*names} & {*FOREIGN}
    assert all(option.text.endswith(".") and option.uses for option in OPTIONS)
    assert [option.name for option in OPTIONS if option.default is not None and not option.shown_default] == []


def test_names_of_other_connectors_lead_to_options_that_exist() -> None:
    known = {option.name for option in OPTIONS}
    for name, advice in FOREIGN.items():
        assert name == name.lower()
        named = [word for word in advice.split("'")[1::2] if word.isalnum()]
        assert {*named} <= known, name


def test_every_option_of_the_module_is_in_the_table() -> None:
    declared = [value for value in vars(options).values() if isinstance(value, SparkOption)]
    assert declared and sorted(o.name for o in declared) == sorted(o.name for o in OPTIONS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[["a", ">", 1.5], ["b", "is null"]]', (("a", ">", 1.5), ("b", "is null"))),
        ('["a", "in", [1, 2]]', (("a", "in", [1, 2]),)),
        ("[]", ()),
    ],
)
def test_filters_are_json(text: str, found: tuple[object, ...]) -> None:
    assert read_options(where=text)[WHERE] == found


@pytest.mark.parametrize("text", ["a > 1", "{}", '"a"', "[1]", '[["a"]]', '[["a", 1, 2]]', '[["a", "=", 1, 2]]'])
def test_filters_that_are_no_json_list_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="expected filters such as"):
        read_options(where=text)


def write_options(**more: str) -> SourceOptions:
    return SourceOptions({**GIVEN, **more}, Use.WRITE)


@pytest.mark.parametrize("text", ["insert-ignore", "INSERT_IGNORE", " insert_ignore "])
def test_an_operation_is_named_as_in_other_connectors_too(text: str) -> None:
    assert write_options(operation=text)[OPERATION] is OpKind.INSERT_IGNORE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"operation": "merge"}, "expected one of insert, upsert, update, delete"),
        ({"epoch": "-1"}, "an integer from 0"),
        ({"epoch": "1.5"}, "an integer from 0"),
        ({"source": "a\nb"}, "1 to 200 printable characters"),
        ({"epoch": str((1 << 63) - 1)}, r"an integer from 0 to 2\*\*63 - 2"),
        ({"failOnRowErrors": "no"}, "expected true or false"),
        ({"columns": "a"}, "applies to read and readStream, not to write"),
    ],
)
def test_options_of_writes_are_checked(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        write_options(**given)


def test_options_that_spark_takes_for_itself_are_left_alone() -> None:
    given = SourceOptions({**GIVEN, "checkpointLocation": "/tmp/c", "queryName": "q"}, Use.STREAM_WRITE)
    assert given[OPERATION] is OpKind.UPSERT
    with pytest.raises(BadOption, match="did you mean 'checkpointLocation'"):
        SourceOptions({**GIVEN, "checkpointLocatoin": "/tmp/c"}, Use.STREAM_WRITE)
    with pytest.raises(BadOption, match="applies to write, not to writeStream"):
        SourceOptions({**GIVEN, "epoch": "1"}, Use.STREAM_WRITE)


@pytest.mark.parametrize("use", [Use.READ, Use.WRITE, Use.STREAM_READ])
@pytest.mark.parametrize("name", ["checkpointLocation", "queryName"])
def test_options_of_a_query_that_writes_are_refused_elsewhere(name: str, use: Use) -> None:
    """They were ignored: a batch with a checkpoint looked as if it could be continued."""
    with pytest.raises(BadOption, match=f"option '{name}' applies to writeStream, not to {use}: leave it out"):
        SourceOptions({**GIVEN, name: "x"}, use)
    with pytest.raises(BadOption, match=f"option '{name}' applies to writeStream"):
        SourceOptions({**GIVEN, name.upper(): "x"}, Use.READ, Use.STREAM_READ)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("startingTimestamp", "7352005367837212672", 7352005367837212672),
        ("startingTimestamp", '{"version":1}', '{"version":1}'),
        ("readChangeFeed", "TRUE", True),
        ("maxRowsPerTrigger", " 100 ", 100),
    ],
)
def test_options_of_change_feeds_have_the_names_of_other_feeds(name: str, text: str, found: object) -> None:
    given = SourceOptions({**GIVEN, name: text}, Use.STREAM_READ)
    (option,) = [one for one in OPTIONS if one.name == name]
    assert option in given and given[option] == found


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("maxRowsPerTrigger", "0", "expected a whole number from 1"),
        ("maxRowsPerTrigger", "many", "expected a whole number from 1"),
        ("startingTimestamp", "latest", "expected a time with a zone"),
        ("readChangeFeed", "1", "expected true or false"),
        ("endingTimestamp", "7352005367837212672", "'endingTimestamp' applies to read, not to readStream"),
        ("startingVersion", "5", "use 'startingTimestamp'"),
        ("maxFilesPerTrigger", "5", "use 'maxRowsPerTrigger'"),
        ("ignoreDeletes", "true", "filter by _change_type"),
    ],
)
def test_options_of_change_feeds_are_checked(name: str, text: str, words: str) -> None:
    with pytest.raises(BadOption, match=words):
        SourceOptions({**GIVEN, name: text}, Use.STREAM_READ)


def test_the_options_of_kudu_spark_on_its_page_are_those_that_are_refused_with_advice() -> None:
    """Of ``kudu.repartition.sort``, which is on the page, the error named no option of ours."""
    page = Path(__file__).parents[3] / "docs/reference/coming-from-kudu-spark.md"
    listed = {name.lower() for name in re.findall(r"`(kudu\.[\w.]+)`", page.read_text())}
    assert listed == {name for name in FOREIGN if name.startswith("kudu.")}
