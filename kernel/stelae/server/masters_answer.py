"""The answer of a node that was asked which masters it knows (``masters.list``)."""

from __future__ import annotations

import logging

from stelae.protocol.codec import decode
from stelae.protocol.masters_messages import MastersView
from stelae.server.master.driver.ports import PendingCall
from stelae.spi.errors import StelaeError

log = logging.getLogger(__name__)


def masters_in(call: PendingCall) -> MastersView | None:
    """Return the view in the answer of a call that has ended; ``None``: no answer came, as from a node that is down, or
    it is not readable, which is logged."""
    if call.cancelled() or call.exception() is not None:
        return None
    try:
        return decode(call.result().body[0], MastersView)
    except (StelaeError, IndexError) as error:
        log.warning("a list of masters is not readable: %s", error)
        return None
