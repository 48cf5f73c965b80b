"""The place of a node whose process is simulated: messages that arrive are turns of the process."""

from __future__ import annotations

from collections.abc import Callable

from stelae.sim.masters.network import SimAddress
from stelae.sim.process import Process


class ProcessPlace(SimAddress):
    """A place with a process, through all of its runs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.up = False
        self._process: Process | None = None

    def begin(self, process: Process) -> None:
        """Receive messages for a process that starts."""
        self._process, self.up, self.paused = process, True, False

    @property
    def in_turn(self) -> bool:
        """Whether a turn of the process is running just now."""
        return self._process is not None and self._process.in_turn

    def receive(self, deliver: Callable[[], None]) -> None:
        """Run ``deliver`` as a turn of the process, now or when it goes on; never, if no process runs."""
        if self._process is not None:
            self._process.run(deliver)

    def emit(self, call: Callable[[], None]) -> None:
        """Let something leave the process: now, or when it goes on if it was paused within this turn."""
        process = self._process
        if process is None or not process.alive:
            return
        if process.paused:
            process.run(call)
        else:
            call()

    def pause(self) -> None:
        """Let the process stand still, with its threads and timers."""
        if self._process is not None:
            self.paused = True
            self._process.pause()

    def resume(self) -> None:
        """Let the process go on."""
        self.paused = False
        if self._process is not None and self._process.paused:
            self._process.resume()

    def stop(self) -> None:
        """End the process; nothing of it runs any more."""
        if self._process is not None:
            self._process.end()
        self._process, self.up, self.paused = None, False, False
