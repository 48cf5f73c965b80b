"""Recording a process: what it did is seen, all of it, by whatever means this machine has."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.testing.recorder import calls, preload, straced
from stelae.testing.recorder.record import MEANS, Means, Recording, RecordingFailed, record

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


def available() -> Iterator[tuple[str, Means]]:
    return ((name, one) for name, one in MEANS.items() if one.available())


def recorded(program: str, tmp_path: Path, using: Means, *arguments: str) -> Recording:
    root = Path(os.path.realpath(tmp_path)) / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    marks = f"{root}.marks"
    command = [sys.executable, str(HERE / program), str(root), *(arguments or [marks])]
    return record(command, dict(os.environ), str(root), marks, using=using)


def test_linux_with_a_compiler_or_strace_has_means() -> None:
    linux = sys.platform == "linux"
    assert preload.available() == (linux and any(map(shutil.which, ("cc", "gcc", "clang"))))
    assert not straced.available() or shutil.which("strace")


def test_every_kind_of_call_is_seen_in_order_and_with_its_bytes(tmp_path: Path) -> None:
    for name, using in available():
        assert recorded("every_call.py", tmp_path, using).calls == EVERY_CALL, name


@pytest.mark.parametrize(
    ("way", "said"), [("mapping", "through a mapping"), ("link", "cannot be repeated"), ("other", "ended with code 1")]
)
def test_what_cannot_be_repeated_is_an_error_and_no_recording(way: str, said: str, tmp_path: Path) -> None:
    for _, using in available():
        with pytest.raises(RecordingFailed, match=said):
            recorded("strange_calls.py", tmp_path, using, way)


def test_a_write_that_the_means_miss_shows_in_what_is_there(tmp_path: Path) -> None:
    if preload.available():
        with pytest.raises(RecordingFailed, match="do not explain what is there: /a from byte 0 on"):
            recorded("strange_calls.py", tmp_path, preload, "stdio")


def test_a_machine_without_means_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stelae.testing.recorder.record.MEANS", {})
    with pytest.raises(RecordingFailed, match="none of"):
        record(["true"], {}, str(tmp_path), f"{tmp_path}.marks")


def test_a_trace_of_calls_that_wait_for_each_other_is_put_together() -> None:
    lines = ["7 fdatasync(3</a> <unfinished ...>", '8 write(4</b>, "\\x61", 1) = 1', "7 <... fdatasync resumed>) = 0"]
    assert list(straced._whole_lines("\n".join(lines))) == [lines[1], "7 fdatasync(3</a>) = 0"]
