"""The network endpoint of a node with a simulated process: each arriving message is a turn of the process."""

from __future__ import annotations

from collections.abc import Callable

from stelae.sim.masters.network import SimEndpoint
from stelae.sim.process import Process


class ProcessEndpoint(SimEndpoint):
    """The endpoint of one node, across all runs of its process."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.up = False
        self._process: Process | None = None

    def begin(self, process: Process) -> None:
        """Deliver messages to a process that starts."""
        self._process, self.up, self.paused = process, True, False

    @property
    def in_turn(self) -> bool:
        """True while a turn of the process runs."""
        return self._process is not None and self._process.in_turn

    def receive(self, deliver: Callable[[], None]) -> None:
        """Run ``deliver`` as a turn of the process, now or after a pause. It never runs if no process runs."""
        if self._process is not None:
            self._process.run(deliver)

    def emit(self, call: Callable[[], None]) -> None:
        """Send something from the process: now, or after the pause if the process was paused within this turn."""
        process = self._process
        if process is None or not process.alive:
            return
        if process.paused:
            process.run(call)
        else:
            call()

    def pause(self) -> None:
        """Pause the process, with its threads and timers."""
        if self._process is not None:
            self.paused = True
            self._process.pause()

    def resume(self) -> None:
        """Resume the process."""
        self.paused = False
        if self._process is not None and self._process.paused:
            self._process.resume()

    def stop(self) -> None:
        """End the process. None of its calls runs any more."""
        if self._process is not None:
            self._process.end()
        self._process, self.up, self.paused = None, False, False
