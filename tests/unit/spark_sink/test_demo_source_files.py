"""The CSV files of ``stelae spark demo``, and the sums that plain Python computes."""

from __future__ import annotations

from pathlib import Path

from pyarrow import csv

from stelae.local.demo_source import CHARACTER_COLUMNS, DemoSource
from stelae_spark_sink.demo.source_files import SCHEMA, SUMS, sums_of, write_files

ROWS = [
    (49, 'DIGIT "ONE", 1', "Nd", "EN", 0, 1.0, ""),
    (65, "LATIN CAPITAL LETTER A", "Lu", "L", 0, None, ""),
    (768, "COMBINING GRAVE ACCENT", "Mn", "NSM", 230, None, ""),
]
SOURCE = DemoSource(name="three", table="characters", columns=CHARACTER_COLUMNS, key=("code_point",), rows=ROWS)


def test_every_row_is_in_one_file_and_a_null_differs_from_an_empty_text(tmp_path: Path) -> None:
    write_files(SOURCE, tmp_path / "files", 2)
    written = sorted((tmp_path / "files").iterdir())
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    read = [tuple(row.values()) for path in written for row in csv.read_csv(path, convert_options=options).to_pylist()]
    assert len(written) == 2
    assert sorted(read) == [tuple(row) for row in ROWS]


def test_the_columns_of_spark_are_those_of_the_source() -> None:
    assert [column.split()[0] for column in SCHEMA.split(", ")] == [column["name"] for column in CHARACTER_COLUMNS]


def test_each_sum_of_spark_has_a_sum_of_python() -> None:
    assert list(sums_of(SOURCE)) == list(SUMS)
    assert list(sums_of(SOURCE).values()) == [3, 882, 58, 230, 1, 3]
