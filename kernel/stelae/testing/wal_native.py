"""The harness for a log engine whose library does its own input and output.

No virtual disk gets between such an engine and the machine's. It lives on a real directory; what a loss of power
may leave of it is computed from what it was recorded to do (``stelae.testing.recorder``), and opened in a process
of its own, which a damaged file may kill."""

from __future__ import annotations

import msgspec

from stelae.spi.wal import WalEngine
from stelae.testing.recorder.scenario import Spec
from stelae.testing.wal_harness import RealHarness


class NativeHarness(RealHarness):
    """On a directory of the machine; engines do not outlive their crash, for they share a process with the next.

    Args:
        engine_type: the engine under test; a child imports it by module and name.
        root: an empty directory.
        config: its settings; its defaults if ``None``.
        setup: functions that a child calls before anything else, as ``module:name``.
        shortcut: further ones in the children that judge; what is found wrong with them is judged again without.
            For an engine that is slow to open where it may be lying, and quick where it may die.
        mapped: names of files that it writes through a shared mapping, and whose contents mean nothing after a
            restart of the machine. A mapping of any other file cannot be recorded and is an error.
    """

    def __init__(
        self,
        engine_type: type[WalEngine],
        root: str,
        config: object | None = None,
        *,
        setup: tuple[str, ...] = (),
        shortcut: tuple[str, ...] = (),
        mapped: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(engine_type, root, config)
        self.setup = setup
        self.shortcut = shortcut
        self.mapped = mapped

    @property
    def root(self) -> str:
        """The directory that all else is below; tests may put more beside ``0``, ``1`` and so on."""
        return self._root

    def crash(self, engine: WalEngine | None = None) -> None:
        """Go on with a copy of the directory as the process left it."""
        super().crash(engine)
        if engine is not None:
            engine.close()

    def spec(self, scenario: str, *arguments: int) -> Spec:
        """What a child needs to know to live through a scenario with this engine."""
        return Spec(
            engine=f"{self.engine_type.__module__}:{self.engine_type.__qualname__}",
            config=msgspec.Raw(msgspec.json.encode(self.config)),
            setup=self.setup,
            scenario=scenario,
            arguments=arguments,
        )
