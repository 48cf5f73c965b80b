"""An import reads its file several times, so a pipe is refused with the step to take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae_transfer.files import BrokenInput, FileFormat, Format, NoInput
from stelae_transfer.readers import open_reader

STEP = "write the rows to a regular file first, and import that file"


def shown(path: Path | str, *words: str) -> Any:
    command = ["import", str(path), "--show-schema", "--key", "id", *words]
    return CliRunner().invoke(build_app("import"), command)


@pytest.fixture(params=["unnamed", "named"])
def pipe(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A pipe with a CSV file in it, as ``<(cat x.csv)`` and ``mkfifo`` make them."""
    if request.param == "named":
        path = tmp_path / "x.csv"
        os.mkfifo(path)
        ends = [os.open(path, os.O_RDWR)]
    else:
        ends = [*os.pipe()]
        path = Path(f"/dev/fd/{ends[0]}")
    os.write(ends[-1], b"id,text\n1,a\n")
    yield path
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("words", [(), ("--format", "csv"), ("--format", "parquet")])
def test_a_pipe_is_refused_with_the_step_to_take(pipe: Path, words: tuple[str, ...]) -> None:
    """The error was 'lseek failed', after one that asked for --format."""
    error = shown(pipe, *words).exception
    assert isinstance(error, NoInput) and STEP in str(error)
    assert str(error).startswith(f"{pipe} is not a regular file, and an import reads its file several times")


@pytest.mark.parametrize("form", [*Format])
def test_readers_refuse_a_pipe(pipe: Path, form: Format) -> None:
    with pytest.raises(NoInput, match=STEP):
        open_reader(pipe, FileFormat(form))


@pytest.mark.parametrize("words", [(), ("--format", "csv")])
def test_a_dash_is_standard_input_unless_it_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    error = shown("-", *words).exception
    assert isinstance(error, NoInput) and STEP in str(error) and "standard input" in str(error)
    Path("-").write_text("id,text\n1,a\n")
    assert 'name = "text"' in shown("-", "--format", "csv").stdout


def test_a_regular_file_by_the_number_of_its_descriptor_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    with (tmp_path / "a.csv").open() as file:
        assert 'name = "text"' in shown(f"/dev/fd/{file.fileno()}", "--format", "csv").stdout


def test_other_files_that_cannot_be_read_keep_their_errors(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "missing.csv", "no such file"), (tmp_path, "is a directory")):
        error = shown(path, "--format", "csv").exception
        assert isinstance(error, NoInput | BrokenInput) and says in str(error)
