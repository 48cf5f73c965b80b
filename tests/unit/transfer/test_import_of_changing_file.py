"""A file that is changed while it is imported is not taken for whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae_transfer.commands import run_import
from stelae_transfer.loading import ImportStopped
from tests.unit.client.tablets import MemoryTable, one_column


class Imports:
    """Imports a file into a table in memory. ``text`` is appended to the file after its digest was taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.path = path
        self.text = ""
        memory = MemoryTable(one_column("value", "string"), name="readings")

        async def table(*_: object, **__: object) -> Any:
            return memory.table

        @asynccontextmanager
        async def connected(_: object) -> AsyncIterator[Any]:
            yield SimpleNamespace(table=table)

        async def table_name(*_: object) -> str:
            return "readings"

        async def members_of(*_: object) -> tuple[str, ...]:
            with path.open("a") as file:
                file.write(self.text)
            return ("a",)

        for replaced in (connected, table_name, members_of):
            monkeypatch.setattr(run_import, replaced.__name__, replaced)

    def run(self, *words: str) -> Any:
        return CliRunner().invoke(build_app("import"), ["import", str(self.path), "--connect", "a:1", *words])


def test_a_file_that_grows_while_it_is_imported_is_told_and_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer was in the middle of a row. What was there of the row was imported, and the import had succeeded."""
    path = tmp_path / "a.csv"
    path.write_text("id,value\n1,one\n")
    imports = Imports(monkeypatch, path)
    imports.text = "2,tw"
    error = imports.run().exception
    assert isinstance(error, ImportStopped) and "was changed or removed while it was read" in str(error)
    imports.text = ""
    with path.open("a") as file:
        file.write("o\n")
    assert "import it again with --restart" in str(error) and "the contents of the input" in str(
        imports.run().exception
    )
    assert "2 rows written" in imports.run("--restart").stdout
