"""``import``, ``export``, ``scan``, ``get`` and ``sql`` as far as they need no cluster."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae.spi.errors import StelaeError

CSV = "station,day,celsius,zip\nBergen,2026-06-01,11.5,0501\nBergen,2026-06-02,,0502\n"


def run(*words: str) -> str:
    """What a command prints; its errors are raised."""
    done = CliRunner().invoke(build_app(words[0]), [*words], env={"STELAE_CONNECT": "", "STELAE_TABLES": ""})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "readings.csv"
    path.write_text(CSV)
    return path


def test_the_table_that_a_file_would_make_is_shown_without_a_cluster(source: Path) -> None:
    shown = run("import", str(source), "--show-schema", "--key", "station,day", "--hash", "station:2")
    node, _, locations = shown.partition("# in the file for --tables")
    tablet = tomllib.loads(node)["tablet"]
    assert tablet["key"] == ["station", "day"]
    assert [(column["name"], column["type"]) for column in tablet["columns"]] == [
        ("station", "string"),
        ("day", "date"),
        ("celsius", "double"),
        ("zip", "string"),
    ]
    assert tomllib.loads(locations)["tables"]["readings"]["partition"]["hash"] == [
        {"columns": ["station"], "buckets": 2}
    ]


def test_the_same_as_json(source: Path) -> None:
    words = [
        "import",
        str(source),
        "--show-schema",
        "--key",
        "day",
        "--columns",
        "day,celsius",
        "--table",
        "t",
        "--json",
    ]
    document: Any = json.loads(run(*words))
    assert document["table"] == "t" and document["key"] == ["day"] and document["tablets"] == 1
    assert document["columns"][1] == {"name": "celsius", "type": "double", "nullable": True}


def test_a_dry_run_needs_no_cluster_when_the_key_is_said(source: Path) -> None:
    source.write_text(CSV + ",2026-06-03,1,1\nBergen,2026-06-04\n")
    done = CliRunner().invoke(
        build_app("import"), ["import", str(source), "--dry-run", "--key", "station,day", "--json"], env={}
    )
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (document["rows"], document["good"], document["bad"]) == (4, 2, 2)
    told = [json.loads(line) for line in Path(document["bad_rows_file"]).read_text().splitlines()]
    assert [(row["row"], row["code"]) for row in told] == [(3, "BAD_VALUE"), (4, "RAGGED")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["import", "FILE"], "no cluster given; pass --connect HOST:PORT"),
        (["import", "FILE", "--mode", "append"], "unknown --mode 'append'; known modes: insert, upsert"),
        (["import", "FILE", "--columns", "city"], "no column city in .*its columns: station, day, celsius, zip"),
        (["import", "FILE", "--show-schema"], "a new table needs a key.*unique in the first rows: day, zip"),
        (["import", "FILE", "--show-schema", "--key", "city"], "no key column 'city' in the file"),
        (["import", "FILE", "--delimiter", "::"], "--delimiter takes one character"),
        (["import", "nowhere.csv"], "there is no such file"),
        (["import", "rows.xlsx"], "endings: .csv"),
        (["import", "FILE", "--format", "excel"], "unknown format 'excel'; known formats: csv"),
        (["export", "FILE"], "replace it with --overwrite"),
        (["export", "rows.xlsx"], "endings: .csv"),
        (["scan"], "no cluster given; pass --connect HOST:PORT"),
        (["scan", "--connect", "127.0.0.1:1", "--dir", "x"], "not both"),
        (["scan", "--count", "--format", "csv"], "--count prints one number"),
        (["scan", "--dir", "nowhere"], "nowhere"),
        (["sql", "SELECT 1", "--format", "excel"], "known formats: table, lines, text, json, csv"),
        (["get", "1"], "no cluster given; pass --connect HOST:PORT"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_done(source: Path, words: list[str], says: str) -> None:
    before = sorted(source.parent.iterdir())
    with pytest.raises(StelaeError, match=says):
        run(*[str(source) if word == "FILE" else word for word in words])
    assert sorted(source.parent.iterdir()) == before and source.read_text() == CSV


@pytest.mark.parametrize("command", ["import", "export", "scan", "get", "sql"])
def test_the_help_of_each_teaches_with_an_example(command: str) -> None:
    shown = run(command, "--help")
    assert f"Example: stelae {command} " in " ".join(shown.split()) and "--json" in shown


def test_a_query_of_no_table_still_needs_a_cluster_and_says_so() -> None:
    with pytest.raises(StelaeError, match="no cluster given"):
        run("sql", "SELECT 1")
