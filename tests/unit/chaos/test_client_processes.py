"""Client processes that do not end when they are asked to."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

import pytest

from stelae_chaos import client_processes as module
from stelae_chaos.client_process import ClientTask
from stelae_chaos.client_processes import ClientEnded, ClientProcesses
from stelae_chaos.tables import TableNames

TASK = ClientTask(client=0, addresses=[], tables=TableNames.of_run("x"), seed=1, started_us=0)


def read(program: str, monkeypatch: pytest.MonkeyPatch, *, stop: bool) -> None:
    """Read what a client process with this program says."""

    async def spawn(task: ClientTask) -> Process:
        return await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)

    async def run() -> None:
        clients = ClientProcesses(lambda operation: None)
        try:
            await clients.start([TASK])
            if stop:
                clients.stop()
            await clients.read()
        finally:
            await clients.kill()

    monkeypatch.setattr(module, "_spawn", spawn)
    asyncio.run(run())


def test_a_client_that_does_not_end_its_operations_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_TIMEOUT_S", 0.0)
    with pytest.raises(ClientEnded, match="did not end its operations within 0 s"):
        read("import signal; print(flush=True); signal.pause()", monkeypatch, stop=True)


def test_a_client_that_is_killed_in_the_middle_of_a_line_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientEnded, match="ended with exit code -9"):
        program = """import os; os.write(1, b'\\n{"type": "app'); os.kill(os.getpid(), 9)"""
        read(program, monkeypatch, stop=False)
