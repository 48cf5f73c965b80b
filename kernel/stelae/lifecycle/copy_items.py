"""The names of the items of a copy: ``rows/<file>``, ``export/<number>`` and ``log/<first>-<last>``. Pure.

Names come from a peer and become paths of the stage, so each is checked before it is used. The pieces of a log are cut
at the same indexes by every source (``LogCutter``). So a piece of another source has the same name, the same bytes and
the same digest if both logs have the same entries there."""

import re
from collections.abc import Iterable
from enum import StrEnum

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.wal import SnapshotUnit

ITEMS_MAX = 100_000  #: The most items of one snapshot.
ITEM_BYTES_MAX = 1 << 50  #: The most bytes of an item. Only files of a store can be large.
LOG_PIECE_ENTRIES = 4096  #: A piece of the log ends at an index that is a multiple of this number, at the latest.
LOG_PIECE_BYTES = 4 << 20  #: A piece ends with the entry with which it reaches this size.

_INDEX = r"([1-9][0-9]{0,18})"
_LOG = re.compile(rf"{_INDEX}-{_INDEX}")
_NAME = re.compile(rf"rows/[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}|export/([0-9]{{8}})|log/{_INDEX}-{_INDEX}")
"""A name. One match is enough for each item: a snapshot may have ``ITEMS_MAX`` of them."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class ItemKind(StrEnum):
    """The first part of the name of an item."""

    ROWS = "rows"  #: A file of the source's store.
    EXPORT = "export"  #: A piece of the store's export (``copy_rows``).
    LOG = "log"  #: A piece of the log (``copy_log``).


def rows_item(file: str) -> str:
    """Return the name of the item with a file of the store. Raises ``Corrupt`` if a target would refuse it."""
    return checked_name(f"{ItemKind.ROWS}/{file}")


def export_item(number: int) -> str:
    """Return the name of a piece of the export. Pieces are imported in the order of their numbers, from 0."""
    return f"{ItemKind.EXPORT}/{number:08d}"


def log_item(first: int, last: int) -> str:
    """Return the name of the piece of the log with the entries from ``first`` to ``last``, inclusive."""
    return f"{ItemKind.LOG}/{first}-{last}"


def kind_of(name: str) -> ItemKind:
    """Return the kind of an item whose name was checked."""
    return ItemKind(name.partition("/")[0])


def file_of(name: str) -> str:
    """Return the name of an item below its kind: for ``ROWS`` the file of the store."""
    return name.partition("/")[2]


def log_range(name: str) -> tuple[int, int]:
    """Return the first and the last index of a piece of the log. Raises ``Corrupt`` for another name."""
    found = _LOG.fullmatch(file_of(name)) if name.startswith(f"{ItemKind.LOG}/") else None
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 0 < first <= last:
        raise Corrupt(f"{name[:80]!r} does not name a piece of a log")
    return first, last


def checked_name(name: str) -> str:
    """Return the name of an item. Raises ``Corrupt`` if it is not one, for example if it would leave the stage."""
    found = _NAME.fullmatch(name)
    if found is None or (found[2] is not None and int(found[2]) > int(found[3])):
        raise Corrupt(f"{name[:80]!r} is not the name of an item of a copy")
    return name


def check_items(items: Iterable[SnapshotUnit], base: OpId, last: OpId) -> None:
    """Check the items of a snapshot that a peer has sent.

    The pieces of the log must cover ``base.index + 1`` to ``last.index`` in order and without gaps, and those of an
    export must be numbered from 0. Raises ``Corrupt`` if anything is wrong. Takes about 2 microseconds for each item:
    it is called once for each snapshot, and off the event loop."""
    seen: set[str] = set()
    next_index, next_export = base.index + 1, 0
    for item in items:
        name = item.name
        if (found := _NAME.fullmatch(name)) is None:
            raise Corrupt(f"{name[:80]!r} is not the name of an item of a copy")
        if name in seen:
            raise Corrupt(f"item {name!r} occurs twice")
        seen.add(name)
        if len(seen) > ITEMS_MAX:
            raise Corrupt(f"a snapshot has more than {ITEMS_MAX} items")
        if not 0 <= item.size_bytes <= ITEM_BYTES_MAX or not _DIGEST.fullmatch(item.digest):
            raise Corrupt(f"item {name!r} has no usable size and digest")
        number, first, end = found.groups()
        if first is not None:
            if int(first) != next_index or int(end) < next_index:
                raise Corrupt(f"item {name!r} does not continue the log at {next_index}")
            next_index = int(end) + 1
        elif number is not None:
            if int(number) != next_export:
                raise Corrupt(f"item {name!r} is not the next piece of the export, {next_export}")
            next_export += 1
    if next_index != last.index + 1:
        raise Corrupt(f"the items have the log up to {next_index - 1}, but the snapshot ends at {last}")


class LogCutter:
    """Decides after which entries a log is cut into pieces. Every source cuts at the same indexes.

    A cut depends only on the index and on the entries since the last multiple of ``LOG_PIECE_ENTRIES``. A source whose
    log begins in between may cut elsewhere up to the next multiple."""

    def __init__(self) -> None:
        self._size_bytes = 0

    def ends_piece(self, index: int, size_bytes: int) -> bool:
        """Add an entry with its encoded size. Return whether the piece ends with it."""
        self._size_bytes += size_bytes
        if index % LOG_PIECE_ENTRIES and self._size_bytes < LOG_PIECE_BYTES:
            return False
        self._size_bytes = 0
        return True
