"""Carries out ``stelae tserver run`` and ``stelae master run``: runs a node until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
from dataclasses import replace

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK, exit_code
from stelae.cli.node_config import read_config
from stelae.cli.without_pandas import without_pandas
from stelae.config.observers import HookObserver
from stelae.config.registry import Registry
from stelae.convert.conversion import building, settle
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import InstanceFile, NotFormatted, lock_directory
from stelae.host.node import Node
from stelae.host.settings import NodeConfig
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.local.chaos.clock_rules import SkewedClock
from stelae.local.chaos.disk_rules import DiskFaults
from stelae.local.chaos.network_rules import NetworkFaults
from stelae.local.chaos.settings import ChaosSettings
from stelae.machine.event_loop import new_event_loop
from stelae.machine.faulty_files import FaultyFiles
from stelae.machine.open_files import raise_open_files_limit
from stelae.machine.real import RealMachine
from stelae.machine.system_clock import SystemClock
from stelae.server.limits import batchers_of
from stelae.server.master import plugin as master
from stelae.server.master.driver.first_start import SystemTabletLoader
from stelae.server.master.role import as_master
from stelae.server.tserver import plugin as tserver
from stelae.server.tserver.described_tablet import DescribedTabletLoader
from stelae.server.tserver.leadership import hand_over
from stelae.server.tserver.role import check_tablet_server
from stelae.spi.errors import ConfigError, StelaeError, StorageError
from stelae.telemetry.leadership_counts import CountingObserver
from stelae.telemetry.log_lines import JsonLines, TextLines
from stelae.telemetry.node_log import start_log
from stelae.telemetry.node_metrics import NodeMetricsServer
from stelae.telemetry.settings import LogFormat, LoggingSettings
from stelae.wire.refusals import StaleSender

log = logging.getLogger("stelae")


def run_node(
    config_path: str,
    *,
    until_stdin_closes: bool,
    verbose: bool,
    log_format: LogFormat | None = None,
    is_master: bool = False,
) -> int:
    """Run a tablet server or a master, and return the exit code of the process.

    Args:
        config_path: the ``node.toml``.
        until_stdin_closes: stop when standard input closes.
        verbose: log at level debug.
        log_format: the log format, instead of that of the ``node.toml``.
        is_master: run a master.

    Raises:
        StelaeError: the node cannot start.
    """
    without_pandas()
    registry = Registry.installed()
    registry.register(tserver, "service.tserver")
    if is_master:
        registry.register(master, "service.master")
    config = read_config(config_path, registry)
    if is_master:
        config = as_master(config, config_path)
    else:
        check_tablet_server(config, config_path)
    machine = _machine(config)
    form = _start_log(config, machine, verbose=verbose, log_format=log_format)
    if isinstance(machine.files, FaultyFiles):
        log.warning("[chaos] disk_rules is set: anyone who can write that file can inject disk failures into this node")
    if machine.network_faults is not None:
        log.warning("[chaos] network_rules is set: anyone who can write that file can drop messages of this node")
    if isinstance(machine.clock, SkewedClock):
        log.warning("[chaos] clock_rules is set: anyone who can write that file can change the clock of this node")
    try:
        return _run(config, registry, machine, form, until_stdin_closes=until_stdin_closes, is_master=is_master)
    except StelaeError as error:
        if isinstance(error, ConfigError) and not error.where:
            error = ConfigError(error.fact, where=config_path, hint=error.hint)
        if isinstance(error, NotFormatted):
            error = NotFormatted(config.node.directory, config=config_path)
        if not isinstance(form, JsonLines):
            raise error from None
        log.error("node ends reason=%s", error)  # A JSON line like the others, instead of plain text.
        return exit_code(error)


def _run(
    config: NodeConfig,
    registry: Registry,
    machine: RealMachine,
    form: JsonLines | TextLines,
    *,
    until_stdin_closes: bool,
    is_master: bool,
) -> int:
    raise_open_files_limit()
    layout = DirectoryLayout(config.node.directory)
    form.node_id = _name_of(machine, layout)
    metrics = NodeMetricsServer(config, machine, "master" if is_master else "tserver")
    try:
        _settle_log(machine, layout)
        node = Node(
            config,
            services=registry.services(),
            machine=machine,
            batcher=batchers_of(config),
            tablets=_loader_class(config, is_master=is_master),
            observer=CountingObserver(machine.metrics, HookObserver(registry)),
        )
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(node, metrics, until_stdin_closes))
    finally:
        metrics.close()


def _loader_class(config: NodeConfig, *, is_master: bool) -> type[TabletLoader]:
    if is_master:
        return SystemTabletLoader
    return TabletLoader if config.masters else DescribedTabletLoader


def _machine(config: NodeConfig) -> RealMachine:
    """Return this machine. If the section ``[chaos]`` has rules, its disk, network and clock can go wrong."""
    chaos: ChaosSettings = config.extra["chaos"]
    return RealMachine(
        files=FaultyFiles(DiskFaults(chaos.disk_rules, config.node.directory)) if chaos.disk_rules else None,
        clock=SkewedClock(chaos.clock_rules, SystemClock()) if chaos.clock_rules else None,
        network_faults=NetworkFaults(chaos.network_rules, random.Random()) if chaos.network_rules else None,
    )


def _start_log(
    config: NodeConfig, machine: RealMachine, *, verbose: bool, log_format: LogFormat | None
) -> JsonLines | TextLines:
    """Start the log with the settings of the file. Options of the command line override them."""
    settings: LoggingSettings = config.extra["logging"]
    if verbose:
        settings = replace(settings, level="debug")
    if log_format is not None:
        settings = replace(settings, format=log_format)
    return start_log(settings, machine.metrics)


def _name_of(machine: RealMachine, layout: DirectoryLayout) -> str:
    """Return the uuid of the node, or empty text if its directory is not readable, which the node reports later."""
    try:
        return InstanceFile(machine.files, layout).load().node_id
    except (StelaeError, OSError):
        return ""


def _settle_log(machine: RealMachine, layout: DirectoryLayout) -> None:
    """Complete an interrupted `stelae wal convert` before the log is opened."""
    files = machine.files
    if not files.exists(layout.instance):
        return
    if InstanceFile(files, layout).load().converted_from is None and not files.exists(building(layout)):
        return
    lock = lock_directory(files, layout, machine.pid)
    try:
        if done := settle(files, layout):
            log.info("%s directory=%s", done, layout.root)
    finally:
        lock.release()


async def _serve(node: Node, metrics: NodeMetricsServer, until_stdin_closes: bool) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, node.request_stop)
    await node.start()
    metrics.serve(node)
    if until_stdin_closes:
        _stop_at_end_of_stdin(loop, node)
    await node.stopped()
    await asyncio.to_thread(metrics.close)
    if node.crashed is None:
        await hand_over(node)
    await node.stop()
    if isinstance(node.crashed, StaleSender | ConfigError | StorageError):
        raise node.crashed
    if node.crashed is not None:
        log.error("the node stopped because of a defect: %r", node.crashed)
        return EXIT_FAILED
    return EXIT_OK


def _stop_at_end_of_stdin(loop: asyncio.AbstractEventLoop, node: Node) -> None:
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            node.request_stop()

    loop.add_reader(descriptor, readable)
