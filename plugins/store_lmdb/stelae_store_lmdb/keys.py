"""Keys of the environment: rows in their order, whatever their length.

LMDB compares keys as bytes and takes at most 511 of them. The key of a version is::

    head   03, or 04 and the number of a node (8 bytes)
    stem   the encoded key of the row in groups of 8 bytes, each followed by a marker: how many of
           its bytes count, 0 to 8, or 9 if another group follows; padded with zeros
    age    the complements of timestamp and index, 8 bytes each: the newest version comes first

Groups with markers keep the order of the encoded keys, and none is the beginning of another's. What is left of a
key behind ``CHUNK_BYTES`` stands in a *node* of its own: under the first chunk, all of whose markers are 9, is a
*pointer* to the node, and everything that begins with that chunk is below it. Its place is that of all those rows: the
pointer comes behind the row that ends with the chunk and before whatever is greater. Nodes are nested as needed."""

from __future__ import annotations

import struct

ROOT = 0  #: The node of all keys of up to ``CHUNK_BYTES``, and of the beginnings of longer ones.
CHUNK_BYTES = 432  #: What of a key one node takes: with 9 of head and 16 of age it makes up 511 bytes.
AGE_BYTES = 16

_ROOT_HEAD = b"\x03"
_NODE_HEAD = b"\x04"
_GROUP = 8
_MORE = b"\x09"
_COUNTS = tuple(bytes((count,)) for count in range(_GROUP + 1))
_POINTER_BYTES = CHUNK_BYTES // _GROUP * (_GROUP + 1)
_AGE = struct.Struct(">QQ")
_MAX = (1 << 64) - 1


def head_of(node: int) -> bytes:
    """What the keys of a node begin with."""
    return _ROOT_HEAD if node == ROOT else _NODE_HEAD + node.to_bytes(8, "big")


def behind(node: int) -> bytes:
    """The least bytes that stand behind all keys of a node."""
    return _NODE_HEAD if node == ROOT else _NODE_HEAD + (node + 1).to_bytes(8, "big")


def stem_of(rest: bytes) -> bytes:
    """The stem of what a node holds of a key, or, if that is more than a chunk, the pointer's."""
    count = len(rest)
    if count <= _GROUP:
        return rest.ljust(_GROUP, b"\0") + _COUNTS[count]
    if count > CHUNK_BYTES:
        return b"".join([rest[at : at + _GROUP] + _MORE for at in range(0, CHUNK_BYTES, _GROUP)])
    last = (count - 1) // _GROUP * _GROUP
    groups = [rest[at : at + _GROUP] + _MORE for at in range(0, last, _GROUP)]
    groups.append(rest[last:].ljust(_GROUP, b"\0") + _COUNTS[count - last])
    return b"".join(groups)


def age_of(timestamp: int, index: int) -> bytes:
    """The end of the key of a version."""
    return _AGE.pack(_MAX - timestamp, _MAX - index)


def split_age(key: bytes) -> tuple[int, int]:
    """Timestamp and index of a version, from its key."""
    timestamp, index = _AGE.unpack_from(key, len(key) - AGE_BYTES)
    return _MAX - timestamp, _MAX - index


def is_pointer(key: bytes, head_bytes: int) -> bool:
    """Whether a key with such a head is that of a pointer."""
    return len(key) == head_bytes + _POINTER_BYTES


def rest_of(key: bytes, head_bytes: int) -> bytes:
    """What stands in a stem, from the key of a version."""
    end = len(key) - AGE_BYTES
    if end - head_bytes == _GROUP + 1:
        return key[head_bytes : head_bytes + key[end - 1]]
    return _joined(key, head_bytes, end) + key[end - 1 - _GROUP : end - 1 - _GROUP + key[end - 1]]


def chunk_of(key: bytes, head_bytes: int) -> bytes:
    """The chunk of a pointer, from its key."""
    return _joined(key, head_bytes, len(key)) + key[-1 - _GROUP : -1]


def _joined(key: bytes, start: int, end: int) -> bytes:
    """All groups but the last."""
    width = _GROUP + 1
    return b"".join([key[at : at + _GROUP] for at in range(start, end - width, width)])
