"""From the files in the directory to what the engine knew when it was ended, or to damage.

1. The newest segment's head says which logs there are, and which segments hold their entries.
2. Its footer says what followed, if the engine was closed; else its records are replayed.
3. What no synced offset attests is written once more and synced, before anybody relies on it: after
   a failed sync the system may still serve bytes that are not on the disk (durability rule 7).
4. Every older segment that holds entries has to be there, whole as far as its head and its length
   tell. Its entries are not read.

What to do with what is found stands in ``decisions``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress

from stelae.spi.errors import Foreign, StorageError, SyncFailed
from stelae.spi.services import File
from stelae_wal_shared.book import Book
from stelae_wal_shared.decisions import SharedFinding
from stelae_wal_shared.footer import encode_footer, read_footer, read_trail
from stelae_wal_shared.head import SegmentHead, read_head
from stelae_wal_shared.image import Restored, read_image
from stelae_wal_shared.replay import RecordReplay, damage_log
from stelae_wal_shared.scan import SharedScanStop, Valid, scan
from stelae_wal_shared.segment import UNBORN_SUFFIX, SharedSegment, number_of, segment_path


def recover(book: Book, newest_known: int, newest_end: int) -> list[SharedFinding]:
    """Fill an empty book from the files of its directory; return the rows that applied.

    Args:
        book: of the engine.
        newest_known: number of the newest segment that the marker tells of.
        newest_end: so much of it is durable, as far as the marker knows.

    Raises:
        Foreign: there are files of ours, and nothing tells what was in them.
        FutureVersion: a newer release wrote them.
        StorageError: one of them cannot be read now, or there is no space: nothing is known of the logs.
    """
    recovery = _NodeLogRecovery(book, newest_known, newest_end)
    recovery.run()
    return recovery.found


class _NodeLogRecovery:
    def __init__(self, book: Book, newest_known: int, newest_end: int) -> None:
        self.book = book
        self.newest_known = newest_known
        self.newest_end = newest_end
        self.files = book.files
        self.found: list[SharedFinding] = []

    def run(self) -> None:
        """Do all steps."""
        newest_known = self.newest_known
        numbers = self._list()
        self.book.newest = max([newest_known, *numbers])
        if not numbers:
            if newest_known:
                raise self._gone("there is none any more")
            return
        newest = numbers[-1]
        head = self._head(newest, image=True)
        if head is None or head.image is None or head.number != newest:
            self._without_newest(numbers)
            return
        self._take(head, settle=True)
        if newest_known > newest:
            fact = f"segment {newest_known} is missing"
            self._damage_all(SharedFinding.NEWEST_MISSING, segment_path(self.book.directory, newest_known), fact)
        self._check_older(numbers)

    # -- step 1 ----------------------------------------------------------------------------------

    def _list(self) -> list[int]:
        """Numbers of the segments that are there; files in the making are removed."""
        numbers = []
        for name in self.files.listdir(self.book.directory):
            number = number_of(name)
            if number is not None:
                numbers.append(number)
            elif name.endswith((UNBORN_SUFFIX, ".tmp")):
                with suppress(OSError, StorageError):
                    self.files.remove(f"{self.book.directory}/{name}")
                self.found.append(SharedFinding.UNBORN)
        return sorted(numbers)

    def _head(self, number: int, *, image: bool) -> SegmentHead | None:
        try:
            with closing(self.files.open(segment_path(self.book.directory, number))) as file:
                return read_head(file, image=image)
        except (FileNotFoundError, IsADirectoryError):
            return None

    def _without_newest(self, numbers: list[int]) -> None:
        """Learn from the segment before it which logs there were: all of them are damaged."""
        for number in reversed(numbers[:-1]):
            head = self._head(number, image=True)
            if head is not None and head.image is not None and head.number == number:
                self._take(head, settle=False)
                path = segment_path(self.book.directory, numbers[-1])
                self._damage_all(SharedFinding.NEWEST_HEADLESS, path, "neither copy of its head is valid")
                self._check_older(numbers, remove=False)
                return
        raise self._gone("no head of a segment can be read")

    def _gone(self, fact: str) -> Foreign:
        self.found.append(SharedFinding.GONE)
        row = SharedFinding.GONE.value
        return Foreign(f"there were segments, and {fact} (recovery row {row.letter})", path=self.book.directory)

    # -- step 2 ----------------------------------------------------------------------------------

    def _take(self, head: SegmentHead, *, settle: bool) -> None:
        """Take over head and records of a segment."""
        path = segment_path(self.book.directory, head.number)
        segment = SharedSegment(head.number, head.nonce, path, head.start, head.start)
        assert head.image is not None
        self._adopt(Restored(self.book.directory, read_image(head.image)), segment)
        recorded = self.newest_end if head.number == self.newest_known else 0
        with closing(self.files.open(path, writable=settle)) as file:
            if self._closed(file, segment, recorded):
                return
            trail = read_trail(file, segment.nonce)
            end = file.size() if trail is None else trail[0]
            data = file.pread(end - segment.start, segment.start)
            replay = RecordReplay(self.book.logs, self.book.next_log, segment)
            replay.run(data, recorded if trail is None else max(recorded, end))  # A footer stands behind durable data.
            self.book.next_log = replay.next_log
            self.found.extend(replay.found)
            attested = trail is not None or replay.stop is SharedScanStop.FOOTER
            if attested:
                self.found.append(SharedFinding.SEALED)
            elif replay.stop is not SharedScanStop.LOST:
                self.found.append(SharedFinding.TORN if replay.stop is SharedScanStop.TORN else SharedFinding.CLEAN)
            if settle:
                self._settle(file, segment, data, replay, attested=attested)

    def _adopt(self, restored: Restored, own: SharedSegment) -> None:
        book = self.book
        book.next_log = restored.next_number
        book.logs = restored.logs
        book.segments = {**restored.segments, own.number: own}

    def _closed(self, file: File, segment: SharedSegment, recorded: int) -> bool:
        """Take over the image behind the records, if there is one, and they are as long as is known."""
        contents = read_footer(file, segment.nonce)
        trail = read_trail(file, segment.nonce)
        if contents is None or trail is None or not contents.image or trail[0] < recorded:
            return False
        segment.end, segment.entries, segment.footer = trail[0], contents.entries, True
        self._adopt(Restored(self.book.directory, read_image(contents.image), segment), segment)
        self.found.append(SharedFinding.CLOSED)
        return True

    # -- step 3 ----------------------------------------------------------------------------------

    def _settle(self, file: File, segment: SharedSegment, data: bytes, replay: RecordReplay, *, attested: bool) -> None:
        """Prove the end of the records, cut what is behind them, and close the segment."""
        start, end = segment.start, segment.end
        proven = end if attested else max(start, min(replay.synced, end))
        try:
            if proven < end:
                file.pwritev([data[proven - start : end - start]], proven)
            if replay.stop is not SharedScanStop.LOST and file.size() > end:
                file.truncate(end)
            file.sync()
        except SyncFailed as error:
            self._unproven(segment, data, proven, error)
            return
        if replay.stop is not SharedScanStop.LOST:
            self._close(file, segment)

    def _close(self, file: File, segment: SharedSegment) -> None:
        """Give the segment the footer that it would have got; it can do without."""
        assert segment.index is not None
        image = self.book.image(without=segment)
        footer = encode_footer(segment.index, segment.entries, segment.end, segment.nonce, image)
        with suppress(StorageError):
            file.pwritev([footer], segment.end)
            file.sync()
            self.book.sealed(segment)

    def _unproven(self, segment: SharedSegment, data: bytes, proven: int, error: StorageError) -> None:
        """Damage the logs that have records which may not be on the disk."""
        lowest: dict[int, int] = {}
        for found in scan(data, segment.start, segment.nonce):
            if isinstance(found, Valid) and found.offset >= proven:
                number, index = found.record.log, found.record.index
                lowest[number] = min(index, lowest.get(number, index))
        self.found.append(SharedFinding.UNPROVEN)
        for log in self.book.logs.values():
            if log.number in lowest:
                damage_log(log, SharedFinding.UNPROVEN, segment.path, proven, error.fact, lowest[log.number] - 1)

    # -- step 4 ----------------------------------------------------------------------------------

    def _check_older(self, numbers: Iterable[int], *, remove: bool = True) -> None:
        book = self.book
        present = set(numbers)
        newest = max(present)
        for segment in [one for one in book.segments.values() if one.number != newest]:
            if segment.live:
                self._check(segment, present)
            if not segment.live:
                del book.segments[segment.number]
        book.segments = dict(sorted(book.segments.items()))
        # What stands behind damage may be all that is left of it, and stays until the log is dropped.
        remove = remove and not any(log.damage for log in book.logs.values())
        for number in sorted(present - set(book.segments) - {newest}) if remove else ():
            with suppress(OSError, StorageError):
                self.files.remove(segment_path(book.directory, number))
            self.found.append(SharedFinding.COLLECTED)

    def _check(self, segment: SharedSegment, present: set[int]) -> None:
        """Damage the logs that have entries in a segment which is not as it was written."""
        if segment.number not in present:
            self._damage_holders(SharedFinding.MISSING, segment, 0, "the segment is missing")
            return
        head = self._head(segment.number, image=False)
        if head is None or (head.number, head.nonce, head.start) != (segment.number, segment.nonce, segment.start):
            self._damage_holders(SharedFinding.BAD_SEGMENT, segment, 0, "its head is not the one it was written with")
            return
        with closing(self.files.open(segment.path)) as file:
            size = file.size()
        if size < segment.end:
            self._damage_holders(SharedFinding.BAD_SEGMENT, segment, size, f"it ends before {segment.end}")

    def _damage_holders(self, found: SharedFinding, segment: SharedSegment, offset: int, fact: str) -> None:
        self.found.append(found)
        for log in self.book.logs.values():
            held = [extent.first for extent in log.extents if extent.segment is segment]
            if held:
                damage_log(log, found, segment.path, offset, fact, held[0] - 1)

    def _damage_all(self, found: SharedFinding, path: str, fact: str) -> None:
        self.found.append(found)
        for log in self.book.logs.values():
            damage_log(log, found, path, 0, fact)
