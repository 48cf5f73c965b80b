"""Recording a process: every method that this machine has records everything that the process does."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.testing.recorder import calls, preload, strace
from stelae.testing.recorder.record import METHODS, Recording, RecordingFailed, RecordingMethod, record

HERE = Path(__file__).parent

EVERY_CALL = (
    calls.Mark("begin 0"),
    calls.Create("/a"),
    calls.RecordedWrite("/a", 0, b"hello"),
    calls.RecordedWrite("/a", 0, b"HE"),
    calls.RecordedWrite("/a", 10, b"xxxyz"),
    calls.Resize("/a", 100),
    calls.Resize("/a", 200),
    calls.RecordedSync("/a"),
    calls.RecordedWrite("/a", 50, b"durable", dsync=True),
    calls.Mark("done 0"),
    calls.Mark("begin 1"),
    calls.Rename("/a", "/b"),
    calls.RecordedWrite("/b", 3, b"123"),
    calls.RecordedSync("/"),
    calls.Create("/c"),
    calls.RecordedWrite("/c", 0, b"one"),
    calls.RecordedWrite("/c", 3, b"two"),
    calls.Remove("/b"),
    calls.MakeDirectory("/d"),
    calls.MakeDirectory("/d/e"),
    calls.Rename("/c", "/d/c"),
    calls.Resize("/d/c", 2),
    calls.RemoveDirectory("/d/e"),
    calls.Resize("/d/c", 0),
    calls.MakeDirectory("/f"),
    calls.Rename("/d/c", "/f/g"),
)


def available() -> Iterator[tuple[str, RecordingMethod]]:
    return ((name, one) for name, one in METHODS.items() if one.available())


def recorded(program: str, tmp_path: Path, method: RecordingMethod, *arguments: str) -> Recording:
    root = Path(os.path.realpath(tmp_path)) / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    marks = f"{root}.marks"
    command = [sys.executable, str(HERE / program), str(root), *(arguments or [marks])]
    return record(command, dict(os.environ), str(root), marks, method=method)


def test_linux_with_a_compiler_or_strace_has_a_method() -> None:
    linux = sys.platform == "linux"
    assert preload.available() == (linux and any(map(shutil.which, ("cc", "gcc", "clang"))))
    assert not strace.available() or shutil.which("strace")


def test_every_kind_of_call_is_seen_in_order_and_with_its_bytes(tmp_path: Path) -> None:
    for name, method in available():
        assert recorded("every_call.py", tmp_path, method).calls == EVERY_CALL, name


@pytest.mark.parametrize(
    ("way", "said"), [("mapping", "through a mapping"), ("link", "cannot be repeated"), ("other", "ended with code 1")]
)
def test_a_call_that_cannot_be_repeated_is_an_error(way: str, said: str, tmp_path: Path) -> None:
    for _, method in available():
        with pytest.raises(RecordingFailed, match=said):
            recorded("strange_calls.py", tmp_path, method, way)


def test_a_write_that_was_not_recorded_is_an_error(tmp_path: Path) -> None:
    if preload.available():
        with pytest.raises(RecordingFailed, match="do not explain the files: /a from byte 0 on"):
            recorded("strange_calls.py", tmp_path, preload, "stdio")


def test_a_machine_without_a_method_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stelae.testing.recorder.record.METHODS", {})
    with pytest.raises(RecordingFailed, match="none of"):
        record(["true"], {}, str(tmp_path), f"{tmp_path}.marks")


def test_a_trace_of_calls_that_wait_for_each_other_is_put_together() -> None:
    lines = ["7 fdatasync(3</a> <unfinished ...>", '8 write(4</b>, "\\x61", 1) = 1', "7 <... fdatasync resumed>) = 0"]
    assert list(strace._whole_lines("\n".join(lines))) == [lines[1], "7 fdatasync(3</a>) = 0"]
