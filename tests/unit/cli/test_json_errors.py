"""A command with ``--json`` prints one JSON document on standard output, also when it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pytest
import typer

from stelae.cli import run_cluster
from stelae.cli.kit.output import print_json
from stelae.cli.main import main
from stelae.spi.errors import CallerError, RetryableError
from stelae.wire.refusals import RemoteError
from stelae_transfer.commands import run_scan
from stelae_transfer.commands.row_output import Output
from stelae_transfer.sinks import JsonSink
from tests.unit.cli.test_commands import document, run

ROWS = pa.record_batch({"id": pa.array([1, 2], pa.int64())})


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("table", "describe", "nope"), "BAD_TARGET", "--connect"),
        (("check", "--table", "nope"), "BAD_TARGET", "--connect"),
        (("cluster", "status", "/none"), "NOT_A_CLUSTER", "/none"),
        (("plugins", "show", "nope"), "BAD_REQUEST", "consensus.raft"),
        (("scan", "--table", "nope"), "BAD_TARGET", "--connect"),
    ],
    ids=str,
)
def test_an_error_is_one_document_with_its_code_and_its_text(words: tuple[str, ...], code: str, says: str) -> None:
    done = run(*words, "--json")
    found = document(done)
    assert done.returncode == 2
    assert found.keys() == {"code", "error"} and says in found["error"]
    assert found["code"] == code
    assert done.stderr == f"error: {found['error']}\n"


def test_without_json_an_error_is_on_standard_error_alone() -> None:
    assert document(run("cluster", "status", "/none", "--json"))
    done = run("cluster", "status", "/none")
    assert (done.returncode, done.stdout) == (2, "") and "/none" in done.stderr


def test_the_code_of_an_error_is_the_one_that_the_server_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_status(*_: object, **__: object) -> int:
        raise RemoteError("FANCY", "a later release refuses this")

    monkeypatch.setattr(run_cluster, "run_status", run_status)
    assert document(run("cluster", "status", "x", "--json"))["code"] == "FANCY"


def test_a_bug_is_a_document_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output was empty, as of a command without a result."""

    def run_status(*_: object, **__: object) -> int:
        raise KeyError("no such thing")

    monkeypatch.setattr(run_cluster, "run_status", run_status)
    monkeypatch.setattr(sys, "argv", ["stelae", "cluster", "status", "x", "--json"])
    with pytest.raises(KeyError):
        main()
    found = json.loads(capsys.readouterr().out)
    assert found == {"code": "INTERNAL", "error": "KeyError: 'no such thing'"}


def test_after_a_document_an_error_prints_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_status(*_: object, **__: object) -> int:
        print_json({"ok": False})
        raise RetryableError("the picture cannot be drawn")

    monkeypatch.setattr(run_cluster, "run_status", run_status)
    done = run("cluster", "status", "x", "--json")
    assert (done.returncode, document(done)) == (1, {"ok": False}) and "picture" in done.stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Exit(130)], ids=["Ctrl-C", "a command that ends itself"])
def test_a_command_that_is_interrupted_prints_its_document(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """It printed nothing, and ``jq`` behind it ended as after a success without a result."""

    def run_status(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(run_cluster, "run_status", run_status)
    done = run("cluster", "status", "x", "--json")
    assert (done.returncode, document(done)) == (130, {"code": "INTERRUPTED", "error": "interrupted"})
    done = run("cluster", "status", "x")
    assert (done.returncode, done.stdout) == (130, "")


def test_a_command_that_is_interrupted_after_its_document_prints_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_status(*_: object, **__: object) -> int:
        print_json({"ok": False})
        raise KeyboardInterrupt

    monkeypatch.setattr(run_cluster, "run_status", run_status)
    done = run("cluster", "status", "x", "--json")
    assert (done.returncode, document(done)) == (130, {"ok": False})


def test_text_that_is_not_utf_8_is_escaped() -> None:
    found = document(run("cluster", "status", "/none/\udcff", "--json"))
    assert r"/none/\udcff" in found["error"]


def test_a_result_with_a_file_name_that_is_not_utf_8_is_a_document(tmp_path: Path) -> None:
    """It was a traceback, after the command had done its work."""
    root = tmp_path / "n\udcff"
    made = document(run("fs", "format", str(root), "--json"))
    assert made["directory"] == rf"{tmp_path}/n\udcff"
    found = document(run("fs", "dump", str(root), "--json"))["files"]
    assert {entry["path"].partition(r"/n\udcff/")[2] for entry in found} >= {"instance", "clock"}


def test_rows_that_fail_with_text_that_is_not_utf_8_are_a_document() -> None:
    out = BytesIO()
    JsonSink(out, ROWS.schema).finish(CallerError("no file \udcff"))
    assert json.loads(out.getvalue()) == {
        "columns": ["id"],
        "rows": [],
        "code": "BAD_REQUEST",
        "error": r"no file \udcff",
    }


@pytest.mark.parametrize("to_file", [False, True])
def test_rows_that_fail_are_one_document_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, to_file: bool) -> None:
    def failing(options: run_scan.ScanOptions) -> int:
        with Output(options.form, options.output).sink(ROWS.schema) as sink:
            sink.write(ROWS)
            raise CallerError("a tablet is gone")

    out = BytesIO()
    monkeypatch.setattr(run_scan, "run_scan", failing)
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(out, encoding="utf-8"))
    output = ["--output", str(tmp_path / "rows.json")] if to_file else []
    monkeypatch.setattr(sys, "argv", ["stelae", "scan", "--json", *output])
    with pytest.raises(SystemExit):
        main()
    sys.stdout.flush()
    error = {"code": "BAD_REQUEST", "error": "a tablet is gone"}
    rows = {} if to_file else {"columns": ["id"], "rows": [[1], [2]]}
    assert json.loads(out.getvalue()) == rows | error


def test_a_reader_that_is_gone_costs_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = ["cluster", "status", "/none", "--json"]
    command = [sys.executable, "-m", "stelae.cli.main", *words]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
