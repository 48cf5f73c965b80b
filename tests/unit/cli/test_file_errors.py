"""A file that cannot be used ends a command with one line: the path and the reason."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.cli import run_cluster
from tests.unit.cli.test_commands import document, run


def raises(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Let ``stelae cluster status`` end with this error."""

    def run_status(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(run_cluster, "run_status", run_status)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A file is where the folder of the cluster would be made. It was a traceback."""
    (tmp_path / "file").write_text("")
    done = run("cluster", "up", str(tmp_path / "file" / "cluster"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {tmp_path}/file/cluster: {os.strerror(errno.ENOTDIR)}\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/a"), "/a: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device", Path("/a")), "/a: No space left on device"),
        (OSError(errno.EIO, "Input/output error", b"/a"), "/a: Input/output error"),
        (OSError(errno.EXDEV, "Invalid cross-device link", "/a", None, "/b"), "/a -> /b: Invalid cross-device link"),
    ],
    ids=["text", "path", "bytes", "two names"],
)
def test_the_line_has_the_path_and_the_reason(monkeypatch: pytest.MonkeyPatch, error: OSError, line: str) -> None:
    raises(monkeypatch, error)
    done = run("cluster", "status", "x")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {line}\n")
    assert document(run("cluster", "status", "x", "--json")) == {"code": "STORAGE", "error": line}


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EIO, "error", 7)])
def test_an_error_without_a_path_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    raises(monkeypatch, error)
    with pytest.raises(OSError, match=r"error|Too many"):
        run("cluster", "status", "x")


@pytest.mark.parametrize("words", [("plugins", "list"), ("plugins", "list", "--json"), ("--help",)], ids=" ".join)
@pytest.mark.parametrize("unbuffered", [False, True])
def test_standard_output_that_cannot_be_written_is_one_line_and_a_failure(
    words: tuple[str, ...], unbuffered: bool
) -> None:
    """The interpreter reported it after the command had ended, with exit code 120; unbuffered, it was a traceback."""
    command = [sys.executable, "-m", "stelae.cli.main", *words]
    environment = os.environ | {"PYTHONUNBUFFERED": "1" if unbuffered else ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environment
        )
    assert (done.returncode, done.stderr) == (1, f"error: standard output: {os.strerror(errno.ENOSPC)}\n")
