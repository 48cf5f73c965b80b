"""What the machine's disk may answer, and what we make of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from stelae.machine import files as module
from stelae.machine.files import RealFiles
from stelae.spi.errors import Full, StorageError, SyncFailed


def failing(number: int) -> Any:
    def call(*_args: object, **_kwargs: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    monkeypatch.setattr(module, "_pwritev", failing(number))
    with pytest.raises(Full, match="a@7"):
        file.pwritev([b"x"], 7)


@pytest.mark.parametrize("number", [errno.EIO, errno.EFBIG, errno.EBADF])
def test_any_other_failed_write_is_not_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    monkeypatch.setattr(module, "_pwritev", failing(number))
    with pytest.raises(SyncFailed):
        file.pwritev([b"x"], 0, dsync=True)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_is_a_failed_sync_even_for_want_of_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, failing(number), raising=False)
    monkeypatch.setattr(module, "_F_FULLFSYNC", None)
    for data_only in (False, True):
        with pytest.raises(SyncFailed):
            file.sync(data_only=data_only)
    with pytest.raises(SyncFailed):
        RealFiles().sync_directory(str(tmp_path))


def test_a_read_that_fails_on_the_way_names_the_place_that_the_disk_does_not_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named the beginning of the read, which may be a segment of a log away from the bad page."""
    file, real = RealFiles().create(f"{tmp_path}/a"), os.pread
    file.pwritev([bytes(100)], 0)

    def pread(fd: int, size: int, offset: int) -> bytes:
        if offset >= 60:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, min(size, 60 - offset), offset)

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(StorageError, match="a@60") as caught:
        file.pread(90, 10)
    assert caught.value.offset == 60


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def short(_calls: object, fd: int, buffers: list[Any], offset: int, _flag: int) -> int:
        return real(fd, b"".join(buffers)[:5], offset)

    monkeypatch.setattr(module, "_pwritev", short)
    file = RealFiles().create(f"{tmp_path}/a")
    assert file.pwritev([b"abc", b"", b"defghi", b"jklmnop"], 2) == 16
    assert file.pread(100, 2) == b"abcdefghijklmnop"


def test_a_write_that_makes_no_progress_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_pwritev", lambda *_: 0)
    with pytest.raises(SyncFailed):
        RealFiles().create(f"{tmp_path}/a").pwritev([b"abc"], 0)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_without_synchronous_writes_a_sync_follows_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls: list[str] = []

    def plain(_calls: object, fd: int, buffers: list[Any], offset: int, flag: int) -> int:
        if flag:
            raise OSError(number, "no such flag")
        calls.append("write")
        return os.pwrite(fd, b"".join(buffers), offset)

    monkeypatch.setattr(module, "_RWF_DSYNC", 2)
    monkeypatch.setattr(module, "_pwritev", plain)
    monkeypatch.setattr(module, "_sync", lambda *_: calls.append("sync"))
    file = RealFiles().create(f"{tmp_path}/a")
    file.pwritev([b"one"], 0, dsync=True)
    file.pwritev([b"two"], 3, dsync=True)
    assert calls == ["write", "sync", "write", "sync"]
    assert file.pread(6, 0) == b"onetwo"


def test_a_system_without_vectored_writes_or_preallocation_does_it_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pwritev", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(module, "_RWF_DSYNC", 0)
    file = RealFiles().create(f"{tmp_path}/a")
    file.pwritev([b"a", b"b"], 0, dsync=True)
    file.preallocate(3 << 20)
    assert file.size() == 3 << 20
    assert file.pread(5, 0) == b"ab\0\0\0"


def test_a_preallocation_that_does_not_fit_leaves_the_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def partly(fd: int, _start: int, _size: int) -> None:
        os.ftruncate(fd, 50)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", partly, raising=False)
    file = RealFiles().create(f"{tmp_path}/a")
    file.pwritev([b"abc"], 0)
    with pytest.raises(Full):
        file.preallocate(100)
    assert file.size() == 3


def test_a_read_that_fails_names_file_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    monkeypatch.setattr(os, "pread", failing(errno.EIO))
    with pytest.raises(StorageError, match=r"a@9"):
        file.pread(1, 9)


@pytest.mark.parametrize("number, kind", [(errno.ENOSPC, Full), (errno.EACCES, StorageError)])
def test_names_that_cannot_be_made_are_typed_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    monkeypatch.setattr(os, "open", failing(number))
    with pytest.raises(kind) as caught:
        RealFiles().create(f"{tmp_path}/a")
    assert type(caught.value) is kind


def test_a_failed_replace_leaves_the_old_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RealFiles()
    files.replace(f"{tmp_path}/a", b"old")
    monkeypatch.setattr(module, "_pwritev", failing(errno.ENOSPC))
    with pytest.raises(Full):
        files.replace(f"{tmp_path}/a", b"new")
    assert files.listdir(str(tmp_path)) == ["a"]
    assert files.read_bytes(f"{tmp_path}/a") == b"old"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_want_of_handles_passes_as_want_of_space_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "open", failing(number))
    for call in (RealFiles().open, RealFiles().create, RealFiles().lock, RealFiles().sync_directory):
        with pytest.raises(Full, match="raise the limit"):
            call(f"{tmp_path}/a")


def test_a_disk_that_fails_is_not_taken_for_one_without_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``exists`` once said no of a file that could not be looked at, and a start took its log for one that was gone."""
    files, path = RealFiles(), f"{tmp_path}/a"
    file = files.create(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing(errno.EIO))
        patch.setattr(os, "fstat", failing(errno.EIO))
        with pytest.raises(StorageError, match="a: cannot use it: Input/output error"):
            files.exists(path)
        with pytest.raises(StorageError, match="a: cannot use it: Input/output error"):
            file.size()
    assert files.exists(path) and not files.exists(f"{path}/below") and not files.exists(f"{tmp_path}/none")
