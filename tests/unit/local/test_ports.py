"""Ports for local nodes."""

from __future__ import annotations

import socket
from itertools import pairwise
from pathlib import Path

import pytest

from stelae.local import ports
from stelae.spi.errors import CallerError
from tests.worker_ports import ports_of_worker


@pytest.fixture
def outgoing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(ports.VARIABLE, raising=False)
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
        with pytest.raises(ports.NoFreePorts, match=r"only 1 of 2 ports are free on 127\.0\.0\.1; stop other clusters"):
            ports.free_ports(2)


def test_where_outgoing_connections_may_take_all_ports_the_system_chooses(outgoing: Path) -> None:
    outgoing.write_text("10300 65535")
    assert len(set(ports.free_ports(5))) == 5


def test_the_ports_of_processes_with_ranges_of_their_own_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ports.VARIABLE, "23000-23003")
    assert set(ports.free_ports(3)) <= set(range(23_000, 23_004))
    with pytest.raises(ports.NoFreePorts, match=r"of 5 .* in STELAE_LOCAL_PORTS=23000-23003; give a wider range"):
        ports.free_ports(5)


@pytest.mark.parametrize("given", ["23000", "23000-", "a-b", "5-4", "0-9", "1-65536", "-1-5", "1-2-3"])
def test_a_range_that_is_none_is_refused_with_its_form(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(ports.VARIABLE, given)
    with pytest.raises(CallerError, match="is no range of ports; write it as LOW-HIGH"):
        ports.free_ports(1)


def test_workers_of_tests_share_no_port() -> None:
    bounds = [tuple(map(int, ports_of_worker(f"gw{n}", 3).split("-"))) for n in range(3)]
    assert all(before[1] < after[0] for before, after in pairwise(bounds))
