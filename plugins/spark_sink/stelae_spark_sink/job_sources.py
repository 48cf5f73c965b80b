"""Names the sources under which a job writes its epochs (ADR 64). Pure.

Tablets know one highest epoch for each source. Writes that are complete each by itself, although they have one source
and epoch for the user, need names of their own: two operations of one batch, a stream and a job, overwrites of two
parts of a table, and the rejects of two tables."""

from __future__ import annotations

import json
from hashlib import blake2b

from stelae.spi.ids import SOURCE_LENGTH_MAX
from stelae.spi.write import SourceFence, checked_fence
from stelae_spark_sink.options import OPERATION, REPLACE_WHERE, SourceOptions

_HASH_BYTES = 8


def source_of(source: str, operation: str) -> str:
    """Return the source of the writes of one operation, given the user's name of the source."""
    return _joined(source, operation)


def source_of_job(source: str, options: SourceOptions, *, overwrite: bool) -> str:
    """Return the source of the writes of a job, given the value of its option ``source``."""
    if not overwrite:
        return source_of(source, options[OPERATION].name.lower())
    where = options.get(REPLACE_WHERE)
    part = "" if where is None else f"-{_hash(json.dumps(where))}"
    return source_of(source, f"overwrite{part}")


def source_of_stream(source: str, options: SourceOptions) -> str:
    """Return the source of the writes of a stream, given the value of its option ``source``.

    It is not that of a job: jobs number their epochs in another way."""
    return source_of(source, f"stream-{options[OPERATION].name.lower()}")


def rejects_fence(fence: SourceFence, table: str) -> SourceFence:
    """Return the fence of the rejects of a job, in a table of rejects that other tables share.

    The epoch of one table may be complete while rejects of another one have to be written, so the table is a part.

    Args:
        fence: source and epoch of the job.
        table: name of the table of the job.
    """
    return checked_fence(_joined(fence.source, f"table-{_hash(table)}"), fence.epoch)


def _joined(source: str, what: str) -> str:
    """Return a name with another one behind it. A long name is cut, with a hash of all of it."""
    found = f"{source}/{what}"
    if len(found) <= SOURCE_LENGTH_MAX:
        return found
    end = f"/{_hash(source)}/{what}"
    return source[: SOURCE_LENGTH_MAX - len(end)] + end


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=_HASH_BYTES).hexdigest()
