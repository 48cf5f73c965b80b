"""Keys of the environment: they keep the order of rows with keys of any length.

LMDB compares keys as bytes and allows at most 511 bytes. The key of a version is::

    head   03, or 04 and the number of a node (8 bytes)
    stem   the encoded key of the row in groups of 8 bytes, padded with zeros. A marker follows
           each group: the number of its bytes that count, 0 to 8, or 9 if another group follows
    age    the complements of timestamp and index, 8 bytes each: the newest version comes first

Groups with markers keep the order of the encoded keys, and no stem is the beginning of another one.

The part of a key after its first ``CHUNK_BYTES`` is in a *node* of its own. The first chunk, all of whose markers are
9, is the key of a *pointer* to the node. All keys that begin with the chunk are in the node. In the order of keys the
pointer is after the row whose key is exactly the chunk, and before all greater keys. Nodes are nested as needed."""

from __future__ import annotations

import struct

ROOT = 0  #: The node of all keys of up to ``CHUNK_BYTES``, and of the first chunks of longer ones.
CHUNK_BYTES = 432  #: Bytes of a key in one node. With 9 bytes of head and 16 of age, its stem makes a key of 511 bytes.
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
    """Return the head of all keys of a node."""
    return _ROOT_HEAD if node == ROOT else _NODE_HEAD + node.to_bytes(8, "big")


def end_of_node(node: int) -> bytes:
    """Return the smallest bytes that are above all keys of a node."""
    return _NODE_HEAD if node == ROOT else _NODE_HEAD + (node + 1).to_bytes(8, "big")


def stem_of(rest: bytes) -> bytes:
    """Return the stem for the rest of a key in a node, or the stem of the pointer if the rest is more than a chunk."""
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
    """Return the age of a version, which is the end of its key."""
    return _AGE.pack(_MAX - timestamp, _MAX - index)


def split_age(key: bytes) -> tuple[int, int]:
    """Return timestamp and index of a version from its key."""
    timestamp, index = _AGE.unpack_from(key, len(key) - AGE_BYTES)
    return _MAX - timestamp, _MAX - index


def is_pointer(key: bytes, head_bytes: int) -> bool:
    """Return true if a key with a head of ``head_bytes`` is the key of a pointer."""
    return len(key) == head_bytes + _POINTER_BYTES


def rest_of(key: bytes, head_bytes: int) -> bytes:
    """Return the decoded stem from the key of a version."""
    end = len(key) - AGE_BYTES
    if end - head_bytes == _GROUP + 1:
        return key[head_bytes : head_bytes + key[end - 1]]
    return _joined(key, head_bytes, end) + key[end - 1 - _GROUP : end - 1 - _GROUP + key[end - 1]]


def chunk_of(key: bytes, head_bytes: int) -> bytes:
    """Return the chunk from the key of a pointer."""
    return _joined(key, head_bytes, len(key)) + key[-1 - _GROUP : -1]


def _joined(key: bytes, start: int, end: int) -> bytes:
    """Return the bytes of all groups except the last one."""
    width = _GROUP + 1
    return b"".join([key[at : at + _GROUP] for at in range(start, end - width, width)])
