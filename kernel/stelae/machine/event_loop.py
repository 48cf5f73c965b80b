"""The event loop of a node.

asyncio asks the operating system for events before every round of callbacks, also when callbacks are
waiting already. A turn of a node takes two rounds (what came in; what is to be done about it), so every
other question could be spared: on two busy cores each costs some 25 us of a leader's time."""

import asyncio
import selectors


class SparingSelector(selectors.DefaultSelector):
    """Asks for events every other time at least, and whenever the loop is ready to wait."""

    _spared = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; nothing, if callbacks wait and the last call did ask."""
        if timeout is not None and timeout <= 0 and not self._spared:
            self._spared = True
            return []
        self._spared = False
        return super().select(timeout)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make the loop that a node runs on."""
    return asyncio.SelectorEventLoop(SparingSelector())
