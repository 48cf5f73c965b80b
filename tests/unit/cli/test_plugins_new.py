"""``stelae plugins new``: what it writes, what it refuses, and that it leaves nothing half made."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from stelae.cli import plugins_new
from stelae.cli.plugins_new import PluginNames
from stelae.spi.errors import StorageError
from tests.tidy.tree import ROOT, files
from tests.unit.cli.test_commands import document, run

BIN = Path(sys.executable).parent
TEMPLATES = Path("kernel/stelae/scaffold")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a distribution that was made for the name ``time_line``."""
    place = tmp_path_factory.mktemp("new")
    done = run("plugins", "new", "time_line", "--kind", "wal", "--dir", str(place))
    assert (done.returncode, done.stderr) == (0, "")
    return place / "stelae-wal-time-line"


def project(made: Path) -> dict[str, Any]:
    return tomllib.loads((made / "pyproject.toml").read_text())


def test_a_new_engine_is_announced_by_a_distribution_of_its_own(made: Path) -> None:
    found = project(made)
    assert found["project"]["name"] == made.name
    assert found["project"]["entry-points"]["stelae.plugins"] == {"wal.time_line": "stelae_wal_time_line"}
    (package,) = found["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for name in ("__init__.py", "config.py", "engine.py", "log.py", "py.typed"):
        assert (made / package / name).is_file()
    assert (made / found["project"]["readme"]).is_file()
    assert list((made / "tests").glob("test_*.py"))


def test_nothing_of_the_template_is_left_in_what_it_became(made: Path) -> None:
    for path in made.rglob("*"):
        assert not path.name.endswith(".in")
        if path.is_file():
            assert "$" not in path.read_text()
        if path.suffix == ".py":
            ast.parse(path.read_text())


def test_a_new_engine_is_formatted_and_typed_and_has_no_lint(made: Path) -> None:
    rules = ",".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["select"])
    for command in (
        ("ruff", "format", "--check", "--no-cache", "."),
        ("ruff", "check", "--no-cache", "--select", rules, "."),
        ("mypy", "--no-incremental"),
    ):
        done = subprocess.run(
            [BIN / command[0], *command[1:]], cwd=made, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_it_says_what_it_made_and_what_to_do_next(tmp_path: Path) -> None:
    done = run("plugins", "new", "timeline", "--kind", "wal", "--dir", str(tmp_path))
    target = tmp_path / "stelae-wal-timeline"
    made = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    for line in [*made, f"cd {target}", "stelae plugins check", "pytest"]:
        assert f"  {line}\n" in done.stdout
    again = run("plugins", "new", "other", "--kind", "wal", "--dir", str(tmp_path), "--json")
    assert document(again) == {
        "kind": "wal",
        "name": "other",
        "distribution": "stelae-wal-other",
        "package": "stelae_wal_other",
        "engine": "OtherWal",
        "config": "OtherConfig",
        "directory": str(tmp_path / "stelae-wal-other"),
        "files": [line.replace("timeline", "other") for line in made],
        "next": [f"cd {tmp_path / 'stelae-wal-other'}", *json.loads(again.stdout)["next"][1:]],
    }


def test_words_of_a_name_stay_apart_in_every_form_of_it() -> None:
    names = PluginNames.of("wal", "big_ring2")
    assert (names.distribution, names.package) == ("stelae-wal-big-ring2", "stelae_wal_big_ring2")
    assert (names.engine, names.config) == ("BigRing2Wal", "BigRing2Config")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("Timeline", "wal", "lower-case"),
        ("2fast", "wal", "beginning with a letter"),
        ("time-line", "wal", "underscores"),
        ("time__line", "wal", "single underscores"),
        ("timeline_", "wal", "between them"),
        ("../timeline", "wal", "is not a valid name of an engine"),
        ("", "wal", "is not a valid name of an engine"),
        ("t" * 33, "wal", "1 to 32"),
        ("zeitachse_ä", "wal", "is not a valid name of an engine"),
        ("shared", "wal", "is already installed; choose a name other than lmdb, segmented, shared"),
        (
            "timeline",
            "store",
            "no template yet; start from docs/howto/replace-an-engine.md; kinds with a template: wal",
        ),
        ("timeline", "consensus", "no template yet; start from docs/howto/replace-an-engine.md"),
        ("timeline", "copy", "a conformance suite, but no template yet; start from docs/howto/replace-an-engine.md"),
        ("timeline", "policy", "it has a contract and a conformance suite, but no template yet"),
        ("timeline", "service", "docs/howto/add-a-service.md has a complete one; kinds with a template: wal"),
        ("timeline", "cli", "says how a plugin adds a command; kinds with a template: wal"),
        ("timeline", "walk", "unknown kind 'walk'; kinds with a template: wal"),
        ("timeline", "", "kinds with a template: wal"),
    ],
)
def test_what_will_not_do_is_one_message_and_nothing_is_written(
    tmp_path: Path, name: str, kind: str, words: str
) -> None:
    done = run("plugins", "new", name, "--kind", kind, "--dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["folder", "file", "dangling link"])
def test_what_is_there_already_is_left_as_it_is(tmp_path: Path, there: str) -> None:
    target = tmp_path / "stelae-wal-timeline"
    if there == "folder":
        target.mkdir()
    elif there == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    done = run("plugins", "new", "timeline", "--kind", "wal", "--dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{target} already exists" in done.stderr
    assert list(tmp_path.iterdir()) == [target]
    assert not target.is_dir() or list(target.iterdir()) == []


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_folder_that_cannot_take_it_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    done = run("plugins", "new", "timeline", "--kind", "wal", "--dir", str(tmp_path / place))
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot create" in done.stderr and "--dir" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("raised", "expected"), [(OSError(28, "No space left on device"), StorageError),
                                                 (KeyboardInterrupt(), KeyboardInterrupt)])  # fmt: skip
def test_what_is_half_made_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, expected: type[BaseException]
) -> None:
    write_text, left = Path.write_text, [3]

    def fails_in_the_end(self: Path, *args: Any, **options: Any) -> int:
        left[0] -= 1
        if not left[0]:
            raise raised
        return write_text(self, *args, **options)

    monkeypatch.setattr(Path, "write_text", fails_in_the_end)
    with pytest.raises(expected):
        plugins_new._write(PluginNames.of("wal", "timeline"), tmp_path / "new")
    assert left == [0]
    assert list(tmp_path.iterdir()) == []


def test_the_templates_are_in_the_wheel(tmp_path: Path) -> None:
    templates = {path.relative_to("kernel").as_posix() for path in files() if path.is_relative_to(TEMPLATES)}
    assert templates
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    assert templates <= set(zipfile.ZipFile(wheel).namelist())
