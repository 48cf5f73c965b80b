"""The functions of ``stelae.spark`` that refuse a frame before they connect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from stelae.spark import create_table_from
from stelae.spi.errors import SchemaMismatch
from tests.unit.spark_sink.conftest import MASTERS


@pytest.mark.parametrize(
    ("names", "key", "words"),
    [
        (("id", "day", "id"), "id", "the frame has several columns 'id'; rename one of them"),
        (("id", "day"), ["id", "days"], "the frame has no key column 'days'; it has: id, day"),
    ],
)
def test_a_frame_whose_columns_make_no_table_is_refused(names: tuple[str, ...], key: Any, words: str) -> None:
    """Of two columns with one name, one was left out."""
    schema = StructType([StructField(name, LongType()) for name in names])
    frame: Any = SimpleNamespace(schema=schema, columns=[*names])
    with pytest.raises(SchemaMismatch, match=words):
        create_table_from(frame, MASTERS, "readings", key=key, timeout_s=0.1)
