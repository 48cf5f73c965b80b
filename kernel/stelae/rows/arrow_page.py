"""The rows of a page of a scan or diff as one Arrow message without its schema, plain or compressed with LZ4.

LZ4 makes typical rows a third smaller, and costs both sides processor time. So it pays on slow networks only, and the
client chooses. The metadata of a message says whether its buffers are compressed, so a reader takes both."""

from __future__ import annotations

from typing import Any

from stelae.rows.declared_size import check_declared_size
from stelae.spi.errors import Corrupt, TooLarge
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae.spi.services import Buffer

LZ4_BYTES_MIN = 4096
"""Smaller messages are plain. To set up the compression of one takes about as long as a network of 1 Gbit/s needs for
the bytes that it saves."""

LZ4_SAVES_MIN = 1 / 8
"""The part of a message that LZ4 must save. Otherwise the message is plain, because a client decodes that faster."""

LZ4_BYTES_MAX = 64 << 20
"""Larger messages are plain. Only one very large row is."""

DECLARED_BYTES_MAX = LZ4_BYTES_MAX + (1 << 20)
"""A reader refuses a message that declares more. A buffer that LZ4 makes larger declares more than it has."""


def plain_bytes(rows: RowBatch) -> int:
    """Return how many bytes the plain message of rows has."""
    import pyarrow as pa

    return int(pa.ipc.get_record_batch_size(rows.arrow))


def encoded_rows(rows: RowBatch, *, lz4: bool = False) -> Buffer:
    """Return rows as an Arrow message. ``RowBatch.to_ipc`` would copy the message into bytes.

    The buffer comes from the C library's allocator, which keeps freed memory for the next page. Arrow's own allocator
    soon returns megabytes to the system, and to allocate them again for each page costs more than the rest of the
    work.

    Args:
        rows: the rows.
        lz4: whether the client takes LZ4. The message is compressed only if that makes it much smaller.
    """
    import pyarrow as pa

    if lz4 and LZ4_BYTES_MIN <= (size_bytes := plain_bytes(rows)) <= LZ4_BYTES_MAX:
        compressed = _with_lz4(rows.arrow)
        if len(compressed) <= size_bytes * (1 - LZ4_SAVES_MIN):
            return compressed
    return memoryview(rows.arrow.serialize(memory_pool=pa.system_memory_pool())).cast("B")


def decoded_rows(layout: Layout, data: Buffer) -> RowBatch:
    """Return the rows of a message of :func:`encoded_rows`. ``Corrupt``: it is not a message of such rows.

    A message that declares more bytes than ``DECLARED_BYTES_MAX`` is refused before it is decompressed."""
    try:
        check_declared_size(data, "a page of rows", max(DECLARED_BYTES_MAX, len(data)))
    except TooLarge as error:
        raise Corrupt(f"not a record batch: {error}") from error
    return RowBatch.from_ipc(layout, memoryview(data))


def _with_lz4(batch: Any) -> memoryview:
    """Return a batch as a message with compressed buffers, cut out of a stream: only streams have options."""
    import pyarrow as pa

    sink = pa.BufferOutputStream(memory_pool=pa.system_memory_pool())
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
        end = sink.tell()
    stream = sink.getvalue()
    source = pa.BufferReader(stream)
    pa.ipc.read_message(source)  # The schema, which the client has.
    return memoryview(stream).cast("B")[source.tell() : end]
