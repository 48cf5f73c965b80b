"""The file by which a worker of Spark finds a cluster whose masters were all replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stelae.client import Contacts
from stelae.spi.ids import ClusterId
from stelae_spark_sink.contacts_file import FILES_MAX, read_contacts, write_contacts

MASTERS = ("master-1:7051", "master-2:7051")
KNOWN = Contacts(cluster_id=ClusterId("c"), addresses=("master-3:7051", "server-1:7051"))
LATER = Contacts(cluster_id=ClusterId("c"), addresses=("master-4:7051", "server-1:7051"))


@pytest.fixture
def cache(cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the user; temporary files are in ``tmp_path``, too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return cache_folder


def test_the_last_contacts_of_each_list_are_read_again(cache: Path) -> None:
    assert read_contacts(MASTERS) is None
    for contacts in (KNOWN, LATER):
        write_contacts(MASTERS, contacts)
        assert read_contacts(MASTERS) == contacts
    assert read_contacts(MASTERS[:1]) is None
    (file,) = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700 and stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"masters": ["a:1"], "contacts": {}}', b"\xff" * 100])
def test_a_damaged_file_counts_as_none_and_is_replaced(cache: Path, content: bytes) -> None:
    write_contacts(MASTERS, KNOWN)
    (file,) = cache.iterdir()
    file.write_bytes(content)
    assert read_contacts(MASTERS) is None
    write_contacts(MASTERS, LATER)
    assert read_contacts(MASTERS) == LATER


def test_a_folder_that_others_can_write_is_not_used(cache: Path) -> None:
    write_contacts(MASTERS, KNOWN)
    cache.chmod(0o777)
    assert read_contacts(MASTERS) is None
    write_contacts(MASTERS, LATER)
    assert read_contacts(MASTERS) == LATER, "it is among the temporary files"


def test_without_a_folder_nothing_is_stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.write_text("a file where the folder should be")
    monkeypatch.setattr("tempfile.tempdir", str(cache.parent))
    write_contacts(MASTERS, KNOWN)
    assert read_contacts(MASTERS) is None


def test_the_oldest_files_of_many_are_removed(cache: Path) -> None:
    for number in range(FILES_MAX):
        write_contacts((f"master:{number}",), KNOWN)
        (new,) = [file for file in cache.iterdir() if file.stat().st_mtime > FILES_MAX]
        os.utime(new, (number, number))
    write_contacts(("last:1",), KNOWN)
    assert len([*cache.iterdir()]) == FILES_MAX and read_contacts(("last:1",)) == KNOWN
    assert read_contacts(("master:0",)) is None and read_contacts(("master:1",)) == KNOWN
