"""``stelae metrics`` of several addresses: nodes, and whatever else answers there."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest

from stelae.cli.run_metrics import run_metrics

TEXT = """\
# TYPE stelae_write_requests_total counter
stelae_write_requests_total 7
# TYPE stelae_wire_refused_total counter
stelae_wire_refused_total{code="write"} 3
# TYPE stelae_write_duration_seconds histogram
stelae_write_duration_seconds_bucket{le="1"} 2
stelae_write_duration_seconds_bucket{le="+Inf"} 2
stelae_write_duration_seconds_sum 1
stelae_write_duration_seconds_count 2
"""


def http(body: str, headers: str = "") -> bytes:
    """An answer with this body."""
    return f"HTTP/1.1 200 OK\r\n{headers}\r\n{body}".encode()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that gives one client this answer and closes the connection. Its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def shown(capsys: pytest.CaptureFixture[str], match: str, *answers: bytes) -> tuple[int, str, str]:
    """The exit code, the table without its headers, and the notes about nodes with these answers."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(answering(answer)) for answer in answers]
        code = run_metrics(addresses, None, match, everything=False, as_json=False)
    out, err = capsys.readouterr()
    return code, "\n".join(" ".join(line.split()) for line in out.splitlines()[1:]), err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\xff\x00\x7fZMQ\r\n\r\n", "BadStatusLine"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "BadStatusLine"),
        (http("ff\r\nstelae", "Transfer-Encoding: chunked\r\n"), "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000, "HTTPException"),
        (http("<html></html>\n"), ""),
        (http('# TYPE a histogram\na_bucket{e="1"} 3\na_count 3\n'), ""),
    ],
    ids=["binary", "other protocol", "cut", "headers", "page", "histogram without bounds"],
)
def test_what_is_no_metrics_server_hides_no_other_node(
    capsys: pytest.CaptureFixture[str], answer: bytes, reason: str
) -> None:
    """It was a traceback, and no node was shown."""
    code, table, notes = shown(capsys, "", answer, http(TEXT))
    assert code == 1 and "stelae_write_requests_total - 7" in table.splitlines()
    assert notes.count("\n") == 1 and "cannot read the metrics of 127.0.0.1:" in notes and reason in notes


def test_the_document_has_the_problem_and_the_other_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b"SSH\r\n") as other, answering(http(TEXT)) as node:
        assert run_metrics([other, node], None, "requests", everything=False, as_json=True) == 1
    first, second = json.loads(capsys.readouterr().out)["nodes"]
    assert first["problem"] and not first["figures"]
    assert (second["problem"], second["figures"]) == (None, {"stelae_write_requests_total": 7})


COUNTER, REFUSED = "stelae_write_requests_total 7", 'stelae_wire_refused_total{code="write"} 3'
HISTOGRAM = [f"stelae_write_duration_seconds {value}" for value in ("count 2", "mean 0.5", "p50 <= 1", "p99 <= 1")]


@pytest.mark.parametrize(
    ("match", "lines"),
    [
        ("stelae_write_requests_total", [COUNTER]),
        ("stelae_write_requests", [COUNTER]),
        ("_total", [COUNTER, REFUSED]),
        ("write", [COUNTER, *HISTOGRAM]),
        ("seconds p99", HISTOGRAM[3:]),
        ('stelae_wire_refused_total{code="write"}', [REFUSED]),
    ],
)
def test_the_shown_name_is_matched(capsys: pytest.CaptureFixture[str], match: str, lines: list[str]) -> None:
    """Prometheus names a family of counters without `_total`, so that a name from the table matched nothing."""
    assert shown(capsys, match, http(TEXT)) == (0, "\n".join(lines), "")


@pytest.mark.parametrize(
    ("match", "text", "fact"),
    [
        ("writes", TEXT, "no metric has 'writes' in its name; without --match"),
        ("requests", TEXT.replace("total 7", "total 0"), "'requests' are zero on every node (1); --all shows them"),
    ],
)
def test_an_empty_table_says_why(capsys: pytest.CaptureFixture[str], match: str, text: str, fact: str) -> None:
    code, table, notes = shown(capsys, match, http(text))
    assert (code, table) == (0, "") and fact in notes
