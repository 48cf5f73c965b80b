"""All logs of the node at one instant, as they stand at the head of every segment.

Each segment begins with an image of what was true before its first record: per log base, terms,
and the extents with the segments that hold them. So recovery needs no segment but the newest one,
nothing of a log that is gone or idle pins an old segment, and an entry that was moved can never
bring back what was replaced after it: which segment holds which index is said, not inferred."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stelae.spi.errors import SyncFailed
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.wal import Damage
from stelae_wal_shared.decisions import SharedFinding
from stelae_wal_shared.runs import TermRuns
from stelae_wal_shared.segment import SharedSegment, segment_path
from stelae_wal_shared.tablet_log import Extent, SharedTabletLog


class SegmentImage(msgspec.Struct, frozen=True, array_like=True):
    """A closed segment that is still needed."""

    number: int
    nonce: int
    start: int
    end: int
    entries: int


class DamageImage(msgspec.Struct, frozen=True, array_like=True):
    """Where and why a log is corrupt, or that a sync failed; the path is relative to the directory."""

    path: str
    offset: int
    detail: str


class LogImage(msgspec.Struct, frozen=True, array_like=True):
    """A log. ``extents`` are (first index, index behind the last one, number of the segment)."""

    tablet: str
    generation: int
    number: int
    order: int
    base: tuple[int, int]
    commit_hint: int
    runs: list[tuple[int, int]]
    extents: list[tuple[int, int, int]]
    damage: DamageImage | None = None


class NodeImage(msgspec.Struct, frozen=True, array_like=True):
    """Everything. ``next_number`` is above the number of every log there ever was."""

    next_number: int
    segments: list[SegmentImage]
    logs: list[LogImage]


def take_image(
    directory: str, next_number: int, segments: Iterable[SharedSegment], logs: Iterable[SharedTabletLog]
) -> bytes:
    """Return the bytes of an image."""
    image = NodeImage(
        next_number,
        [SegmentImage(one.number, one.nonce, one.start, one.end, one.entries) for one in segments],
        [_image_of(directory, log) for log in logs],
    )
    return msgspec.msgpack.encode(image)


def read_image(data: bytes) -> NodeImage:
    """Return the image that these bytes are, whose checksum holds."""
    return _DECODER.decode(data)


_DECODER = msgspec.msgpack.Decoder(NodeImage)


class Restored:
    """The engine's state as an image tells it.

    Args:
        directory: the engine's.
        image: what was true.
        own: the segment in which the image stands, if that is behind its records.
    """

    def __init__(self, directory: str, image: NodeImage, own: SharedSegment | None = None) -> None:
        self.next_number = image.next_number
        self.segments: dict[int, SharedSegment] = {} if own is None else {own.number: own}
        self.logs: dict[LogId, SharedTabletLog] = {}
        for one in image.segments:
            path = segment_path(directory, one.number)
            self.segments[one.number] = SharedSegment(one.number, one.nonce, path, one.start, one.end, one.entries)
        for log in image.logs:
            self._add(directory, log)

    def _add(self, directory: str, image: LogImage) -> None:
        log = SharedTabletLog(LogId(TabletId(image.tablet), image.generation), image.number, OpId(*image.base))
        log.order = image.order
        log.commit_hint = image.commit_hint
        log.runs = TermRuns(image.runs)
        for first, end, number in image.extents:
            segment = self.segments[number]
            segment.live += end - first
            log.extents.append(Extent(first, end, segment))
        if log.extents:
            log.last = log.durable = log.op_id_at(log.extents[-1].end - 1)
        if image.damage is not None:
            path, offset, detail = image.damage.path, image.damage.offset, image.damage.detail
            log.damage = Damage(
                path=f"{directory}/{path}".rstrip("/"), offset=offset, last_good=log.last, detail=detail
            )
        self.logs[log.name] = log


def _image_of(directory: str, log: SharedTabletLog) -> LogImage:
    return LogImage(
        tablet=log.name.tablet_id,
        generation=log.name.generation,
        number=log.number,
        order=log.order,
        base=log.base,
        commit_hint=log.commit_hint,
        runs=log.runs.pairs(),
        extents=[(extent.first, extent.end, extent.segment.number) for extent in log.extents],
        damage=_damage_of(directory, log),
    )


def _damage_of(directory: str, log: SharedTabletLog) -> DamageImage | None:
    """What to remember of damage or a failed sync; nothing of a full disk, which a restart forgets."""
    if log.damage is not None:
        path, offset, detail = log.damage.path, log.damage.offset, log.damage.detail
    elif log.failed is not None and isinstance(log.failed.error, SyncFailed):
        error = log.failed.error
        path, offset = error.path, error.offset or 0
        detail = f"{error.fact} (recovery row {SharedFinding.SYNC_FAILED.value.letter})"
    else:
        return None
    return DamageImage(path.removeprefix(directory).lstrip("/"), offset, detail)
