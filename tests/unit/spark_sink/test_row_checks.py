"""How the files of a backup are read."""

from __future__ import annotations

from stelae_spark_sink.backup.row_checks import literal_path


def test_a_path_with_brackets_is_no_pattern() -> None:
    assert literal_path("file:/a b/c[1]/{x,y}?*") == "file:/a b/c\\[1\\]/\\{x,y\\}\\?\\*"
    assert (
        literal_path("s3a://bucket/readings.4f1d/rows/part-0.parquet")
        == "s3a://bucket/readings.4f1d/rows/part-0.parquet"
    )
