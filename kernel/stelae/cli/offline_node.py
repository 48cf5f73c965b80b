"""A stopped node, for commands: locked, with its log ready to be opened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from stelae.cli.kit.output import note
from stelae.cli.no_node_here import instance_in
from stelae.cli.node_config import read_config
from stelae.client.counted import counted
from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae.config.source import ConfigSource, fill
from stelae.convert.consensus_engine import ChangedTablet, change_engine
from stelae.convert.conversion import ConversionPaths, ConversionPlan, convert, settle
from stelae.convert.offline import InlineWorkers, ProgressMeter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import InstanceFile, lock_directory
from stelae.host.settings import ChosenEngine
from stelae.lifecycle.startup_decisions import TabletFinding, lost_logs, scan_tablets
from stelae.machine.files import RealFiles
from stelae.machine.metrics import NodeMetrics
from stelae.machine.system_clock import SystemClock
from stelae.spi.errors import CallerError, Corrupt
from stelae.spi.services import EngineServices
from stelae.spi.wal import WalEngine

PROGRESS_EVERY_S = 1.0


class PrintingMeter(ProgressMeter):
    """Prints the progress of work on standard error once a second. Shorter work prints nothing."""

    def begin(self, phase: str, entries: int) -> None:
        """Start a phase of work on ``entries`` entries."""
        self._phase, self._total = phase, entries
        self._entries = self._bytes = 0
        self._began_s = self._printed_s = time.monotonic()

    def add(self, entries: int, size_bytes: int) -> None:
        """Count entries that are done."""
        self._entries += entries
        self._bytes += size_bytes
        now_s = time.monotonic()
        if now_s - self._printed_s >= PROGRESS_EVERY_S:
            self._printed_s = now_s
            left_s = (now_s - self._began_s) / self._entries * (self._total - self._entries)
            done = f"{self._entries} of {self._total} entries, {self._bytes / (1 << 20):.0f} MiB"
            note(f"{self._phase}: {done}, about {left_s:.0f} s left")


class OfflineNode:
    """The locked directory of a stopped node. An interrupted conversion has been completed.

    Attributes:
        root: the directory.
        configured: the log engine that the node.toml chooses; ``None``: no node.toml is given.
        configured_consensus: the consensus engine that the node.toml chooses, likewise.
        settled: a message about a conversion that was completed; empty: there was none.
        set_aside: the directory in quarantine of the log that :meth:`convert` has moved away; empty: there is none."""

    def __init__(self, directory: str | None, config: str | None) -> None:
        if (directory is None) == (config is None):
            raise CallerError("pass either the directory of a node or --config with its node.toml")
        self._registry = Registry.installed()
        self._source: ConfigSource | None = None
        self.configured: str | None = None
        self.configured_consensus: str | None = None
        self.root = os.path.abspath(directory or "")
        if config is not None:
            settings = read_config(config, self._registry)
            self.root, self.configured = settings.node.directory, settings.wal.name
            self.configured_consensus = settings.consensus.name
            with open(config, encoding="utf-8") as file:
                self._source = ConfigSource.parse(file.read(), config)
        self.settled = self.set_aside = ""
        self._layout = DirectoryLayout(self.root)
        self._services = EngineServices(
            files=RealFiles(), clock=SystemClock(), metrics=NodeMetrics(), workers=InlineWorkers()
        )

    @classmethod
    @contextmanager
    def opened(cls, directory: str | None, config: str | None) -> Iterator[OfflineNode]:
        """Lock the directory and complete an interrupted conversion. Unlock it at the end.

        Raises:
            CallerError: neither or both of directory and ``--config`` are given.
            NoNodeHere: the directory has no node.
            Locked: the node runs, or another command has locked it.
            ConfigError, PluginError, StorageError: as reading node.toml and ``settle``."""
        node = cls(directory, config)
        files = node._services.files
        instance_in(node.root, near=config is None)
        lock = lock_directory(files, node._layout, os.getpid(), offline=True)
        try:
            node.settled = settle(files, node._layout)
            yield node
        finally:
            lock.release()

    @property
    def wal_engine(self) -> str:
        """Return the name of the engine of the log."""
        return InstanceFile(self._services.files, self._layout).load().wal_engine

    @property
    def layout(self) -> DirectoryLayout:
        """Return the layout of the directory."""
        return self._layout

    @property
    def services(self) -> EngineServices:
        """Return the services that engines get."""
        return self._services

    @contextmanager
    def engine(self) -> Iterator[WalEngine]:
        """Open the log with its engine. Close it at the end."""
        picked = self.picked(self.wal_engine)
        engine: WalEngine = picked.engine.open(self._layout.wals, picked.config, self._services)
        try:
            yield engine
        finally:
            engine.close()

    def findings(self, wal: WalEngine) -> list[TabletFinding]:
        """Return what a start of the node would find of each tablet. ``wal`` is the open engine of its log."""
        return scan_tablets(self._services.files, self._layout, wal.logs(), wal.op_id_at)

    def convert(self, to: str, meter: ProgressMeter, *, dry_run: bool) -> ConversionPlan:
        """Convert the log to another engine.

        Raises as ``stelae.convert.conversion.convert``, and ``Corrupt`` if a replica has lost its log."""
        source, target = self.picked(self.wal_engine), self.picked(to)
        self._check_one_disk()
        self._check_no_log_is_lost()
        before = self._quarantined()
        plan = convert(ConversionPaths(self._layout, self._services), source, target, meter, dry_run=dry_run)
        self.set_aside = ", ".join(sorted(self._quarantined() - before))
        return plan

    def change_consensus(self, to: str, meter: ProgressMeter, *, dry_run: bool) -> list[ChangedTablet]:
        """Change the consensus engine of all tablets. Raises as ``stelae.convert.consensus_engine.change_engine``."""
        target = self.picked(to, EngineKind.CONSENSUS)
        paths = ConversionPaths(self._layout, self._services)
        with self.engine() as wal:
            return change_engine(paths, wal, target, meter, dry_run=dry_run)

    def _quarantined(self) -> set[str]:
        files, quarantine = self._services.files, self._layout.quarantine
        return {f"{quarantine}/{name}" for name in files.listdir(quarantine)} if files.exists(quarantine) else set()

    def picked(self, name: str, kind: EngineKind = EngineKind.WAL) -> ChosenEngine:
        """Return an engine with its settings from node.toml. ``PluginError``: it is not installed."""
        engine = self._registry.engine(kind, name)
        config = engine.Config()
        if self._source is not None:
            config = fill(self._source, (kind.value, name), engine.Config)
        return ChosenEngine(name=name, engine=engine, config=config)

    def _check_no_log_is_lost(self) -> None:
        with self.engine() as wal:
            lost = lost_logs(self.findings(wal))
        if lost:
            fact = f"logs are lost ({counted(len(lost), 'replica')}); nothing was changed"
            step = "if the log is on a disk of its own, mount it; otherwise replace these replicas from their peers"
            listed = "\n".join(f"{one.tablet_id}: {one.failure}" for one in lost)
            raise Corrupt(f"{fact}; {step}\n{listed}", path=self._layout.wals)

    def _check_one_disk(self) -> None:
        """Raise ``CallerError`` if the log cannot be replaced by renaming: it is a link or on another file system."""
        devices = {path: os.stat(path).st_dev for path in (self.root, self._layout.wals)}
        if os.path.exists(self._layout.quarantine):
            devices[self._layout.quarantine] = os.stat(self._layout.quarantine).st_dev
        linked = [path for path in devices if path != self.root and os.path.islink(path)]
        if linked or len(set(devices.values())) > 1:
            odd = linked or [path for path, device in devices.items() if device != devices[self.root]]
            fact = (
                f"{', '.join(odd)} is a link or on another disk than {self.root}, so it cannot be replaced by renaming"
            )
            raise CallerError(f"{fact}; move it into the directory for the conversion, and back afterwards")
