"""Recovers one log: reads the files in its directory and builds the chain of its segments, or reports damage.

The steps follow the order of trust. The base file says which segments count. Each header ties its segment to the log
and to the segment before it. Footers and successors say where closed segments end. Only the last segment may have a
tail. ``stelae_wal_segmented.decisions`` says what to do in each situation.

Data that can be read after a crash are not necessarily durable. A sync may have failed before, and then the system
serves pages from memory that are not on the disk (durability rule 7). So data that no later group records as synced are
written once more and synced before the log is used.

A process that was killed may have synced nothing of its last step: a new name, a footer, or the base file. The entries
that are appended to a segment would be lost with its name, and a segment below the base must not be removed before the
base is durable. So these are synced, too, before they count."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stelae.spi.errors import Corrupt, Foreign, Full, FutureVersion, StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.services import File, Files
from stelae.spi.wal import Damage
from stelae_wal_segmented.base_file import BaseRecord, LogUse, read_base, unknown_base
from stelae_wal_segmented.decisions import SegmentFinding, SegmentVerdict, judge_last, judge_sealed
from stelae_wal_segmented.footer import decode_footer, read_summary
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    encode_group_header,
    end_mark_of,
)
from stelae_wal_segmented.index import IndexSummary, SegmentIndex
from stelae_wal_segmented.names import base_name, segment_name
from stelae_wal_segmented.scan import SegmentScan, UnfinishedGroup, scan_segment
from stelae_wal_segmented.segment import Segment, SegmentChain

_PIECE_BYTES = 1 << 20


@dataclass(slots=True)
class RecoveredLog:
    """The result of recovery.

    Attributes:
        base: contents of the base file, or ``unknown_base`` if it could not be read.
        chain: all segments up to the end of the log, or up to the damage.
        last: op id of the last entry; with damage, of the last good entry.
        commit_hint: the highest recorded commit index, at most ``last.index``.
        damage: why the log must not be used; ``None`` if it is good.
        found: the rows of the decision table that applied, in order.
    """

    base: BaseRecord
    chain: SegmentChain = field(default_factory=SegmentChain)
    last: OpId = ZERO
    commit_hint: int = 0
    damage: Damage | None = None
    found: list[SegmentFinding] = field(default_factory=list)


def recover_log(files: Files, directory: str, log: LogId, sequences: Sequence[int]) -> RecoveredLog:
    """Recover one log.

    Args:
        files: the disk.
        directory: directory with the log's files.
        log: the log.
        sequences: numbers of the segments in the directory, in ascending order.

    Raises:
        FutureVersion: a newer release wrote a file.
        StorageError: a file cannot be read now, or there is no space. Then nothing is known about the log.
    """
    found = try_recover_log(files, directory, log, sequences)
    if isinstance(found, UnreadableLog):
        raise found.error
    return found


class UnreadableLog(NamedTuple):
    """A log that cannot be read now."""

    error: StorageError  #: Why it cannot be read.
    partly: RecoveredLog  #: What recovery had found before.

    def settled(self) -> RecoveredLog:
        """Return the log as it is listed until the next start: not usable, and not changed."""
        error, found = self.error, self.partly
        found.damage = Damage(
            path=error.path, offset=error.offset or 0, last_good=found.last, detail=error.fact, unread=True
        )
        return found


def try_recover_log(files: Files, directory: str, log: LogId, sequences: Sequence[int]) -> RecoveredLog | UnreadableLog:
    """Recover one log as ``recover_log`` does, but return an ``UnreadableLog`` if a file cannot be read now.

    Raises:
        FutureVersion, Foreign, Full: as ``recover_log``.
    """
    recovery = _LogRecovery(files, directory, log)
    try:
        recovery.run(sequences)
    except (Corrupt, SyncFailed) as error:
        recovery.damage(SegmentFinding.UNUSABLE, error.path, error.offset or 0, error.fact)
    except (FutureVersion, Foreign, Full):
        raise
    except StorageError as error:
        recovery.end_at_durable()
        return UnreadableLog(error, recovery.result)
    return recovery.result


class _LogRecovery:
    def __init__(self, files: Files, directory: str, log: LogId) -> None:
        self.files = files
        self.directory = directory
        self.log = log
        self.result = RecoveredLog(unknown_base(log))

    def damage(self, found: SegmentFinding, path: str, offset: int, detail: str) -> None:
        """Record the first damage. What was recovered before it stays readable."""
        result = self.result
        result.found.append(found)
        if result.damage is None:
            self.end_at_durable()
            row = found.value
            text = f"{detail} (recovery row {row.letter}: {row.situation})"
            result.damage = Damage(path=path, offset=offset, last_good=result.last, detail=text)

    def end_at_durable(self) -> None:
        """After a failed sync, end the log at its last durable op id, also if damage is found behind it."""
        base, last = self.result.base, self.result.last
        if base.use is LogUse.SYNC_FAILED and base.durable.index < last.index:
            self.result.last = self._op_id_at(max(base.durable.index, base.base.index))

    def run(self, sequences: Sequence[int]) -> None:
        """Do all steps; stop at the first damage in a segment."""
        if not self._take_base():
            return
        self._make_names_durable()
        present = [n for n in sequences if n >= self.result.base.first_sequence]
        for sequence in sequences:
            if sequence < self.result.base.first_sequence:
                with suppress(StorageError, OSError):  # The next start tries again.
                    self.files.remove(self._path(sequence))
                self.result.found.append(SegmentFinding.COLLECTED)
        headers, bad = self._headers(present)
        for position, header in enumerate(headers):
            successor = headers[position + 1] if position + 1 < len(headers) else None
            if not self._take_segment(header, successor, last=successor is None and bad is None):
                return
        if bad is not None:
            self.damage(SegmentFinding.BAD_HEADER, bad.path, bad.offset or 0, bad.fact)
        self._check_newest(max(present, default=0))
        self._apply_use()

    # -- steps -----------------------------------------------------------------------------------

    def _take_base(self) -> bool:
        path = f"{self.directory}/{base_name(self.log.generation)}"
        try:
            base = read_base(self.files, path)
        except (FileNotFoundError, IsADirectoryError):
            self.damage(SegmentFinding.NO_BASE, path, 0, "there is no base file")
            return False
        except Corrupt as error:
            self.damage(SegmentFinding.NO_BASE, path, 0, error.fact)
            return False
        if base.log != self.log:
            self.damage(SegmentFinding.NO_BASE, path, 0, f"the base file is of log {base.log}")
            return False
        self.result.base = base
        self.result.last = base.base
        return True

    def _make_names_durable(self) -> None:
        """Make the names of the segments durable, and the base file, before a segment below the base is removed."""
        with closing(self.files.open(f"{self.directory}/{base_name(self.log.generation)}")) as file:
            file.sync()
        self.files.sync_directory(self.directory)

    def _headers(self, sequences: Sequence[int]) -> tuple[list[SegmentHeader], Corrupt | None]:
        """Return the headers up to the first invalid one, and the error of that one."""
        headers: list[SegmentHeader] = []
        for sequence in sequences:
            path = self._path(sequence)
            try:
                with closing(self.files.open(path)) as file:
                    data = file.pread(SEGMENT_HEADER_BYTES, 0)
                header = decode_segment_header(data, path)
            except (FileNotFoundError, IsADirectoryError):
                return headers, Corrupt("there is no such file", path=path, offset=0)
            except Corrupt as error:
                return headers, error
            if header.log != self.log or header.sequence != sequence:
                fact = f"the header is of segment {header.sequence} of log {header.log}"
                return headers, Corrupt(fact, path=path, offset=0)
            headers.append(header)
        return headers, None

    def _take_segment(self, header: SegmentHeader, successor: SegmentHeader | None, *, last: bool) -> bool:
        path = self._path(header.sequence)
        if not self._continues(header):
            fact = f"segment {header.sequence} does not continue at {self.result.last}"
            self.damage(SegmentFinding.BROKEN_CHAIN, path, 0, fact)
            return False
        with closing(self.files.open(path)) as file:
            summary = read_summary(file, header.nonce)
            if summary is not None and successor is None:
                # Nothing shows that the footer was synced, so a crash may have left out its middle.
                footer = file.pread(file.size() - summary.end, summary.end)
                if decode_footer(footer, header.nonce) is None:
                    summary = None
                else:
                    file.sync()  # A process that was killed may not have: a successor would state that it is durable.
        base = self.result.base
        recorded = base.newest_end if header.sequence == base.newest_sequence else 0
        if summary is not None:
            found = SegmentFinding.FOOTER if summary.end >= recorded else SegmentFinding.BEFORE_SYNCED
            return self._add(found, path, header, summary, summary.end)
        limit = successor.previous_end if successor is not None else None
        with closing(self.files.open(path, writable=True)) as file:
            scan = scan_segment(file, header, limit)
            scan.synced = max(scan.synced, recorded)
            found = judge_last(scan) if limit is None else judge_sealed(scan, file.size() == limit)
            if last and found.value.verdict is not SegmentVerdict.DAMAGE:
                _make_end_durable(file, header, scan)
        return self._add(found, path, header, scan.index, scan.stop_at)

    def _continues(self, header: SegmentHeader) -> bool:
        """Say whether a segment continues what was recovered so far."""
        segments = self.result.chain.segments
        if not segments:
            starts = header.sequence == self.result.base.first_sequence
            return starts and header.previous.index >= self.result.base.base.index
        before = segments[-1]
        return (
            header.sequence == before.header.sequence + 1
            and header.previous_nonce == before.header.nonce
            and header.previous_end == before.end
            and header.previous == self.result.last
        )

    def _add(
        self, found: SegmentFinding, path: str, header: SegmentHeader, index: SegmentIndex | IndexSummary, at: int = 0
    ) -> bool:
        """Add a segment to the chain; return false if recovery ends with it."""
        verdict = found.value.verdict
        result = self.result
        if not self._fits(index):
            self.damage(SegmentFinding.UNFIT, path, index.end, f"begins at {index.first} after {result.last}")
            return False
        segment = Segment(path, header, index, closed=verdict is SegmentVerdict.CLOSED)
        result.chain.add(segment, index.runs)
        result.last = self._op_id_at(index.next - 1)
        result.commit_hint = min(max(result.commit_hint, index.commit_hint), result.last.index)
        if verdict is SegmentVerdict.DAMAGE:
            self.damage(found, path, at, f"segment {header.sequence} is truncated or invalid")
            return False
        result.found.append(found)
        return True

    def _fits(self, index: SegmentIndex | IndexSummary) -> bool:
        base, last = self.result.base.base, self.result.last
        if not base.index < index.first <= last.index + 1:
            return False
        if index.next == index.first:
            return True
        before = base if index.first == base.index + 1 else self._op_id_at(index.first - 1)
        return before.term <= index.runs.term_at(index.first)

    def _op_id_at(self, index: int) -> OpId:
        base = self.result.base.base
        return base if index == base.index else self.result.chain.op_id_at(index)

    def _check_newest(self, present: int) -> None:
        """Check by the base file that no segment is missing at the end, where no successor would show it."""
        base = self.result.base
        if base.newest_sequence < base.first_sequence or base.use is LogUse.LEAVING:
            return
        if present < base.newest_sequence:
            fact = f"segment {base.newest_sequence} is missing"
            self.damage(SegmentFinding.MISSING, self._path(base.newest_sequence), 0, fact)

    def _apply_use(self) -> None:
        """Report damage for a log whose base file says that it must not be used, even if all of it can be read."""
        base = self.result.base
        path = f"{self.directory}/{base_name(self.log.generation)}"
        if base.use is LogUse.LEAVING:
            self.damage(SegmentFinding.LEAVING, path, 0, "the log is being set aside")
        elif base.use is LogUse.SYNC_FAILED:
            self.damage(SegmentFinding.SYNC_FAILED, path, 0, "a write or sync of this log failed before")

    def _path(self, sequence: int) -> str:
        return f"{self.directory}/{segment_name(self.log.generation, sequence)}"


def _make_end_durable(file: File, header: SegmentHeader, scan: SegmentScan) -> None:
    """Make the end of the last segment durable.

    Cuts what is behind the last valid entry, and writes once more what no later group records as synced.

    Raises:
        StorageError: that failed; the end of the segment must not be trusted.
    """
    if scan.unfinished is not None and not _complete_group(file, header, scan.unfinished, scan.index):
        scan.index = scan_segment(file, header, scan.unfinished.at).index
    end = scan.index.end
    file.truncate(end)
    for start in range(min(scan.synced, end), end, _PIECE_BYTES):
        file.pwritev([file.pread(min(_PIECE_BYTES, end - start), start)], start)
    file.sync()


def _complete_group(file: File, header: SegmentHeader, unfinished: UnfinishedGroup, index: SegmentIndex) -> bool:
    """End an incomplete group behind its last valid entry; return whether that was done.

    A group that lacks only its end mark may have been acknowledged. It stays where it is and gets its mark. Any other
    incomplete group was never acknowledged. It is cut and written again as a shorter group. A power failure during that
    write leaves what it leaves of any group. If there is no space for the shorter group, the result is false, and the
    group may be dropped.

    Raises:
        Full: there is no space for the end mark of a group that may have been acknowledged.
    """
    at, group, mark = unfinished.at, unfinished.group, end_mark_of(header.nonce)
    end = index.end + END_MARK_BYTES
    if unfinished.entries == group.count:
        file.pwritev([mark], index.end)
        index.end = end
        return True
    entries_at = at + GROUP_HEADER_BYTES
    shorter = replace(group, size=end - at, count=unfinished.entries)
    entries = file.pread(index.end - entries_at, entries_at)
    file.truncate(at)
    file.sync()
    try:
        file.pwritev([encode_group_header(shorter, header.nonce), entries, mark], at)
    except Full:
        return False
    index.end = end
    return True
