"""The tutorial about a log engine of one's own does what it says, in an environment of its own.

Its blocks are run as they stand and in their order: those in Python are saved under the names in their first
lines, those for the shell are run. There is no network, and the environment is a new one that sees the packages of
the one in which these tests run, so what is installed there is installed nowhere else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_bench_cluster import wait_until_gone
from tests.e2e.test_tutorial import BLOCK, end_all_of, logs

pytestmark = pytest.mark.long

TUTORIAL = Path(__file__).resolve().parents[2] / "docs/tutorial/write-your-own-wal-engine.md"
TIMEOUT_S = 900
"""Reached only by a defect: the page runs pytest, a benchmark and a demo, here beside other tests on two processors."""
FILE = re.compile(r"# ((?:src|tests)/[\w./]+\.py)\n")
MARK = "== block of line"
COMMANDS = ("stelae", "pip", "pytest")
CASES = 6

BUGS = {
    "_was_whole returns False always": (
        "scan.py", " or _was_whole(data, found.end)", "",
        "test_a_flipped_bit_before_a_later_entry_of_an_open_log_is_reported_or_harms_nothing",
    ),
    "written without dsync": (
        "writer.py", "dsync=sync and alone", "dsync=False",
        "test_a_crash_at_any_operation_keeps_acknowledged_entries",
    ),
    "closing only cuts": (
        "log.py", "self._writer.close_at_end()", "self._writer.cut()",
        "test_a_cut_file_of_a_closed_log_is_reported",
    ),
    "the end of a commit tells nothing": (
        "scan.py", "record.timestamp <= end", "record.timestamp < 0",
        "test_a_flipped_bit_in_the_last_group_of_a_killed_engine_is_reported_or_harms_nothing",
    ),
    "the base forgotten when a file is written anew": (
        "log.py", "put(Record(BASE, base,", "put(Record(BASE, self._scan.base,",
        "test_collection_keeps_later_entries_and_remembers_the_base",
    ),
    "a suffix that comes back": (
        "scan.py", "            self.cut(record.op_id.index)\n", "",
        "test_a_read_returns_only_the_newest_entry_of_each_index",
    ),
}  # fmt: skip
"""What is planted: the file, what stands there and what instead, and the check that has to fail. The page names the
first three."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment without packages of its own, which sees those of this one."""

    folder: Path
    mark: str

    @property
    def packages(self) -> Path:
        """Where its own packages are."""
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder), "platbase": str(self.folder)}))

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a process in it; no package index can be reached."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON", "PIP_"))}
        return kept | {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(self.folder / "tmp"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "STELAE_TEST_MARK": self.mark,
        }

    @classmethod
    def create(cls, folder: Path) -> Environment:
        """Make it, with the commands that a page may call."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
        (folder / "tmp").mkdir()
        made = cls(folder, uuid.uuid4().hex)
        seen = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        lines = [f"import site; site.addsitedir({path!r})" for path in seen]
        (made.packages / "_parent.pth").write_text("\n".join(lines) + "\n")
        for name in COMMANDS:
            command = folder / "bin" / name
            command.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m {name} "$@"\n')
            command.chmod(0o755)
        return made

    def output(self, *command: str) -> str:
        """What a command prints that is run here."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, cwd=self.folder, env=self.variables
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@dataclass(frozen=True)
class Run:
    """What became of the page.

    Attributes:
        environment: where it was run.
        project: the distribution that it makes.
        outputs: of each block for the shell: its commands, and what they printed.
    """

    environment: Environment
    project: Path
    outputs: Sequence[tuple[str, str]]

    def output_of(self, command: str) -> str:
        """What the last block printed that has a command in it."""
        return [output for commands, output in self.outputs if command in commands][-1]


def script(blocks: Path) -> str:
    """The page as one script. Python goes into files in ``blocks``, to be copied when it is its turn."""
    text = TUTORIAL.read_text()
    lines = ["set -eu"]
    for match in BLOCK.finditer(text):
        language, body = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        if language == "python":
            named = FILE.match(body)
            assert named, f"the block of line {line} does not say in which file it is to be saved"
            (blocks / str(line)).write_text(body)
            lines.append(f"cp '{blocks}/{line}' {named[1]}")
        elif language == "sh":
            lines += [f"echo '{MARK} {line}'", body]
        else:
            assert language == "text", f"the block of line {line} is of {language}, which is not run"
    return "\n".join(lines)


def outputs_of(printed: str, commands: str) -> list[tuple[str, str]]:
    """Pair what was printed with the commands that printed it, block by block."""
    pieces = re.split(rf"^{MARK} \d+\n", printed, flags=re.MULTILINE)[1:]
    blocks = re.split(rf"^echo '{MARK} \d+'\n", commands, flags=re.MULTILINE)[1:]
    return list(zip(blocks, pieces, strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The page, run from its first to its last block; nothing of it is kept."""
    place = tmp_path_factory.mktemp("own-wal")
    environment = Environment.create(place / "env")
    (place / "blocks").mkdir()
    (place / "work").mkdir()
    commands = script(place / "blocks")
    shell = subprocess.Popen(
        ["sh", "-c", commands],
        cwd=place / "work",
        env=environment.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, remarks = shell.communicate(timeout=TIMEOUT_S)
        if shell.returncode:
            # A demo that fails keeps its nodes' logs, in a folder that is removed here.
            pytest.fail(f"{printed[-4000:]}\n{remarks[-4000:]}\n{logs(environment.folder, 'tmp/*/*/node.log')}")
        yield Run(environment, place / "work/stelae-wal-timeline", outputs_of(printed, commands))
    finally:
        end_all_of(shell)
        shutil.rmtree(place)


def test_every_command_of_the_page_succeeds_and_no_process_is_left(run: Run) -> None:
    assert len(run.outputs) >= 5
    wait_until_gone(run.environment.mark)


def test_what_plugins_new_makes_keeps_the_contract_before_anything_is_written(run: Run) -> None:
    last = run.output_of("pytest -q -k Virtual").splitlines()[-1]
    assert re.search(r"\d{2} passed, 4 skipped, \d+ deselected", last)
    assert "failed" not in last


def test_the_whole_suite_passes_and_says_what_it_skipped(run: Run) -> None:
    output = run.output_of("pytest -q -n 2")
    assert re.search(r"^9\d passed, 3 skipped", output, re.MULTILINE) and "failed" not in output, output
    (skipped,) = re.findall(r"^SKIPPED.*", output, re.MULTILINE)
    assert skipped.startswith("SKIPPED [3]") and skipped.endswith("engine 'timeline' does not declare 'snapshot'")


def test_the_engine_under_test_is_that_of_the_wheel(run: Run) -> None:
    (wheel,) = (run.project / "dist").iterdir()
    assert wheel.name == "stelae_wal_timeline-0.1.0-py3-none-any.whl"
    program = "import stelae_wal_timeline.log as log; print(log.__file__)"
    found = Path(run.environment.output("python", "-c", program).strip())
    assert found == run.environment.packages / "stelae_wal_timeline/log.py"
    assert found.read_text() == (run.project / "src/stelae_wal_timeline/log.py").read_text()
    assert (found.parent / "py.typed").exists()


def test_the_plugin_is_listed_shown_and_checked_where_it_is_installed_and_nowhere_else(run: Run) -> None:
    listed: list[dict[str, Any]] = json.loads(run.environment.output("stelae", "plugins", "list", "--json"))["plugins"]
    (mine,) = [offer for offer in listed if offer["name"] == "timeline"]
    assert mine == {
        "kind": "wal",
        "name": "timeline",
        "origin": "stelae-wal-timeline 0.1.0",
        "value": "stelae_wal_timeline",
    }
    shown = run.output_of("stelae plugins show wal.timeline")
    assert "stelae-wal-timeline 0.1.0" in shown
    assert {line.split()[0] for line in shown.splitlines() if " bytes " in line} == {
        "rewrite_bytes_min",
        "reserve_bytes",
    }
    checked = json.loads(run.environment.output("stelae", "plugins", "check", "--json"))
    assert checked["ok"] is True
    assert "wal.timeline" in {f"{found['kind']}.{found['name']}" for found in checked["plugins"]}
    here = subprocess.run(
        [sys.executable, "-m", "stelae", "plugins", "list"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "timeline" not in here.stdout


def test_the_engine_has_its_figures_in_the_table_of_the_benchmark(run: Run) -> None:
    lines = run.output_of("stelae bench wal").splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("in flight ")]
    column = lines[heads[0]].split().index("timeline") - len(lines[heads[0]].split())
    rates = [float(line.split()[column].replace(",", "")) for line in lines[heads[0] + 1 : heads[0] + 1 + CASES]]
    assert len(rates) == CASES
    assert min(rates) > 0
    assert lines[-1] == "ok"


def test_a_cluster_on_the_engine_loses_its_leader_twice_and_no_row(run: Run) -> None:
    document = json.loads(run.output_of("stelae demo"))
    assert document["ok"] is True
    assert (document["rows_lost"], document["rows_wrong"]) == (0, 0)
    assert document["rows_read"] == document["rows_source"] > 100_000
    assert len(document["kills"]) == 3


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_that_is_planted_in_the_engine_is_found(run: Run, tmp_path: Path, bug: str) -> None:
    name, right, wrong, check = BUGS[bug]
    shutil.copytree(run.project, tmp_path / "project")
    path = tmp_path / "project/src/stelae_wal_timeline" / name
    text = path.read_text()
    assert text.count(right) == 1, "the bug no longer applies"
    path.write_text(text.replace(right, wrong))
    done = subprocess.run(
        ["pytest", "-q", "-k", f"Virtual and {check}"],
        cwd=tmp_path / "project",
        env=run.environment.variables | {"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"FAILED tests/test_conformance.py::TestOnVirtualDisk::{check}" in done.stdout


def test_every_file_that_the_page_writes_is_formatted_and_typed_and_has_no_lint(run: Run) -> None:
    for tool, *arguments in (("ruff", "format", "--check", "."), ("ruff", "check", "."), ("mypy", "--no-incremental")):
        command = [Path(sys.executable).parent / tool, *arguments]
        done = subprocess.run(command, cwd=run.project, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
