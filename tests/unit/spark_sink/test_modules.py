"""Modules: what Spark finds, and what is said where PySpark is missing."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

from stelae.spi.extras import MissingExtra


def test_spark_finds_the_module_by_its_name_and_its_import_loads_nothing_of_ours() -> None:
    assert "pyspark_stelae" in {module.name for module in pkgutil.iter_modules()}
    program = (
        "import sys, pyspark_stelae; print([name for name in sys.modules if name.split('.')[0].startswith('stelae')])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert loaded.stdout == "[]\n"


def test_without_pyspark_the_functions_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark" or name == "stelae.spark"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("stelae_spark_sink")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtra, match=r"pip install 'stelae\[spark\]'"):
        __import__("stelae.spark")


def test_without_pyspark_the_command_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("pyspark", "stelae_spark_sink")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    command = importlib.import_module("stelae_spark_sink.backup.command")
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "pip install 'stelae[spark]'" in capsys.readouterr().err


def test_the_functions_are_those_of_the_plugin() -> None:
    from stelae import spark
    from stelae_spark_sink import functions

    assert spark.read_table is functions.read_table
