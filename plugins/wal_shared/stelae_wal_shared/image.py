"""An image of all logs of the node at one instant, which the head of every segment has.

The image of a segment is the state before its first record: for each log its base, its terms, and its extents with the
segments that have them. This has three consequences. Recovery replays only the newest segment. Control records of a
dropped or idle log do not pin an old segment. And a moved entry can never bring back an entry that was replaced after
the move, because the image says which segment has which index."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stelae.spi.errors import SyncFailed
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.wal import Damage
from stelae_shared.log_files.term_runs import TermRuns
from stelae_wal_shared.decisions import SharedFinding
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
    """The damage of a log, or its failed sync. The path is relative to the directory."""

    path: str
    offset: int
    detail: str


class LogImage(msgspec.Struct, frozen=True, array_like=True):
    """The image of a log. ``extents`` are (first index, index behind the last one, number of the segment)."""

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
    """The image of the node. ``next_number`` is above the number of every log that ever existed."""

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
    """Decode an image whose checksum was verified."""
    return _DECODER.decode(data)


_DECODER = msgspec.msgpack.Decoder(NodeImage)


class RestoredState:
    """The logs and segments of an image.

    Args:
        directory: of the engine.
        image: the image.
        own: the segment whose footer has the image; ``None`` for an image in a head.
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
        runs=list(log.runs),
        extents=[(extent.first, extent.end, extent.segment.number) for extent in log.extents],
        damage=_damage_of(directory, log),
    )


def _damage_of(directory: str, log: SharedTabletLog) -> DamageImage | None:
    """Return the damage or failed sync to store. A full disk is not stored, because a restart forgets it."""
    if log.damage is not None:
        path, offset, detail = log.damage.path, log.damage.offset, log.damage.detail
    elif log.failed is not None and isinstance(log.failed.error, SyncFailed):
        error = log.failed.error
        path, offset = error.path, error.offset or 0
        detail = f"{error.fact} (recovery row {SharedFinding.SYNC_FAILED.value.letter})"
    else:
        return None
    return DamageImage(path.removeprefix(directory).lstrip("/"), offset, detail)
