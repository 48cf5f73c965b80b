"""Ports for local nodes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stelae.local import ports


@pytest.fixture
def outgoing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "range"
    monkeypatch.setattr(ports, "_RANGE", file)
    return file


@pytest.mark.parametrize("text", ["32768\t60999\n", "", "nonsense"])
def test_no_port_is_one_that_an_outgoing_connection_may_take(outgoing: Path, text: str) -> None:
    outgoing.write_text(text)
    found = ports.free_ports(20)
    assert len(set(found)) == 20 and all(10_240 <= port < 32_768 for port in found)


def test_a_port_that_is_taken_is_passed_over(outgoing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        used = taken.getsockname()[1]
        (other,) = ports.free_ports(1)
        monkeypatch.setattr(ports, "_candidates", lambda: [used, other])
        assert ports.free_ports(1) == [other]
        with pytest.raises(OSError, match="only 1 of 2 ports are free"):
            ports.free_ports(2)


def test_where_outgoing_connections_may_take_all_ports_the_system_chooses(outgoing: Path) -> None:
    outgoing.write_text("10300 65535")
    assert len(set(ports.free_ports(5))) == 5
