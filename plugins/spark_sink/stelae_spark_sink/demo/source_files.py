"""The data of the demo as CSV files, and its sums, computed without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stelae.local.demo_source import DemoSource

SCHEMA = (
    "code_point int, name string, category string, bidirectional string, combining smallint, numeric double, "
    "decomposition string"
)
"""The columns of the files, as Spark writes them."""

SUMS: Mapping[str, str] = {
    "rows": "count(*)",
    "sum of code points": "sum(code_point)",
    "letters in all names": "sum(length(name))",
    "sum of combining classes": "sum(combining)",
    "characters with a number": "count(numeric)",
    "categories": "count(distinct category)",
}
"""What is compared, and how Spark computes it."""


def sums_of(source: DemoSource) -> dict[str, int]:
    """Return the values of ``SUMS`` for the rows of the source."""
    rows = source.rows
    return {
        "rows": len(rows),
        "sum of code points": sum(row[0] for row in rows),
        "letters in all names": sum(len(row[1]) for row in rows),
        "sum of combining classes": sum(row[4] for row in rows),
        "characters with a number": sum(row[5] is not None for row in rows),
        "categories": len({row[2] for row in rows}),
    }


def write_files(source: DemoSource, folder: Path, count: int) -> None:
    """Write the rows into ``count`` CSV files of a new folder. Text is quoted, and a null is an empty cell."""
    import pyarrow as pa
    from pyarrow import csv

    folder.mkdir()
    names = [column["name"] for column in source.columns]
    for number in range(count):
        rows = source.rows[number::count]
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        csv.write_csv(pa.table(columns), folder / f"characters-{number + 1:02}.csv")
