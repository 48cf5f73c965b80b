"""The messages between the target and the source of a copy. All of them use the lane for bulk.

The constants are message kinds. A copy of a tablet may be made only by a node of the cluster."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from stelae.protocol.codec import decode, encode
from stelae.spi.copy import Alive, PrefixChecksum, SourceAnswer, SourceRequest
from stelae.spi.copy_plan import Chunk
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId
from stelae.spi.services import Buffer

BEGIN_COPY = "copy.begin"  #: ``BeginCopy``, answered with a ``CopyOffer`` once the snapshot is taken.
ASK_COPY = "copy.ask"  #: ``AskSource``, answered as ``encode_answer`` says.
END_COPY = "copy.end"  #: ``EndCopy``, answered with an empty body.

REQUEST_BYTES_MAX = 4096
"""The most bytes of a request. They have ids, names of items and numbers only."""

FORMAT_CHARACTERS_MAX = 64
"""The longest name of a format of files."""


class BeginCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Open a session with a source, or join the one that is open."""

    tablet_id: TabletId
    store_engine: str  #: The target's. Files of rows are sent only if the source's is the same, and so is the format.
    store_format: str  #: ``files_format`` of that engine.
    #: The target's store keeps flushed rows. Otherwise it needs the whole log, and no rows.
    durable_store: bool
    as_export: bool = False  #: Rows as of now, in the form that every store engine reads, and no files.


class AskSource(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a transport."""

    request: SourceRequest


class EndCopy(msgspec.Struct, frozen=True, kw_only=True):
    """End a session."""

    session: str
    #: The item that arrived with other bytes than its digest says. The source then verifies it. Empty: none did.
    damaged: str = ""


class ChunkHead(msgspec.Struct, frozen=True, tag="chunk"):
    """A ``Chunk`` without its data, which are the second frame."""

    offset: int
    crc: int


AnswerHead: TypeAlias = ChunkHead | PrefixChecksum | Alive


class SourceReply(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame of an answer to ``AskSource``."""

    head: AnswerHead


def encode_answer(answer: SourceAnswer) -> list[Buffer]:
    """Return the frames of an answer. The data of a chunk are not copied."""
    if isinstance(answer, Chunk):
        return [encode(SourceReply(head=ChunkHead(answer.offset, answer.crc))), answer.data]
    return [encode(SourceReply(head=answer))]


def decode_answer(frames: list[Buffer]) -> SourceAnswer:
    """Return the answer in these frames. Raises ``CallerError`` if they are malformed."""
    if not frames:
        raise CallerError("an answer to a copy needs a frame")
    head = decode(frames[0], SourceReply).head
    if len(frames) != (2 if isinstance(head, ChunkHead) else 1):
        raise CallerError(f"an answer to a copy has {len(frames)} frames")
    return Chunk(offset=head.offset, data=bytes(frames[1]), crc=head.crc) if isinstance(head, ChunkHead) else head
