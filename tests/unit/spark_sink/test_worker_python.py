"""The Python of Spark's workers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from stelae_spark_sink.backup.run_command import run_list_command
from stelae_spark_sink.local_session import NoSpark
from stelae_spark_sink.worker_python import (
    GATEWAY_PORT,
    PYSPARK_PYTHON,
    SourceNotFound,
    choose_worker_python,
    source_expected,
)


@pytest.mark.parametrize(
    ("given", "chosen"), [({}, sys.executable), ({PYSPARK_PYTHON: "theirs"}, "theirs"), ({GATEWAY_PORT: "4040"}, None)]
)
def test_workers_run_under_our_interpreter_unless_the_user_has_chosen_one(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], chosen: str | None
) -> None:
    for name in (PYSPARK_PYTHON, GATEWAY_PORT):
        monkeypatch.setenv(name, "before")  # So that it is restored after the test.
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    choose_worker_python()
    assert os.environ.get(PYSPARK_PYTHON) == chosen


def test_a_source_that_spark_does_not_find_is_an_error_with_the_line_that_helps() -> None:
    text = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: stelae. Make sure the provider name is correct."
    with pytest.raises(SourceNotFound, match=f"export PYSPARK_PYTHON={sys.executable}"), source_expected():
        raise AnalysisException(text)


def test_other_errors_of_spark_stay_what_they_are() -> None:
    error = AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] no table")
    with pytest.raises(AnalysisException) as raised, source_expected():
        raise error
    assert raised.value is error


def test_a_backup_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error was JAVA_GATEWAY_EXITED, of a Spark job that had failed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("JAVA_HOME", GATEWAY_PORT):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoSpark, match="stelae-spark needs Java 17 or newer: install it"):
        run_list_command(str(tmp_path), None, as_json=False)
