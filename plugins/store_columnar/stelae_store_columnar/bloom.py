"""Bloom filters over the keys of one row group. They show for most absent keys that nothing need be read.

A filter is a bitmap. Each key sets ``PROBES`` bits, at positions computed from two halves of a 64-bit hash. The hash
and the positions are part of the block format."""

from __future__ import annotations

import sys
from array import array as words_of
from typing import Any

import mmh3
import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.key_order import Comparable

BITS_PER_KEY = 16  #: With two probes, 14 of a thousand absent keys pass the filter.
PROBES = 2
_WORD = (1 << 64) - 1
_HALF = (1 << 32) - 1
_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
_TURN_KEYS = 8192  #: Keys that are hashed in one call, during which the interpreter lock is held.


def build(keys: Any) -> bytes:
    """Return the filter of some comparables."""
    bits = 8 * max(8, BITS_PER_KEY * len(keys) // 8)
    positions: list[Any] = []
    for start in range(0, len(keys), _TURN_KEYS):
        hashes = _hashes(keys.slice(start, _TURN_KEYS))
        step = pc.bit_wise_or(pc.shift_right(hashes, _u64(32)), _u64(1))
        position = pc.bit_wise_and(hashes, _u64(_HALF))
        for _ in range(PROBES):
            positions.append(pc.cast(pc.shift_right(pc.multiply(position, _u64(bits)), _u64(32)), pa.int64()))
            position = pc.bit_wise_and(pc.add(position, step), _u64(_HALF))
    # The validity bitmap of the inverse permutation is the filter: Arrow sets a bit for each position that occurs.
    inverse = pc.inverse_permutation(pa.chunked_array(positions, pa.int64()).combine_chunks(), bits - 1, pa.int32())
    bitmap = inverse.buffers()[0]
    return b"\xff" * (bits // 8) if bitmap is None else bytes(memoryview(bitmap)[: bits // 8])


def may_hold(bitmap: bytes, key: Comparable) -> bool:
    """Return false if a key is certainly not among the keys of a filter."""
    hashed = _hash(key)
    position, step, bits = hashed & _HALF, (hashed >> 32) | 1, 8 * len(bitmap)
    for _ in range(PROBES):
        bit = position * bits >> 32
        if not bitmap[bit >> 3] >> (bit & 7) & 1:
            return False
        position = (position + step) & _HALF
    return True


def _hashes(keys: Any) -> Any:
    if keys.type != pa.int64():
        # Digests as bytes, so that no Python tuple or number is created for each key.
        words = words_of("Q", b"".join(map(mmh3.mmh3_x64_128_digest, keys.to_pylist())))[::2]
        if sys.byteorder == "big":
            words.byteswap()
        return pa.Array.from_buffers(pa.uint64(), len(keys), [None, pa.py_buffer(words)])
    mixed = keys.view(pa.uint64())
    for factor in _FACTORS:
        mixed = pc.multiply(pc.bit_wise_xor(mixed, pc.shift_right(mixed, _u64(31))), _u64(factor))
    return pc.bit_wise_xor(mixed, pc.shift_right(mixed, _u64(32)))


def _hash(key: Comparable) -> int:
    if not isinstance(key, int):
        return mmh3.mmh3_x64_128_utupledigest(key)[0]
    mixed = key & _WORD
    for factor in _FACTORS:
        mixed = (mixed ^ mixed >> 31) * factor & _WORD
    return mixed ^ mixed >> 32


def _u64(number: int) -> Any:
    return pa.scalar(number, pa.uint64())
