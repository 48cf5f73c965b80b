"""The client's pages do what they say: their programs are run as they stand, and print what stands underneath."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.local.ports import free_ports
from tests.e2e.master_nodes import running
from tests.e2e.test_masters import QUICK
from tests.e2e.test_tutorial import end_all_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
TUTORIAL = DOCS / "tutorial/python-client.md"
REFERENCE = DOCS / "reference/python-client.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = "7051"
ALTERING = DOCS / "howto/alter-a-table.md"
RUNNING = DOCS / "howto/run-a-cluster.md"
TIMEOUT_S = 120
MARK = "----- next block -----"


def blocks(page: Path, port: str) -> list[tuple[str, str]]:
    """Kind and body of each block, on a port that is free."""
    found = BLOCK.findall(page.read_text())
    return [(kind, body.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{port}")) for kind, body in found]


def examples(page: Path, port: str) -> list[tuple[str, str]]:
    """Each python block, and the text block right behind it, or nothing."""
    found = blocks(page, port)
    behind = [*found[1:], ("", "")]
    return [
        (body, following if kind == "text" else "")
        for (own, body), (kind, following) in zip(found, behind, strict=True)
        if own == "python"
    ]


def run_with_node(folder: Path, port: str, program: str) -> str:
    """Start the tutorial's node, run a program beside it, stop the node; return what the program printed."""
    shell = [body for kind, body in blocks(TUTORIAL, port) if kind == "sh"]
    (folder / "program.py").write_text(program)
    script = "\n".join(["set -eu", *shell[:-1], "python program.py > printed", shell[-1]])
    process = subprocess.Popen(
        ["sh", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"not done after {TIMEOUT_S} s")
    finally:
        end_all_of(process)
    log = folder / "log"
    assert process.returncode == 0, f"{errors}\n{log.read_text()[-800:] if log.exists() else ''}"
    return (folder / "printed").read_text()


def compare(page: Path, folder: Path) -> None:
    (port,) = free_ports(1)
    found = examples(page, str(port))
    assert len(found) > 5
    as_shown(found, run_with_node(folder, str(port), program_of(found)))


def program_of(found: list[tuple[str, str]]) -> str:
    return f"\nprint({MARK!r})\n".join(wrapped(body, expected) for body, expected in found)


def as_shown(found: list[tuple[str, str]], output: str) -> None:
    printed = output.split(f"{MARK}\n")
    assert len(printed) == len(found)
    for (body, expected), got in zip(found, printed, strict=True):
        assert got == expected, body


def wrapped(body: str, expected: str) -> str:
    """A block; one whose page shows an error alone has to raise it, and prints it."""
    raised = re.fullmatch(r"([A-Z]\w+): .*\n", expected)
    if raised is None or "print(" in body:
        return body
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    return f"try:\n{indented}except Exception as error:\n    print(f'{{type(error).__name__}}: {{error}}')\n"


def test_the_tutorial_runs_as_written_and_prints_what_it_shows(tmp_path: Path) -> None:
    compare(TUTORIAL, tmp_path)


def test_the_examples_of_the_reference_run_as_written_and_print_what_they_show(tmp_path: Path) -> None:
    compare(REFERENCE, tmp_path)


@pytest.mark.parametrize(("page", "count"), [(ALTERING, 5), (RUNNING, 1)])
def test_a_page_on_clusters_with_masters_runs_as_written_and_prints_what_it_shows(
    tmp_path: Path, page: Path, count: int
) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, settings=QUICK) as cluster:
            found = examples(page, cluster.addresses[cluster.masters[0]].rpartition(":")[2])
            assert len(found) == count
            pipe = asyncio.subprocess.PIPE
            program = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program_of(found), stdout=pipe, stderr=pipe
            )
            output, errors = await asyncio.wait_for(program.communicate(), TIMEOUT_S)
            assert not program.returncode, errors.decode()
            as_shown(found, output.decode())

    asyncio.run(run())
