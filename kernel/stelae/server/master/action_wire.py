"""How actions travel to tablet servers; answers are empty, or an error."""

from __future__ import annotations

import msgspec

from stelae.server.master.actions import Action
from stelae.spi.errors import CallerError
from stelae.spi.services import Buffer

ACTION = "tserver.act"

_DECODER: msgspec.msgpack.Decoder[Action] = msgspec.msgpack.Decoder(Action)


def encode_action(action: Action) -> bytes:
    """Return the body of a request."""
    return msgspec.msgpack.encode(action)


def decode_action(data: Buffer) -> Action:
    """Read what :func:`encode_action` wrote; ``CallerError``: it is no action."""
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"malformed action: {error}") from error
