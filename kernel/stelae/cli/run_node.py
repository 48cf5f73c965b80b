"""Runs one node in this process until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from stelae.cli.errors import EXIT_FAILED, EXIT_OK
from stelae.config.node_toml import load_config
from stelae.config.observers import HookObserver
from stelae.config.registry import Registry
from stelae.convert.conversion import building, settle
from stelae.host.instance import InstanceFile, lock_directory
from stelae.host.layout import Layout
from stelae.host.node import Node
from stelae.lifecycle.loading import TabletLoader
from stelae.machine.event_loop import new_event_loop
from stelae.machine.real import RealMachine
from stelae.rows.batcher import Batcher
from stelae.server.master import plugin as master
from stelae.server.master.role import as_master
from stelae.server.master.settings import MasterSettings
from stelae.server.tserver import plugin as tserver
from stelae.server.tserver.leadership import hand_over

log = logging.getLogger("stelae")


def run_node(config_path: str, *, until_stdin_closes: bool, verbose: bool, is_master: bool = False) -> int:
    """Run a tablet server or a master; return the exit code of the process.

    Raises:
        StelaeError: the node cannot start.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    registry = Registry.installed()
    registry.register(tserver, "service.tserver")
    if is_master:
        registry.register(master, "service.master")
    config = load_config(config_path, registry, {"master": MasterSettings})
    if is_master:
        config = as_master(config, config_path)
    machine = RealMachine()
    _settle_log(machine, Layout(config.node.directory))
    node = Node(
        config,
        services=registry.services(),
        machine=machine,
        batcher=Batcher,
        tablets=TabletLoader,
        observer=HookObserver(registry),
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(node, until_stdin_closes))


def _settle_log(machine: RealMachine, layout: Layout) -> None:
    """End what an interrupted `stelae wal convert` left, before anything opens the log."""
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


async def _run(node: Node, until_stdin_closes: bool) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, node.request_stop)
    await node.start()
    if until_stdin_closes:
        _stop_at_end_of_stdin(loop, node)
    print(f"serving {node.node_id} at {node.address}", file=sys.stderr, flush=True)
    await node.stopped()
    if node.crashed is None:
        await hand_over(node)
    await node.stop()
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
