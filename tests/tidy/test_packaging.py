"""Packaging: what is in the tree is in the wheel, and what node.toml can name can be loaded.

A misspelt path in ``packages`` drops a plugin from the wheel without any message, and a missing
``dev-mode-dirs`` line hides it from an editable install; both are found here."""

from __future__ import annotations

import configparser
import importlib
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.tidy.tree import ROOT, files

GROUP = "stelae.plugins"
PACKAGES = sorted(p.parent.parent.name for p in (ROOT / "plugins").glob("*/*/__init__.py"))
PLUGINS = [name for name in PACKAGES if name != "shared"]
"""Every package but the library that engines share, which registers nothing."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this tree, built in place and without a network."""
    target = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(target), versions=["standard"])
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def entry_points(wheel: zipfile.ZipFile) -> dict[str, str]:
    """The plugins that the wheel announces, by name."""
    (name,) = [n for n in wheel.namelist() if n.endswith("/entry_points.txt")]
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(wheel.read(name).decode())
    return dict(parser[GROUP])


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_plugin_folder_holds_one_package_named_after_it() -> None:
    folders = sorted(p.name for p in (ROOT / "plugins").iterdir() if p.is_dir())
    assert folders == PACKAGES
    for name in PACKAGES:
        (package,) = (ROOT / "plugins" / name).glob("*/__init__.py")
        assert package.parent.name == f"stelae_{name}"


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("file", ["__init__.py", "README.md", "py.typed"])
def test_every_plugin_is_in_the_wheel_whole(wheel: zipfile.ZipFile, name: str, file: str) -> None:
    assert f"stelae_{name}/{file}" in wheel.namelist()


def test_every_module_of_the_tree_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    depth = {"kernel": 1, "plugins": 2}
    expected = {
        Path(*path.parts[depth[path.parts[0]] :]).as_posix()
        for path in files()
        if path.parts[0] in depth and path.suffix == ".py"
    }
    assert expected <= set(wheel.namelist())


def test_the_page_of_a_trace_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert [f for f in ("page.html", "page.css", "page.js") if f"stelae/sim/trace/page_files/{f}" not in names] == []


def test_the_kernel_is_typed_and_the_wheel_holds_the_licence(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "stelae/py.typed" in names
    assert [n for n in names if n.endswith("/licenses/LICENSE")]


def test_the_wheel_has_the_module_by_whose_name_spark_finds_the_data_source(wheel: zipfile.ZipFile) -> None:
    found = [name for name in wheel.namelist() if "/" not in name]
    assert found == ["pyspark_stelae.py"]


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_has_an_entry_point(entry_points: dict[str, str], name: str) -> None:
    assert f"stelae_{name}" in {target.split(":")[0].split(".")[0] for target in entry_points.values()}


def test_entry_points_are_named_by_kind_and_name(entry_points: dict[str, str]) -> None:
    kinds = {"wal", "consensus", "store", "copy", "policy", "service", "cli"}
    for name in entry_points:
        kind, dot, rest = name.partition(".")
        assert kind in kinds and dot and re.fullmatch(r"[a-z][a-z0-9_]*", rest), name


def test_every_entry_point_leads_to_something_that_registers(entry_points: dict[str, str]) -> None:
    for name, target in entry_points.items():
        module, _, attribute = target.partition(":")
        plugin = importlib.import_module(module)
        plugin = getattr(plugin, attribute) if attribute else plugin
        hooks = [n for n in dir(plugin) if hasattr(getattr(plugin, n), "stelae_impl")]
        assert hooks, f"{name} = {target} implements no hook"


def test_editable_mode_sees_every_package_that_the_wheel_has() -> None:
    build = project()["tool"]["hatch"]["build"]
    parents = {str(Path(package).parent) for package in build["targets"]["wheel"]["packages"]}
    assert sorted(build["dev-mode-dirs"]) == sorted(parents)
    assert parents == {"kernel", *(f"plugins/{name}" for name in PACKAGES)}


def test_the_type_checker_sees_every_package_that_the_wheel_has() -> None:
    tool = project()["tool"]
    paths = [p.removeprefix("$MYPY_CONFIG_FILE_DIR/") for p in tool["mypy"]["mypy_path"]]
    assert sorted(paths) == sorted(tool["hatch"]["build"]["dev-mode-dirs"])


def test_no_init_file_turns_a_mere_folder_into_a_package() -> None:
    mere = [Path("kernel"), Path("plugins"), *(Path("plugins") / name for name in PLUGINS)]
    assert not [folder for folder in mere if (ROOT / folder / "__init__.py").exists()]


def test_every_pinned_version_satisfies_what_the_project_asks_for() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    known = {re.sub(r"[-_.]+", "-", name).lower() for name in pins}
    extras = project()["project"]["optional-dependencies"].values()
    asked = [*project()["project"]["dependencies"], *(r for extra in extras for r in extra)]
    names = [re.split(r"[\[>=<]", requirement)[0] for requirement in asked]
    assert {n for n in names if n != "stelae"} <= known
