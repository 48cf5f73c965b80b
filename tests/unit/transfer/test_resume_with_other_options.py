"""An import of JSON lines is resumed with what it did with columns that only later rows have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stelae_transfer.journal import BadJournal
from stelae_transfer.loading import ImportStopped
from tests.unit.transfer.test_import_of_changing_file import Imports

ALL = ("--columns", "id,value")


def resumed(monkeypatch: pytest.MonkeyPatch, path: Path, first: tuple[str, ...], second: tuple[str, ...]) -> Any:
    """Interrupt an import, and run it again with other options."""
    text = path.read_text()
    imports = Imports(monkeypatch, path)
    imports.text = "\n"
    assert isinstance(imports.run(*first).exception, ImportStopped)
    path.write_text(text)
    imports.text = ""
    return imports.run(*second)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ((), ("--skip-unknown",), "the journal has load, this import has skip-unknown"),
        (("--skip-unknown",), (), "the journal has skip-unknown, this import has load"),
        ((), ALL, "the journal has load, this import has skip"),
        (ALL, (), "the journal has skip, this import has load"),
    ],
)
def test_json_lines_are_not_resumed_with_another_skip_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: tuple[str, ...], second: tuple[str, ...], says: str
) -> None:
    """The rows after the interruption were loaded by another rule than those before it."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "value": "one"}\n')
    error = resumed(monkeypatch, path, first, second).exception
    assert isinstance(error, BadJournal) and says in str(error)
    assert "members that only later rows have (--skip-unknown, --columns)" in str(error) and "--restart" in str(error)


@pytest.mark.parametrize("options", [(), ("--skip-unknown",), ALL, ("--skip-unknown", *ALL)])
def test_json_lines_are_resumed_with_the_same_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "value": "one"}\n')
    assert "1 row written" in resumed(monkeypatch, path, options, options).stdout


@pytest.mark.parametrize("second", [("--skip-unknown",), ALL])
def test_options_that_change_nothing_in_a_csv_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: tuple[str, ...]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,value\n1,one\n")
    assert "1 row written" in resumed(monkeypatch, path, (), second).stdout
