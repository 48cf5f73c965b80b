"""The address of a buffer, found without pyarrow."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from stelae_shared.lmdb_files.buffer_address import address_of


@pytest.mark.parametrize("data", [b"0123456789", bytearray(b"0123456789")], ids=["read-only", "writable"])
def test_the_address_of_a_view_is_that_of_its_first_byte(data: bytes | bytearray) -> None:
    view = memoryview(data)
    assert address_of(view) == pa.py_buffer(view).address
    assert address_of(view[3:7]) == address_of(view) + 3


def test_the_buffer_is_released() -> None:
    data = bytearray(10)
    view = memoryview(data)
    before = sys.getrefcount(view)
    address_of(view)
    assert sys.getrefcount(view) == before
    view.release()
    data.extend(b"a bytearray with a buffer outside refuses this")


def test_a_view_with_gaps_has_no_address() -> None:
    with pytest.raises(BufferError):
        address_of(memoryview(b"0123456789")[::2])
