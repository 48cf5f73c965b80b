"""Divides the tokens of large tablets by key ranges, and puts the tokens of small tablets together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from stelae.client.arguments import whole
from stelae.client.bounded_calls import each
from stelae.client.page_streams import ReadableTablet
from stelae.client.tokens import ScanToken, TokenPart
from stelae.protocol.tablet_messages import SPLIT_BYTES_MIN
from stelae.spi.ids import TabletId

TABLETS_ASKED_AT_ONCE = 64
"""The most tablets that are asked for their keys at the same time. A table may have thousands of tablets."""


TABLET_BYTES_MIN = 4 << 20
"""Size as which a smaller tablet counts: about what is read in the time that a request to a tablet takes."""

TOKENS_MIN = 64
"""Tokens of a scan that are not put together any further: enough for the tasks of a usual cluster."""


class SizedToken(NamedTuple):
    """A token of one tablet."""

    token: ScanToken
    size_bytes: int | None = None  #: Estimated size of the whole tablet; ``None``: the token reads a part of it.


async def sized(
    tokens: Sequence[ScanToken], tablet: Callable[[TabletId], ReadableTablet], target_bytes: int, timeout_s: float
) -> list[SizedToken]:
    """Return tokens that together read the same rows, each about ``target_bytes`` of them, and their sizes.

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

    async def parts_of(token: ScanToken) -> list[SizedToken]:
        ((part,), spec) = (token.parts or (), token.spec)
        if part.after is not None:
            return [SizedToken(token, None)]
        found = await tablet(part.tablet_id).split_keys(spec, target_bytes, timeout_s=timeout_s)
        if not found.keys:
            return [SizedToken(token, found.size_bytes)]
        return [
            SizedToken(msgspec.structs.replace(token, spec=msgspec.structs.replace(spec, key_from=low, key_until=high)))
            for low, high in pairwise((spec.key_from, *found.keys, spec.key_until))
        ]

    divided_tokens = await each(tokens, parts_of, at_once=TABLETS_ASKED_AT_ONCE)
    return [token for parts in divided_tokens for token in parts]


def combined(tokens: Sequence[SizedToken], target_bytes: int) -> list[ScanToken]:
    """Put tokens of whole tablets together, so that one token reads up to about ``target_bytes``. Pure.

    Only neighbours that differ in nothing but the tablet are put together. In a feed, a tablet that is read whole, or
    from or to a key, has another scan than the others.

    A tablet counts as at least ``TABLET_BYTES_MIN``, because a request to it takes time even if it has no rows. At
    least ``TOKENS_MIN`` tokens are left, if there are as many, so that a small table is still read by several tasks.

    Args:
        tokens: tokens of one scan or feed, each of one tablet.
        target_bytes: the size to aim for.
    """
    sizes = [max(token.size_bytes or 0, TABLET_BYTES_MIN) for token in tokens]
    bytes_max = min(target_bytes, sum(sizes) // TOKENS_MIN)
    found: list[ScanToken] = []
    group: list[TokenPart] = []
    group_bytes = 0
    for (token, size), size_bytes in zip(tokens, sizes, strict=True):
        fits = size is not None and group and group_bytes + size_bytes <= bytes_max
        if fits and (token.spec, token.since) == (found[-1].spec, found[-1].since):
            group += token.parts or ()
            group_bytes += size_bytes
            found[-1] = msgspec.structs.replace(found[-1], parts=tuple(group))
            continue
        found.append(token)
        group, group_bytes = ([*(token.parts or ())], size_bytes) if size is not None else ([], 0)
    return found
