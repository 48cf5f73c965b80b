"""Recovers the state of the engine from the files in its directory, or reports damage.

1. The head of the newest segment says which logs exist, and which segments have their entries.
2. If the engine was closed, the footer of that segment has the state at its end. Otherwise its records are replayed.
3. Records that no synced offset covers are written once more and synced before they are used. After a failed sync the
   system may still serve bytes that are not on the disk (durability rule 7).
4. Every older segment that has entries must exist, with the expected head and length. Its entries are not read. If the
   disk does not return its head now, nothing is known to be wrong: its entries are verified when they are read.

A process that was killed may have renamed a segment and not yet synced its name. So the names are synced first. The
marker would record the segment when the engine is closed, and its loss would then be damage of every log.

``decisions`` says what to do in each situation."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress

from stelae.spi.errors import Foreign, StorageError, SyncFailed
from stelae.spi.services import File
from stelae_wal_shared.decisions import SharedFinding
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.footer import encode_footer, read_footer, read_trail
from stelae_wal_shared.head import SegmentHead, read_head
from stelae_wal_shared.image import RestoredState, read_image
from stelae_wal_shared.replay import RecordReplay, damage_log
from stelae_wal_shared.scan import SharedScanStop, ValidRecord, scan
from stelae_wal_shared.segment import NEW_SEGMENT_SUFFIX, SharedSegment, number_of, segment_path


def recover(state: EngineState, newest_known: int, newest_end: int) -> list[SharedFinding]:
    """Fill an empty state from the files of its directory; return the rows of the decision table that applied.

    Args:
        state: of the engine.
        newest_known: number of the newest segment that the marker records.
        newest_end: length up to which that segment is durable, as the marker records; 0: unknown.

    Raises:
        Foreign: there were segments, and none that is left says which logs existed.
        FutureVersion: a newer release wrote a file.
        StorageError: a file cannot be read now, or there is no space. Then nothing is known about the logs.
    """
    recovery = _NodeLogRecovery(state, newest_known, newest_end)
    recovery.run()
    return recovery.found


class _NodeLogRecovery:
    def __init__(self, state: EngineState, newest_known: int, newest_end: int) -> None:
        self.state = state
        self.newest_known = newest_known
        self.newest_end = newest_end
        self.files = state.files
        self.found: list[SharedFinding] = []

    def run(self) -> None:
        """Do all steps."""
        newest_known = self.newest_known
        numbers = self._list()
        self.state.newest = max([newest_known, *numbers])
        if not numbers:
            if newest_known:
                raise self._gone("all of them are missing")
            return
        self.files.sync_directory(self.state.directory)
        newest = numbers[-1]
        head = self._head(newest, image=True)
        if head is None or head.image is None or head.number != newest:
            self._without_newest(numbers)
            return
        self._take(head, settle=True)
        if newest_known > newest:
            fact = f"segment {newest_known} is missing"
            self._damage_all(SharedFinding.NEWEST_MISSING, segment_path(self.state.directory, newest_known), fact)
        self._check_older(numbers)

    # -- step 1 ----------------------------------------------------------------------------------

    def _list(self) -> list[int]:
        """Return the numbers of the segments in the directory; remove the files of future segments."""
        numbers = []
        for name in self.files.listdir(self.state.directory):
            number = number_of(name)
            if number is not None:
                numbers.append(number)
            elif name.endswith((NEW_SEGMENT_SUFFIX, ".tmp")):
                with suppress(OSError, StorageError):
                    self.files.remove(f"{self.state.directory}/{name}")
                self.found.append(SharedFinding.NEVER_RENAMED)
        return sorted(numbers)

    def _head(self, number: int, *, image: bool) -> SegmentHead | None:
        try:
            with closing(self.files.open(segment_path(self.state.directory, number))) as file:
                return read_head(file, image=image)
        except (FileNotFoundError, IsADirectoryError):
            return None

    def _without_newest(self, numbers: list[int]) -> None:
        """Take the logs from an older segment's head when the newest one has no valid head: all logs are damaged."""
        for number in reversed(numbers[:-1]):
            head = self._head(number, image=True)
            if head is not None and head.image is not None and head.number == number:
                self._take(head, settle=False)
                path = segment_path(self.state.directory, numbers[-1])
                self._damage_all(SharedFinding.NEWEST_HEADLESS, path, "neither copy of its head is valid")
                self._check_older(numbers, remove=False)
                return
        raise self._gone("no head of a segment can be read")

    def _gone(self, fact: str) -> Foreign:
        self.found.append(SharedFinding.GONE)
        row = SharedFinding.GONE.value
        return Foreign(f"there were segments, and {fact} (recovery row {row.letter})", path=self.state.directory)

    # -- step 2 ----------------------------------------------------------------------------------

    def _take(self, head: SegmentHead, *, settle: bool) -> None:
        """Load the head and the records of a segment."""
        path = segment_path(self.state.directory, head.number)
        segment = SharedSegment(head.number, head.nonce, path, head.start, head.start)
        assert head.image is not None
        self._adopt(RestoredState(self.state.directory, read_image(head.image)), segment)
        recorded = self.newest_end if head.number == self.newest_known else 0
        with closing(self.files.open(path, writable=settle)) as file:
            if self._closed(file, segment, recorded):
                return
            trail = read_trail(file, segment.nonce)
            end = file.size() if trail is None else trail[0]
            data = file.pread(end - segment.start, segment.start)
            replay = RecordReplay(self.state.logs, self.state.next_log, segment)
            # A footer is written behind durable data only.
            replay.run(data, recorded if trail is None else max(recorded, end))
            self.state.next_log = replay.next_log
            self.found.extend(replay.found)
            attested = trail is not None or replay.stop is SharedScanStop.FOOTER
            if attested:
                self.found.append(SharedFinding.SEALED)
            elif replay.stop is not SharedScanStop.LOST:
                self.found.append(SharedFinding.TORN if replay.stop is SharedScanStop.TORN else SharedFinding.CLEAN)
            if settle:
                self._settle(file, segment, data, replay, attested=attested)

    def _adopt(self, restored: RestoredState, own: SharedSegment) -> None:
        state = self.state
        state.next_log = restored.next_number
        state.logs = restored.logs
        state.segments = {**restored.segments, own.number: own}

    def _closed(self, file: File, segment: SharedSegment, recorded: int) -> bool:
        """Load the image in the footer, if there is one and the records have at least the recorded length."""
        contents = read_footer(file, segment.nonce)
        trail = read_trail(file, segment.nonce)
        if contents is None or trail is None or not contents.image or trail[0] < recorded:
            return False
        segment.end, segment.entries, segment.footer = trail[0], contents.entries, True
        self._adopt(RestoredState(self.state.directory, read_image(contents.image), segment), segment)
        self.found.append(SharedFinding.CLOSED)
        return True

    # -- step 3 ----------------------------------------------------------------------------------

    def _settle(self, file: File, segment: SharedSegment, data: bytes, replay: RecordReplay, *, attested: bool) -> None:
        """Make the end of the records durable, cut what is behind them, and close the segment."""
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
        """Add the footer that a clean close would have written. The segment does not depend on it."""
        assert segment.index is not None
        image = self.state.image(without=segment)
        footer = encode_footer(segment.index, segment.entries, segment.end, segment.nonce, image)
        with suppress(StorageError):
            file.pwritev([footer], segment.end)
            file.sync()
            self.state.mark_sealed(segment)

    def _unproven(self, segment: SharedSegment, data: bytes, proven: int, error: StorageError) -> None:
        """Record damage of the logs with records that may not be on the disk."""
        lowest: dict[int, int] = {}
        for found in scan(data, segment.start, segment.nonce):
            if isinstance(found, ValidRecord) and found.offset >= proven:
                number, index = found.record.log, found.record.index
                lowest[number] = min(index, lowest.get(number, index))
        self.found.append(SharedFinding.UNPROVEN)
        for log in self.state.logs.values():
            if log.number in lowest:
                damage_log(log, SharedFinding.UNPROVEN, segment.path, proven, error.fact, lowest[log.number] - 1)

    # -- step 4 ----------------------------------------------------------------------------------

    def _check_older(self, numbers: Iterable[int], *, remove: bool = True) -> None:
        state = self.state
        present = set(numbers)
        newest = max(present)
        for segment in [one for one in state.segments.values() if one.number != newest]:
            if segment.live:
                self._check(segment, present)
            if not segment.live:
                del state.segments[segment.number]
        state.segments = dict(sorted(state.segments.items()))
        # Data behind the damage may be all that is left of a log. They stay until the log is dropped.
        remove = remove and not any(log.damage for log in state.logs.values())
        for number in sorted(present - set(state.segments) - {newest}) if remove else ():
            with suppress(OSError, StorageError):
                self.files.remove(segment_path(state.directory, number))
            self.found.append(SharedFinding.COLLECTED)

    def _check(self, segment: SharedSegment, present: set[int]) -> None:
        """Check one older segment. If it is missing or changed, record damage of the logs that have entries in it."""
        if segment.number not in present:
            self._damage_holders(SharedFinding.MISSING, segment, 0, "the segment is missing")
            return
        try:
            head = self._head(segment.number, image=False)
        except StorageError as error:
            if type(error) is not StorageError:
                raise
            self.found.append(SharedFinding.UNREAD)
            return
        if head is None or (head.number, head.nonce, head.start) != (segment.number, segment.nonce, segment.start):
            self._damage_holders(SharedFinding.BAD_SEGMENT, segment, 0, "its head is not the one it was written with")
            return
        with closing(self.files.open(segment.path)) as file:
            size = file.size()
        if size < segment.end:
            self._damage_holders(SharedFinding.BAD_SEGMENT, segment, size, f"it ends before {segment.end}")

    def _damage_holders(self, found: SharedFinding, segment: SharedSegment, offset: int, fact: str) -> None:
        self.found.append(found)
        for log in self.state.logs.values():
            held = [extent.first for extent in log.extents if extent.segment is segment]
            if held:
                damage_log(log, found, segment.path, offset, fact, held[0] - 1)

    def _damage_all(self, found: SharedFinding, path: str, fact: str) -> None:
        self.found.append(found)
        for log in self.state.logs.values():
            damage_log(log, found, path, 0, fact)
