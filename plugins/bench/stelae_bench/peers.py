"""Other systems beside Stelae: a peer is a command that measures one, and prints what it found.

The command starts and stops its own servers, and runs once in each round, in turn with Stelae's measurements. Variables
of its environment (``STELAE_BENCH_...``) say what it is to measure. Each line of its standard output is one result, as
JSON. ``docs/howto/run-a-benchmark.md`` describes both for people who write such a command."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from stelae.spi.errors import ConfigError, StelaeError

WORKS = {
    "write": "writes",
    "get": "reads",
    "get_snapshot": "reads",
    **{f"ycsb_{letter}": "ycsb" for letter in "abcdef"},
}
"""The works whose results may be printed, each with the part of the benchmark that has it."""

STOP_TIMEOUT_S = 20.0
"""How long a command that is ended may take to stop its servers. After it, the command is killed."""

OUTPUT_BYTES_MAX = 1 << 20
TAIL_BYTES = 4096
TAIL_LINES = 12


class PeerFailed(StelaeError):
    """The command of a peer failed, did not end in time, or printed a line that is no result."""

    code = "BENCH_PEER_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCommand:
    """One peer: its name in the report, and the command that measures it, as words."""

    name: str
    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> PeerCommand:
        """Read ``NAME=COMMAND``, with the quotes of a shell.

        Raises:
            ConfigError: there is no name or no command, or a quote is not closed.
        """
        name, _, command = text.partition("=")
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise ConfigError(f"--peer {text}: {error}", hint="Close each quote of the command.") from error
        if not name.strip() or not words:
            raise ConfigError(f"--peer {text}: not NAME=COMMAND", hint="For example: --peer 'etcd=./etcd-driver.sh'")
        return cls(name=name.strip(), words=words)

    @property
    def text(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTask:
    """What a peer is to measure: the same as Stelae in this part.

    Attributes:
        part: ``writes``, ``reads`` or ``ycsb``.
        in_flight: the numbers of operations in flight.
        seconds: how long each load runs.
        rows: over how many rows the operations go; 0 for writes.
    """

    part: str
    in_flight: Sequence[int]
    seconds: float
    rows: int = 0

    def environment(self, number: int, directory: Path) -> dict[str, str]:
        """Return the variables for the command: ``number`` of the round, and a folder on the measured disk."""
        values = {
            "PART": self.part,
            "IN_FLIGHT": " ".join(map(str, self.in_flight)),
            "SECONDS": f"{self.seconds:g}",
            "ROWS": str(self.rows),
            "ROUND": str(number + 1),
            "DIR": str(directory),
        }
        return {f"STELAE_BENCH_{name}": value for name, value in values.items()}


class PeerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line that a peer prints. Fields that are not listed here are ignored.

    Attributes:
        work: one of ``WORKS``.
        in_flight: the number of operations in flight.
        ops_per_s: operations per second.
        p50_ms, p99_ms: latencies.
        server_us, client_us: processor time of one operation, on all servers and in the client.
    """

    work: str
    in_flight: int
    ops_per_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    server_us: float | None = None
    client_us: float | None = None

    def __post_init__(self) -> None:
        if self.work not in WORKS:
            raise ValueError(f"{self.work!r} is not a work; known works: {', '.join(WORKS)}")
        if not (self.ops_per_s > 0 and self.in_flight > 0):
            raise ValueError("ops_per_s and in_flight must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRound:
    """One result of a peer in one round. Rounds are numbered from 0."""

    number: int
    line: PeerLine


async def run_peer(
    peer: PeerCommand, task: PeerTask, number: int, *, directory: Path | None, timeout_s: float
) -> list[PeerLine]:
    """Run the command of a peer once, and return the results for the part of the task.

    However this ends, the command has ended. It gets SIGTERM first, and its group of processes with it.

    Raises:
        PeerFailed: its exit code is not 0, it did not end in ``timeout_s`` seconds, or a line is no result.
    """
    with (
        tempfile.TemporaryDirectory(prefix="stelae-bench-peer-", dir=directory) as folder,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as remarks,
    ):
        environment = {**os.environ, **task.environment(number, Path(folder))}
        process = await _started(peer, environment, output, remarks)
        try:
            fact = await _outcome(process, timeout_s)
        finally:
            await _end(process)
        if fact:
            raise _failed(peer, fact, output, remarks)
        return _lines(peer, task, output, remarks)


async def _started(peer: PeerCommand, environment: dict[str, str], output: BinaryIO, remarks: BinaryIO) -> Process:
    """Start the command. Its standard input closes if this process is killed, so that it can end, too."""
    try:
        return await asyncio.create_subprocess_exec(
            *peer.words,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=remarks,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        fact = f"peer {peer.name}: {peer.text} cannot be started: {error.strerror}"
        raise PeerFailed(
            f"{fact}; a command is a program with arguments: use sh -c '...' for loops and pipes"
        ) from error


async def _outcome(process: Process, timeout_s: float) -> str:
    """Wait until a command ends; return what is wrong with how it ended, or an empty text."""
    try:
        code = await asyncio.wait_for(process.wait(), timeout_s)
    except TimeoutError:
        return f"did not end within {timeout_s:g} s"
    return f"ended with exit code {code}" if code else ""


async def _end(process: Process) -> None:
    """Let a command end that still runs, with the processes that it has started, and wait until it has."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _lines(peer: PeerCommand, task: PeerTask, output: BinaryIO, remarks: BinaryIO) -> list[PeerLine]:
    output.seek(0)
    text = output.read(OUTPUT_BYTES_MAX + 1)
    if len(text) > OUTPUT_BYTES_MAX:
        raise _failed(peer, f"printed more than {OUTPUT_BYTES_MAX} bytes", output, remarks)
    found: dict[tuple[str, int], PeerLine] = {}
    for line in filter(None, map(bytes.strip, text.splitlines())):
        try:
            one = msgspec.json.decode(line, type=PeerLine)
        except msgspec.MsgspecError as error:
            shown = line[:200].decode(errors="replace")
            raise _failed(peer, f"printed a line that is no result ({error}): {shown}", output, remarks) from error
        if (one.work, one.in_flight) in found:
            raise _failed(peer, f"printed two results of {one.work} with {one.in_flight} in flight", output, remarks)
        found[one.work, one.in_flight] = one
    return [one for one in found.values() if WORKS[one.work] == task.part]


def _failed(peer: PeerCommand, fact: str, output: BinaryIO, remarks: BinaryIO) -> PeerFailed:
    streams = {"standard output": output, "standard error": remarks}
    tails = [f"{name} ends with:\n{tail}" for name, file in streams.items() if (tail := _tail(file))]
    return PeerFailed("\n".join([f"peer {peer.name}: {peer.text} {fact}", *tails]))


def _tail(file: BinaryIO) -> str:
    """Return the last lines of a file."""
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - TAIL_BYTES))
    return "\n".join(file.read().decode(errors="replace").splitlines()[-TAIL_LINES:])
