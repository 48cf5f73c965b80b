"""Facts about Spark on which the design of the plugin rests. When PySpark changes one, the design can be better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    GreaterThan,
    InputPartition,
)
from pyspark.sql.types import StructType

from stelae_spark_sink.options import TABLE_PROPERTIES
from stelae_spark_sink.stream_writer import BATCH_ID, QUERY_ID, RUN_ID

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class FilteringReader(DataSourceReader):
    """Reads 0 to 9, and takes ``id > n``."""

    def __init__(self) -> None:
        self.above = -1

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for one in filters:
            if isinstance(one, GreaterThan):
                self.above = one.value
            else:
                yield one

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self.above)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(n,) for n in range(10) if n > partition.value])


class FilteringSource(DataSource):
    """A source that is right by the documentation of ``pushFilters``."""

    @classmethod
    def name(cls) -> str:
        return "filtering"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilteringReader()


class OptionsSource(DataSource):
    """Fails with the options that Spark hands to ``schema``."""

    @classmethod
    def name(cls) -> str:
        return "options"

    def schema(self) -> str:
        raise ValueError(f"options: {sorted(self.options)}")


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.mark.usefixtures("pushdown")
def test_filters_that_a_source_takes_for_one_query_narrow_the_others_of_the_frame(spark: SparkSession) -> None:
    """ADR 62. When this fails, Spark keeps them apart: then the reader can take filters."""
    # Cloudpickle must send the classes by value, because Spark's workers cannot import this module.
    spark.dataSource.register(by_value(FilteringSource))
    frame = spark.read.format("filtering").load()
    above_7 = frame.where("id > 7")
    assert [above_7.count(), frame.count()] == [2, 2], "the second should be 10"
    both = frame.where("id > 5").union(frame.where("id > 7"))
    assert both.count() == 4, "it should be 6"


def test_spark_adds_properties_of_a_table_to_the_options_when_it_creates_one(spark: SparkSession) -> None:
    spark.dataSource.register(by_value(OptionsSource))
    with pytest.raises(AnalysisException) as created:
        spark.sql("CREATE TABLE never USING options OPTIONS (mine 'x')")
    with pytest.raises(AnalysisException) as viewed:
        spark.sql("CREATE TEMPORARY VIEW never USING options OPTIONS (mine 'x')")
    assert all(repr(name) in str(created.value) for name in TABLE_PROPERTIES)
    assert "options: ['mine']" in str(viewed.value)


def test_tasks_of_a_stream_know_its_query_its_run_and_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    names = (QUERY_ID, RUN_ID, BATCH_ID)

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        for _ in batches:
            context = TaskContext.get()
            assert context is not None
            values = [pyarrow.array([context.getLocalProperty(name)]) for name in names]
            yield pyarrow.RecordBatch.from_arrays(values, names=["query", "run", "batch"])

    for number in range(2):
        (tmp_path / f"{number}.txt").write_text("a line")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path))
    writer = lines.mapInArrow(told, "query string, run string, batch string").writeStream.format("memory")
    query = writer.queryName("told").trigger(availableNow=True).start()
    query.awaitTermination(120)
    found = sorted(tuple(row) for row in spark.table("told").collect())
    assert found == [(query.id, query.runId, "0"), (query.id, query.runId, "1")]


def by_value(source: type[Any]) -> type[Any]:
    """Let cloudpickle send this module's classes by value."""
    import sys

    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return source


@pytest.mark.parametrize("kind", [DataSourceReader, DataSourceStreamReader])
def test_no_hook_of_a_reader_is_called_when_its_tasks_have_read(kind: type) -> None:
    """So the log of the driver has no rows, bytes and retries of reads, as the reference page says. ``commit`` of a
    stream is called with the end of a batch, and has no results of tasks."""
    hooks = {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}
    assert hooks <= {
        "commit",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
        "partitions",
        "pushFilters",
        "read",
        "reportLatestOffset",
        "stop",
    }
