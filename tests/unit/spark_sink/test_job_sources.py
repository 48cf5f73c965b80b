"""The names under which a job writes its epochs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from stelae.spi.ids import SOURCE_LENGTH_MAX, source_id
from stelae_spark_sink.job_sources import source_of, source_of_job, source_of_stream
from stelae_spark_sink.options import SourceOptions, Use


def of_job(source: str = "nightly", *, overwrite: bool = False, **more: Any) -> str:
    options = SourceOptions({"masters": "127.0.0.1:1", "table": "readings", **more}, Use.WRITE)
    return source_of_job(source, options, overwrite=overwrite)


def of_stream(source: str = "nightly", **more: Any) -> str:
    options = SourceOptions({"masters": "127.0.0.1:1", "table": "readings", **more}, Use.STREAM_WRITE)
    return source_of_stream(source, options)


def test_each_operation_and_each_overwritten_part_has_a_name_of_its_own() -> None:
    names = [
        of_job(),
        of_job(operation="delete_ignore"),
        of_job(overwrite=True),
        of_job(overwrite=True, replaceWhere='["day", "=", 1]'),
        of_job(overwrite=True, replaceWhere='["day", "=", 2]'),
        of_stream(),
        of_stream(operation="delete"),
    ]
    assert names[:3] == ["nightly/upsert", "nightly/delete_ignore", "nightly/overwrite"]
    assert all(one != other for one, other in combinations(names, 2))
    assert of_job(overwrite=True, replaceWhere='[["day","=",1]]') == names[3], "the same filters, written otherwise"


def test_a_long_name_stays_within_the_limit_and_differs_from_others() -> None:
    longest = "x" * SOURCE_LENGTH_MAX
    names = [source_of(longest, "upsert"), source_of(longest[:-1] + "y", "upsert"), source_of(longest, "delete")]
    assert len({source_id(name) for name in names}) == 3
    assert source_of(longest, "upsert") == names[0]
