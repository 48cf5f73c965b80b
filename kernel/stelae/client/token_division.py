"""Divides the tokens of large tablets by key ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from stelae.client.arguments import whole
from stelae.client.bounded_calls import each
from stelae.client.page_streams import ReadableTablet
from stelae.client.tokens import ScanToken
from stelae.protocol.tablet_messages import SPLIT_BYTES_MIN
from stelae.spi.ids import TabletId

TABLETS_ASKED_AT_ONCE = 64
"""The most tablets that are asked for their keys at the same time. A table may have thousands of tablets."""


async def divided(
    tokens: Sequence[ScanToken], tablet: Callable[[TabletId], ReadableTablet], target_bytes: int, timeout_s: float
) -> list[ScanToken]:
    """Return tokens that together read the same rows, each about ``target_bytes`` of them.

    The key ranges of the new tokens are next to each other, so they are right even if the estimate is not.

    Args:
        tokens: tokens of one tablet each. One that is to continue behind a row is not divided.
        tablet: returns a tablet by its id.
        target_bytes: the size to aim for.
        timeout_s: how long each tablet is asked.

    Raises:
        BadArgument: ``target_bytes`` is less than ``SPLIT_BYTES_MIN``.
        Unavailable: no replica of a tablet answered in time.
    """
    whole("target_bytes", target_bytes, SPLIT_BYTES_MIN)

    async def parts_of(token: ScanToken) -> list[ScanToken]:
        ((part,), spec) = (token.parts or (), token.spec)
        if part.after is not None:
            return [token]
        keys = await tablet(part.tablet_id).split_keys(spec, target_bytes, timeout_s=timeout_s)
        return [
            msgspec.structs.replace(token, spec=msgspec.structs.replace(spec, key_from=low, key_until=high))
            for low, high in pairwise((spec.key_from, *keys, spec.key_until))
        ]

    divided_tokens = await each(tokens, parts_of, at_once=TABLETS_ASKED_AT_ONCE)
    return [token for parts in divided_tokens for token in parts]
