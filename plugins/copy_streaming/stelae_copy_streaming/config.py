"""The settings of the transport: the section ``[copy.streaming]`` of ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.copy_plan import CHUNK_BYTES_MAX
from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingConfig:
    """Settings of both sides. They hold for every copy of the node, also for those that a leader starts."""

    source_slots: int = setting(
        8,
        unit="count",
        low=1,
        high=1024,
        reason="copies that this node serves at a time; each holds disk space; more than those to a node, because each "
        "is held until the copied replica has caught up",
    )
    target_slots: int = setting(
        4, unit="count", low=1, high=64, reason="copies to this node at a time; each has a thread"
    )
    session_ttl_ms: int = setting(
        60_000,
        unit="ms",
        low=100,
        high=3_600_000,
        reason="for this time an idle session holds log and files of its source",
    )
    chunk_bytes: int = setting(
        1 << 20, unit="bytes", low=4096, high=CHUNK_BYTES_MAX, reason="larger ones gain little and delay other answers"
    )
    chunks_in_flight: int = setting(
        8, unit="count", low=1, high=256, reason="per copy: hides the way to the source, and bounds memory"
    )
    fetch_bytes_per_s_max: int = setting(
        0, unit="bytes/s", low=0, high=1 << 40, reason="for all copies to this node together; 0: no limit"
    )
    serve_bytes_per_s_max: int = setting(
        0, unit="bytes/s", low=0, high=1 << 40, reason="for all copies from this node together; 0: no limit"
    )
    busy_bytes_per_s_max: int = setting(
        64 << 20,
        unit="bytes/s",
        low=0,
        high=1 << 40,
        reason="the limit of each side that has no other one, while clients read or write much on the node: copies may "
        "take longer, clients wait; 0: no limit",
    )
