"""Writes of few rows, prepared for the event loop: decoded, and with what the blocks have of their keys.

Whether a write changes a row may depend on rows in blocks. For most new keys the key ranges or a Bloom filter show that
no block has them. The keys of other row groups may be in the cache. What is found is kept for ``apply``. It would
otherwise look up everything again, and the cache may have dropped the keys meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.spi.errors import StelaeError
from stelae.spi.ids import OpId
from stelae.spi.payload import WritePayload
from stelae.spi.schema import Schema
from stelae.spi.store import ApplyEntry
from stelae_store_columnar.applier import DecodedGroup, decode_groups, only_upserts_whole_rows
from stelae_store_columnar.key_lookup import cached_state
from stelae_store_columnar.levels import Levels
from stelae_store_columnar.memtable import ColumnarMemtable

BYTES_MAX = 256 << 10
"""The most bytes of an entry that are decoded on the event loop, to look up their keys."""

PROBES_MAX = 512
"""The most lookups of keys in levels of blocks for one call. They take about a millisecond."""


class PreparedWrites:
    """The entries that the event loop may apply next.

    Args:
        memory: the rows in memory.
        levels: the blocks. What is found holds for these only.
        schemas: all schema versions.
        order: of the keys.
    """

    def __init__(
        self, memory: ColumnarMemtable, levels: Levels, schemas: Mapping[int, Schema], order: KeyOrder
    ) -> None:
        self.levels = levels
        #: Whether the blocks have a row of a key now.
        self.in_blocks: dict[Comparable, bool] = {}
        self._memory = memory
        self._schemas = schemas
        self._order = order
        self._groups: dict[OpId, list[DecodedGroup]] = {}
        self._probes_left = PROBES_MAX

    def groups(self, op_id: OpId, payload: WritePayload) -> list[DecodedGroup]:
        """Return the groups of an entry, decoded. Raises ``Corrupt`` as ``decode_groups`` does."""
        found = self._groups.get(op_id)
        return decode_groups(payload, self._schemas, self._order) if found is None else found

    def need_no_file(self, entries: Sequence[ApplyEntry], schema: Schema) -> bool:
        """Return true if the entries, which change no schema, can be applied without reading a block. Never blocks."""
        if not self.levels.sources:
            return True
        for entry in entries:
            assert isinstance(entry.change, WritePayload), "schema changes are not applied on the loop"
            if only_upserts_whole_rows(entry.change, schema):
                continue
            if sum(len(group.body) for group in entry.change.groups) > BYTES_MAX:
                return False
            try:
                groups = self._groups[entry.op_id] = decode_groups(entry.change, self._schemas, self._order)
            except StelaeError:
                return False  # ``apply`` will say what is wrong.
            if not all(self._finds(group.keys.to_pylist()) for group in groups if len(group.keys)):
                return False
        return True

    def _finds(self, keys: Sequence[Comparable]) -> bool:
        """Look up keys that are not in memory in the blocks. Return whether no file is needed for it."""
        for key, live in zip(keys, self._memory.newest.find(keys), strict=True):
            if live is not None or key in self.in_blocks:
                continue
            self._probes_left -= len(self.levels.sources)
            if self._probes_left < 0:
                return False
            state = cached_state(self.levels, key)
            if state is None:
                return False
            self.in_blocks[key] = state
        return True
