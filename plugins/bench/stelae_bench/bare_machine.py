"""Measures the bare machine: a durable 4 KiB write, and a ZeroMQ round trip between two processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import zmq

from stelae.spi.errors import StelaeError

BLOCK = 4096
FILE_BLOCKS = 1024
SYNCS = 150
ROUND_TRIPS = 300
MESSAGE = b"x" * 64
ANSWER_TIMEOUT_MS = 5_000


class EchoProcessEnded(StelaeError):
    """The process that answers round trips did not start, or ended."""

    code = "BENCH_ECHO_ENDED"


class BareDisk:
    """A file that was written once before, so that a timed write is one in place, with its sync.

    Args:
        directory: a directory on the disk to measure.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "bare.data"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(self._file, bytes(BLOCK * FILE_BLOCKS))
        os.fsync(self._file)

    def sync_us(self) -> float:
        """Return the median time of a 4 KiB ``pwrite`` with ``fdatasync``, in microseconds."""
        block = os.urandom(BLOCK)
        sync = getattr(os, "fdatasync", os.fsync)
        times = []
        for number in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(self._file, block, number % FILE_BLOCKS * BLOCK)
            sync(self._file)
            times.append(time.perf_counter() - began)
        return median(times) * 1e6

    def close(self) -> None:
        """Remove the file."""
        os.close(self._file)
        self._path.unlink()


class BareNetwork:
    """A ZeroMQ connection over TCP on the loopback interface to a process that echoes messages."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stelae_bench.echo_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RCVTIMEO, ANSWER_TIMEOUT_MS)
        self._socket.setsockopt(zmq.SNDTIMEO, ANSWER_TIMEOUT_MS)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip().decode()
        if not port.isdigit():
            self.close()
            raise EchoProcessEnded("the process that answers round trips did not start")
        self._socket.connect(f"tcp://127.0.0.1:{port}")

    def round_trip_us(self) -> float:
        """Return the median time of a small round trip, in microseconds.

        Raises:
            EchoProcessEnded: no answer came.
        """
        times = []
        try:
            for _ in range(ROUND_TRIPS):
                began = time.perf_counter()
                self._socket.send(MESSAGE)
                self._socket.recv()
                times.append(time.perf_counter() - began)
        except zmq.Again as error:
            raise EchoProcessEnded("the process that answers round trips ended") from error
        return median(times) * 1e6

    def close(self) -> None:
        """Close the connection and end the process."""
        self._context.destroy(linger=0)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
