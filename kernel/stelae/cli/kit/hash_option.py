"""Parser of the option ``--hash COLUMNS:BUCKETS``, which is one hash level of a partition schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stelae.partition.schema import BadPartitioning

_HASH = re.compile(r"([^:]+):(\d{1,5})")


def read_hash(text: str) -> Mapping[str, Any]:
    """Return a hash level as ``stelae.partition.plain_partitioning`` reads it, from ``column,column:buckets``.

    Raises:
        BadPartitioning: the text has another form.
    """
    found = _HASH.fullmatch(text.strip())
    if found is None:
        raise BadPartitioning(f"--hash takes COLUMNS:BUCKETS, such as sensor:4, not {text!r}")
    names = [name.strip() for name in found[1].split(",") if name.strip()]
    return {"columns": names, "buckets": int(found[2])}
