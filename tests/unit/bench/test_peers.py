"""Commands that measure other systems: what they are told, what they may print, and how they may fail."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from stelae.spi.errors import ConfigError
from stelae_bench.cluster_command import peers_of
from stelae_bench.peers import OUTPUT_BYTES_MAX, PeerCommand, PeerFailed, PeerLine, PeerTask, run_peer

TASK = PeerTask(part="reads", in_flight=(1, 64), seconds=0.25, rows=5000)
LONG_S = 60.0


def measured(tmp_path: Path, script: str, timeout_s: float = LONG_S) -> list[PeerLine]:
    """The results of a peer whose command is a script of Python. It must leave no folder behind."""
    path, work = tmp_path / "driver.py", tmp_path / "work"
    path.write_text(script)
    work.mkdir()
    peer = PeerCommand.parse(f"etcd={sys.executable} '{path}'")
    try:
        return asyncio.run(run_peer(peer, TASK, 2, directory=work, timeout_s=timeout_s))
    finally:
        assert list(work.iterdir()) == []


def test_each_line_is_a_result_and_fields_that_are_not_known_are_ignored(tmp_path: Path) -> None:
    found = measured(
        tmp_path,
        """
print('{"work": "get", "in_flight": 64, "ops_per_s": 8000, "p50_ms": 7.5, "server_us": 90.0, "version": "3.6"}')
print()
print('{"work": "get_snapshot", "in_flight": 1, "ops_per_s": 900.5}')
""",
    )
    assert found == [
        PeerLine(work="get", in_flight=64, ops_per_s=8000.0, p50_ms=7.5, server_us=90.0),
        PeerLine(work="get_snapshot", in_flight=1, ops_per_s=900.5),
    ]


def test_results_of_another_part_are_left_out(tmp_path: Path) -> None:
    """A command that measures everything each time would else be counted three times in a round."""
    assert measured(tmp_path, """print('{"work": "ycsb_a", "in_flight": 1, "ops_per_s": 1}')""") == []


def test_the_command_is_told_what_to_measure(tmp_path: Path) -> None:
    (line,) = measured(
        tmp_path,
        """
import json, os
told = {name[13:]: value for name, value in os.environ.items() if name.startswith("STELAE_BENCH_")}
assert os.path.isdir(told.pop("DIR"))
wanted = {"PART": "reads", "IN_FLIGHT": "1 64", "SECONDS": "0.25", "ROWS": "5000", "ROUND": "3"}
print(json.dumps({"work": "get", "in_flight": 1, "ops_per_s": 1 + (told == wanted)}))
""",
    )
    assert line.ops_per_s == 2


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("print('begun'); raise SystemExit('no free port')", ["exit code 1", "ends with:\nbegun", "no free port"]),
        ("print('ready')", ["a line that is no result", "ready"]),
        ("""print('{"work": "get", "in_flight": 1}')""", ["missing required field `ops_per_s`"]),
        ("""print('{"work": "gets", "in_flight": 1, "ops_per_s": 1}')""", ["'gets' is not a work", "get_snapshot"]),
        ("""print('{"work": "get", "in_flight": 1, "ops_per_s": 0}')""", ["must be above 0"]),
        (
            """print('{"work": "get", "in_flight": 1, "ops_per_s": 1}\\n' * 2)""",
            ["two results of get with 1 in flight"],
        ),
        (f"print(' ' * {OUTPUT_BYTES_MAX + 1})", [f"more than {OUTPUT_BYTES_MAX} bytes"]),
    ],
)
def test_a_command_that_fails_is_named_with_its_last_lines(tmp_path: Path, script: str, words: list[str]) -> None:
    with pytest.raises(PeerFailed) as caught:
        measured(tmp_path, script)
    assert [word for word in ("peer etcd: ", "driver.py", *words) if word not in str(caught.value)] == []


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match=r"driver.py did not end within 0.2 s"):
        measured(tmp_path, "import time; time.sleep(600)", timeout_s=0.2)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_an_interrupt_ends_the_command_and_the_servers_that_it_started(tmp_path: Path) -> None:
    path, work = tmp_path / "pid", tmp_path / "work"
    work.mkdir()
    peer = PeerCommand.parse(f"etcd=sh -c 'sleep 600 & echo $! > {path}.new; mv {path}.new {path}; wait'")

    async def go() -> None:
        running = asyncio.ensure_future(run_peer(peer, TASK, 0, directory=work, timeout_s=LONG_S))
        while not path.exists():
            await asyncio.sleep(0.01)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(go())
    assert list(work.iterdir()) == []
    server = Path("/proc") / path.read_text().strip() / "stat"
    deadline = time.monotonic() + 30
    while is_alive(server) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(server)


def is_alive(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    peer = PeerCommand.parse("etcd=/nowhere/at/all 'a b'")
    with pytest.raises(PeerFailed, match=r"peer etcd: /nowhere/at/all 'a b' cannot be started: No such file"):
        asyncio.run(run_peer(peer, TASK, 0, directory=tmp_path, timeout_s=LONG_S))


@pytest.mark.parametrize("text", ["etcd", "etcd=", "=run", "etcd=run 'it"])
def test_what_is_not_name_and_command_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--peer {text}"):
        peers_of([text])


def test_peers_have_names_of_their_own() -> None:
    assert [(one.name, one.words) for one in peers_of(["a=x 'y z'", "b=x=1"])] == [("a", ("x", "y z")), ("b", ("x=1",))]
    with pytest.raises(ConfigError, match="two peers have one name: a, a"):
        peers_of(["a=x", "a=y"])
