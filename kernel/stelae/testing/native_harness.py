"""The harness for a log engine whose library does its own input and output.

Such an engine cannot run on a virtual disk. It runs on a real directory. The states that a loss of power may leave are
computed from its recorded calls (``stelae.testing.recorder``), and each is opened in a child process, because a damaged
file may kill the process."""

from __future__ import annotations

import msgspec

from stelae.spi.wal import WalEngine
from stelae.testing.recorder.scenario import Spec
from stelae.testing.wal_harness import RealHarness


class NativeHarness(RealHarness):
    """A harness on a directory of the machine. ``crash`` also closes the engine, which shares a process with the next.

    Args:
        engine_type: the engine under test; a child imports it by module and name.
        root: an empty directory.
        config: its settings; its defaults if ``None``.
        setup: functions that a child calls before anything else, as ``module:name``.
        shortcut: further such functions, for the children that check states. A state that fails is checked again
            without them. For engines that open faster with a setup that may give wrong results.
        mapped: names of files that the engine writes through a shared mapping, and whose contents do not matter after
            a restart of the machine. A mapping of any other file cannot be recorded and is an error.
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
        """The directory of the harness. Tests may add others beside its ``0``, ``1`` and so on."""
        return self._root

    def crash(self, engine: WalEngine | None = None) -> None:
        """Go on with a copy of the directory, and close the engine on the old one."""
        super().crash(engine)
        if engine is not None:
            engine.close()

    def spec(self, scenario: str, *arguments: int) -> Spec:
        """Return what a child needs to run a scenario with this engine."""
        return Spec(
            engine=f"{self.engine_type.__module__}:{self.engine_type.__qualname__}",
            config=msgspec.Raw(msgspec.json.encode(self.config)),
            setup=self.setup,
            scenario=scenario,
            arguments=arguments,
        )
