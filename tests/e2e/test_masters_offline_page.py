"""The page on offline changes of masters does what it says, run as it is.

It walks through both algorithms of the document on permanent failures: one master becomes three, and a lost master is
replaced under its name.

Machines are addresses of the loopback interface. Names are looked up in a file, which ``repoint`` edits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from stelae.local.ports import free_ports
from tests.e2e.test_tutorial import end_all_of, logs

PAGE = Path(__file__).resolve().parents[2] / "docs/howto/change-the-masters-offline.md"
NAMES = Path(__file__).parent / "names"
TIMEOUT_S = 480
BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SECOND_PART = "## Replace a lost master"

REPOINT = """#!/bin/sh
grep -v " $1\\$" "$STELAE_TEST_HOSTS" > hosts.new
echo "$2 $1" >> hosts.new
mv hosts.new "$STELAE_TEST_HOSTS"
"""

AFTER_THE_MIGRATION = """
stelae table create after_migration --column id:int64 --key id --replicas 1
stelae master list --json > three.json
"""

AT_THE_END = """
stelae master list --json > replaced.json
kill $master_1 && wait $master_1
export STELAE_CONNECT=master-3.example:7051
stelae table create without_the_first --column id:int64 --key id --replicas 1 --timeout-s 60
stelae table list --json > tables.json
echo "$one $two $three $four" > uuids
"""


def blocks(text: str) -> str:
    """The shell commands of a text as one script."""
    return "".join(textwrap.dedent(body) for _, body in BLOCK.findall(text))


def script() -> str:
    """The commands of the page, with what a reader looks at after each of its two parts."""
    first, heading, second = PAGE.read_text().partition(SECOND_PART)
    assert heading, f"the page has no part {SECOND_PART!r}"
    text = blocks(first) + AFTER_THE_MIGRATION + blocks(second) + AT_THE_END
    for port, free in zip(("7051", "7052"), free_ports(2), strict=True):
        text = text.replace(f":{port}", f":{free}")
    return "set -eu\n" + text.replace("10.0.0.", "127.0.0.")


def masters(path: Path) -> dict[str, Any]:
    return {master["node_id"]: master for master in json.loads(path.read_text())["masters"]}


def test_the_page_migrates_one_master_to_three_and_replaces_a_lost_one_under_its_name(tmp_path: Path) -> None:
    hosts, repoint = tmp_path / "hosts", tmp_path / "repoint"
    hosts.touch()
    repoint.write_text(REPOINT)
    repoint.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(NAMES),
        "STELAE_TEST_HOSTS": str(hosts),
    }
    said = tmp_path / "said.log"
    with said.open("w") as file:  # A pipe would stay open as long as the nodes run.
        shell = subprocess.Popen(
            ["sh", "-c", script()],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            code = shell.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not done after {TIMEOUT_S} s\n{logs(tmp_path, '*.log')}")
        finally:
            end_all_of(shell)
    assert code == 0, logs(tmp_path, "*.log")
    one, two, three, four = (tmp_path / "uuids").read_text().split()
    migrated, replaced = masters(tmp_path / "three.json"), masters(tmp_path / "replaced.json")
    assert set(migrated) == {one, two, three} and set(replaced) == {one, two, four}
    assert all(master["type"] == "VOTER" for master in (*migrated.values(), *replaced.values()))
    names = [[re.sub(":.*", "", master["address"]) for master in found.values()] for found in (migrated, replaced)]
    assert [sorted(found) for found in names] == [["master-1.example", "master-2.example", "master-3.example"]] * 2
    tables = {table["name"] for table in json.loads((tmp_path / "tables.json").read_text())["tables"]}
    assert tables == {"readings", "after_migration", "without_the_first"}
