"""What an Arrow message would take in memory, known before it is read.

Arrow allocates what a compressed buffer declares before it looks any further, and a message may name the same bytes
for many columns: a few kilobytes from a client could ask for the memory of the node."""

import struct
from typing import Any

from stelae.spi.errors import Corrupt, TooLarge
from stelae.spi.rows import MALFORMED


def check_declared(data: bytes, what: str, bytes_max: int) -> None:
    """``TooLarge`` when the values of a message would take more; ``Corrupt`` when it is none."""
    import pyarrow as pa

    try:
        declared = _declared_bytes(pa.ipc.read_message(pa.py_buffer(data)))
    except (pa.ArrowException, *MALFORMED) as error:
        raise Corrupt(f"not a record batch: {str(error)[:200]}") from error
    if declared > bytes_max:
        raise TooLarge(what, declared, bytes_max)


def _declared_bytes(message: Any) -> int:
    """Bytes that the buffers of a message take by what it says itself. Arrow has checked the shape of its metadata."""
    if message.type != "record batch":
        return 0
    data, body = bytes(message.metadata), memoryview(message.body or b"")

    def number(at: int, size_bytes: int = 4) -> int:
        return int.from_bytes(data[at : at + size_bytes], "little")

    def field(table: int, place: int) -> int:
        """Where a field of a flatbuffer table stands; 0 if it is absent."""
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
            # Minus one says that this buffer was left as it is.
            declared = int.from_bytes(body[offset : offset + 8], "little", signed=True)
            size = max(size, declared)
        total += max(size, 0)
    return total
