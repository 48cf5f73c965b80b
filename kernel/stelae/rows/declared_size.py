"""The size that an Arrow message declares for its values, computed before the message is read.

Arrow allocates the size that a compressed buffer declares before it checks anything else, and a message may use the
same bytes for many columns. So a message of a few kilobytes could make a node allocate all of its memory."""

import struct
from typing import Any

from stelae.spi.errors import Corrupt, TooLarge
from stelae.spi.rows import MALFORMED
from stelae.spi.services import Buffer


def check_declared_size(data: Buffer, what: str, bytes_max: int) -> None:
    """Check the declared size of an Arrow message.

    Args:
        data: the message.
        what: of the message, for the error.
        bytes_max: most bytes that its values may take.

    Raises:
        TooLarge: the message declares more.
        Corrupt: the bytes are not an Arrow message.
    """
    import pyarrow as pa

    try:
        declared = _declared_bytes(pa.ipc.read_message(pa.py_buffer(data)))
    except (pa.ArrowException, *MALFORMED) as error:
        raise Corrupt(f"not a record batch: {str(error)[:200]}") from error
    if declared > bytes_max:
        raise TooLarge(what, declared, bytes_max)


def _declared_bytes(message: Any) -> int:
    """Return the bytes that a message declares for its buffers. Arrow has checked the structure of its metadata."""
    if message.type != "record batch":
        return 0
    data, body = bytes(message.metadata), memoryview(message.body or b"")

    def number(at: int, size_bytes: int = 4) -> int:
        return int.from_bytes(data[at : at + size_bytes], "little")

    def field(table: int, place: int) -> int:
        """Return the position of a field of a flatbuffer table; 0 if the table does not have it."""
        vtable = (table - number(table)) % (1 << 32)
        slot = 4 + 2 * place
        offset = number(vtable + slot, 2) if slot < number(vtable, 2) else 0
        return table + offset if offset else 0

    header = field(number(0), 2)
    batch = header + number(header)
    compressed, buffers, total = field(batch, 3), field(batch, 2), 0
    vector = buffers + number(buffers)
    for offset, size in struct.iter_unpack("<qq", data[vector + 4 :][: 16 * number(vector)]):
        if compressed and size >= 8:
            # -1 means that this buffer is not compressed.
            declared = int.from_bytes(body[offset : offset + 8], "little", signed=True)
            size = max(size, declared)
        total += max(size, 0)
    return total
