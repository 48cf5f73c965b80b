"""Messengers in processes of their own: killed, restarted under the same name, stopped, resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stelae.spi.ids import NodeId
from stelae.wire.call_retries import RetryPolicy
from tests.unit.wire.worlds import messenger, run, until

NODE = NodeId(f"{2:032x}")
ROOT = Path(__file__).parents[2]
RETRY = RetryPolicy(attempt_ms=300)


@contextmanager
def echo_node(address: str, run_number: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A node in a process of its own, and the address at which it listens."""
    script = Path(__file__).with_name("wire_echo_node.py")
    process = subprocess.Popen(
        [sys.executable, str(script), address, str(run_number)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'kernel'}"},
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_calls_survive_the_kill_and_restart_of_their_peer_and_meet_its_successor() -> None:
    async def main() -> None:
        client, _ = messenger(1)
        with echo_node("127.0.0.1:0", 1) as (process, address):
            assert await client.connect(address) == NODE
            calls = [client.call(NODE, "echo", [b"%d" % n], deadline_ms=25_000, retry=RETRY) for n in range(200)]
            await calls[0]
            process.kill()
            process.wait()
            await until(lambda: client.connected(NODE) is None)
            calls += [client.call(NODE, "echo", [b"%d" % n], deadline_ms=25_000, retry=RETRY) for n in range(200, 400)]
        with echo_node(address, 2):
            answers = [bytes((await call).body[0]) for call in calls]
            assert answers == [b"%d" % n for n in range(400)]
            assert client.connected(NODE) == f"{2:016x}"

    run(main)


def test_a_stopped_peer_costs_a_bounded_queue_is_given_up_and_found_again() -> None:
    async def main() -> None:
        window_bytes = 1 << 20
        client, metrics = messenger(
            1, ping_ms=100, silence_ms_max=400, connect_timeout_ms=300, control_window_bytes=window_bytes
        )
        with echo_node("127.0.0.1:0", 1) as (process, address):
            assert await client.connect(address) == NODE
            process.send_signal(signal.SIGSTOP)
            try:
                taken_bytes = 0
                while client.connected(NODE) is not None:
                    if client.send(NODE, "note", [bytes(10_000)]):
                        taken_bytes += 10_000
                    else:
                        await until(lambda: client.connected(NODE) is None)
                assert taken_bytes < 2 * window_bytes
                call = client.call(NODE, "echo", [b"x"], deadline_ms=25_000, retry=RETRY)
                await until(lambda: metrics["wire_links_failed"] >= 2)
                assert not call.done()
            finally:
                process.send_signal(signal.SIGCONT)
            assert (await call).body == [b"x"]

    run(main)
