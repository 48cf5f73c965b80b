"""Docs that cannot drift: what the code declares is on the page that promises to list it.

The pages are generated where they can be. What is declared is therefore read here from the syntax
trees, by another way than the generator's, so that a hole in the generator is found too."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from stelae.cli.main import build_app
from stelae.telemetry.catalog import FAMILIES, WITHOUT_FAMILY, family_of
from tests.tidy.tree import ROOT, files, parsed, python_files

REFERENCE = ROOT / "docs/reference"
PAGES = [path for path in files() if path.suffix == ".md" and path.parts[0] != "changelog"]
PLUGIN_READMES = [path for path in PAGES if path.parts[0] == "plugins" and path.name == "README.md"]
SHORT = {"README.md": 120, "CONTRIBUTING.md": 120}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The Sphinx extension that generates reference pages."""
    path = ROOT / "docs/_ext/stelae_reference.py"
    spec = importlib.util.spec_from_file_location("stelae_reference", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


def module_name(path: Path) -> str:
    inner = path.parts[1:] if path.parts[0] == "kernel" else path.parts[2:]
    return ".".join(inner).removesuffix(".py").removesuffix(".__init__")


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of kernel and plugins as ``module:Name``, with its tree."""
    for path in python_files("kernel", "plugins"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                yield f"{module_name(path)}:{node.name}", node


def settings_fields() -> dict[str, list[str]]:
    """The names of the fields that are declared with ``setting``, by class."""
    found: dict[str, list[str]] = {}
    for reference, node in classes():
        for field in node.body:
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(field.value, ast.Call)
                and isinstance(field.value.func, ast.Name)
                and field.value.func.id == "setting"
            ):
                found.setdefault(reference, []).append(field.target.id)
    return found


def metric_names() -> Iterator[str]:
    """Every name given to ``count``, ``gauge`` or ``histogram`` of something called metrics; of a name that is put
    together, what it begins with."""
    for path in python_files("kernel", "plugins"):
        for node in ast.walk(parsed(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("count", "gauge", "histogram")
                and ast.unparse(node.func.value).endswith("metrics")
                and node.args
            ):
                yield from texts(node.args[0])


def texts(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may give: of one that is put together, its beginning."""
    if isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.JoinedStr):
        yield from texts(node.values[0])
    elif isinstance(node, ast.Constant):
        yield str(node.value)


def error_codes() -> Iterator[str]:
    """Every code that a class declares whose name or base says that it is an error."""
    for _, node in classes():
        for keyword in node.keywords:
            if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value)
        for field in node.body:
            if (
                isinstance(field, ast.Assign)
                and ast.unparse(field.targets[0]) == "code"
                and isinstance(field.value, ast.Constant)
                and node.bases
            ):
                yield str(field.value.value)


def test_every_setting_is_on_the_settings_page(generator: ModuleType) -> None:
    text = page("settings.md")
    declared = settings_fields()
    assert declared
    missing = [reference for reference in declared if f"{{stelae-settings}} {reference}\n" not in text]
    assert not missing, f"docs/reference/settings.md lacks: {missing}"
    for reference, names in declared.items():
        lines = generator.settings_lines(generator.named(reference))
        listed = {line.split("`")[1] for line in lines if line.startswith("| `")}
        assert set(names) <= listed, reference


def test_every_setting_says_why(generator: ModuleType) -> None:
    for reference in settings_fields():
        for line in generator.settings_lines(generator.named(reference))[2:]:
            assert re.split(r"(?<!\\)\|", line)[5].strip(), f"{reference} {line}: no reason"


def test_every_hook_is_on_the_hooks_page_with_its_signature(generator: ModuleType) -> None:
    assert "{stelae-hooks}" in page("hooks.md")
    text = "\n".join(generator.hooks_lines())
    specs = [
        node
        for node in parsed(Path("kernel/stelae/spi/hooks.py")).body
        if isinstance(node, ast.FunctionDef) and "hookspec" in [ast.unparse(d) for d in node.decorator_list]
    ]
    assert specs
    for node in specs:
        returns = ast.unparse(node.returns) if node.returns else ""
        assert f"{node.name}({ast.unparse(node.args)}) -> {returns}" in text


def test_every_error_code_is_on_the_errors_page(generator: ModuleType) -> None:
    assert "{stelae-errors}" in page("errors.md")
    text = "\n".join(generator.errors_lines())
    codes = set(error_codes())
    assert codes
    assert not {code for code in codes if f"`{code}`" not in text}


def test_every_metric_is_on_the_metrics_page(generator: ModuleType) -> None:
    assert "{stelae-metrics}" in page("metrics.md")
    text = "\n".join(generator.metrics_lines())
    assert FAMILIES
    assert not [family.full_name for family in FAMILIES if f"`{family.full_name}`" not in text]


def test_every_name_that_the_client_exports_is_on_its_page() -> None:
    """`SetReplicas`, and all that changes replicas and masters, were missing."""
    client, text = importlib.import_module("stelae.client"), page("python-client.md")
    wanted = {name for name in client.__all__ if f"Async{name}" not in client.__all__ and name != "AlterStep"}
    assert [name for name in sorted(wanted) if f":: stelae.client.{name}\n" not in text] == []


def test_every_option_and_type_of_spark_is_on_its_page(generator: ModuleType) -> None:
    text = page("spark.md")
    parts = ("options", "foreign", "types", "refused")
    assert [part for part in parts if f"{{stelae-spark-{part}}}\n" not in text] == []
    generated = {part: "\n".join(getattr(generator, f"spark_{part}_lines")()) for part in parts}
    path = Path("plugins/spark_sink/stelae_spark_sink/options.py")
    calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    declared = [call.keywords[0].value for call in calls if ast.unparse(call.func) == "SparkOption"]
    assert declared
    assert [ast.unparse(name) for name in declared if f"`{ast.literal_eval(name)}`" not in generated["options"]] == []
    assert all(f"`{kind}`" in generated["types"] for kind in ("bool", "decimal(p,s)", "timestamp"))


def test_what_is_counted_has_a_metric_and_every_metric_is_counted_somewhere() -> None:
    names = set(metric_names())
    shown = {name: family_of(name) for name in names}
    assert not sorted(name for name, family in shown.items() if family is None and name not in WITHOUT_FAMILY)
    wanted = {family.source for family in FAMILIES if family.source}
    assert sorted(wanted - {family.source for family in shown.values() if family is not None}) == []


def test_every_module_of_the_contracts_has_its_page() -> None:
    text = "".join(path.read_text() for path in (REFERENCE / "contracts").glob("*.md"))
    modules = {module_name(path) for path in python_files("kernel") if path.parts[2] in ("spi", "rows")}
    missing = {m for m in modules - {"stelae.spi", "stelae.rows"} if f".. automodule:: {m}\n" not in text}
    assert not missing


ADRS = {int(page.name[:4]): page for page in sorted((ROOT / "docs/adr").glob("[0-9]*.md"))}
"""The page of each ADR, by number. The number of an ADR that was merged into another one is not used again."""
INDEX_LINE = re.compile(r"^\| (\d+) \| (.+) \|$", re.MULTILINE)
SECTIONS = ["Status", "Context", "Decision", "Consequences"]


def title_of(number: int) -> str:
    """The title of an ADR's page, without its number."""
    title = ADRS[number].read_text().splitlines()[0]
    assert title.startswith(f"# ADR {number}: "), ADRS[number].name
    return title.removeprefix(f"# ADR {number}: ")


def test_the_index_has_one_line_for_each_adr_with_its_title_or_where_it_was_merged() -> None:
    lines = INDEX_LINE.findall((ROOT / "docs/adr/index.md").read_text())
    assert [int(number) for number, _ in lines] == list(range(1, max(ADRS) + 1))
    pages = {f"[{title_of(number)}]({page.name})" for number, page in ADRS.items()}
    merged = {f"merged into [ADR {number}]({page.name})" for number, page in ADRS.items()}
    assert not [text for number, text in lines if text not in (pages if int(number) in ADRS else merged)]
    assert pages <= {text for _, text in lines}


def test_each_adr_has_status_context_decision_and_consequences() -> None:
    for page in ADRS.values():
        sections = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert [section for section in sections if section in SECTIONS] == SECTIONS, page.name


def test_references_to_an_adr_name_one_that_has_a_page() -> None:
    named = re.compile(r"\bADR\s+(\d+)\b")
    found = [
        f"{path}: ADR {number}"
        for path in files()
        if path.suffix in {".md", ".py", ".toml"} and path.parts[:2] != ("docs", "adr")
        for number in named.findall((ROOT / path).read_text())
        if int(number) not in ADRS
    ]
    assert not found, "\n".join(found)


def test_paths_that_the_docs_name_exist() -> None:
    named = re.compile(r"`((?:kernel|plugins|tests|docs|changelog|\.ci)/[\w./-]*)`")
    found = [
        f"{path}: {match}"
        for path in PAGES
        for match in named.findall((ROOT / path).read_text())
        if "_build" not in match and not (ROOT / match).exists()
    ]
    assert not found, "\n".join(found)


def test_names_that_the_docs_import_exist() -> None:
    missing, found = [], 0
    for path in PAGES:
        for source in PYTHON.findall((ROOT / path).read_text()):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stelae."):
                    module = importlib.import_module(node.module or "")
                    found += 1
                    missing += [
                        f"{path}: {node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)
                    ]
    assert found and not missing, "\n".join(missing)


PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|`)(?:\$ )?(?:\.venv/bin/)?stelae ([a-z][^`\n#]*)", re.MULTILINE)


def misspelt(text: str, root: Any) -> list[str]:
    """The commands in a page whose words or options the command line does not know."""
    wrong = []
    for line in COMMAND.findall(text):
        command, words = root, line.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {option for param in command.params for option in param.opts}
        known |= {option for param in command.params for option in param.secondary_opts}
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        if (hasattr(command, "commands") and words) or options - known - {"--help"}:
            wrong.append(f"stelae {line}")
    return wrong


@pytest.fixture(scope="module")
def command_line() -> Any:
    """The root of the command tree, with the commands of our plugins."""
    return typer.main.get_command(build_app(None))


def test_commands_that_the_docs_name_exist(command_line: Any) -> None:
    found = [f"{path}: {wrong}" for path in PAGES for wrong in misspelt((ROOT / path).read_text(), command_line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["stelae frobnicate", "`stelae fs dumb x`", "  `stelae sim run --sead 1`"])
def test_a_misspelt_command_is_found(command_line: Any, line: str) -> None:
    assert len(misspelt(line, command_line)) == 1


def test_every_durability_rule_names_a_test_that_holds_it() -> None:
    text = (ROOT / "docs/explanation/durability.md").read_text()
    rules, _, table = text.partition("## Where each rule is checked")
    numbers = re.findall(r"^\*\*(\d+)\.", rules, re.MULTILINE)
    assert len(numbers) >= 13
    held = dict(re.findall(r"^\| (\d+) \|(.*)$", table, re.MULTILINE))
    assert [n for n in numbers if "`tests/" not in held.get(n, "")] == []


@pytest.mark.parametrize(("name", "limit"), SHORT.items())
def test_the_first_pages_stay_short(name: str, limit: int) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= limit


def missing_modules(text: str, folder: Path) -> list[str]:
    """Return the Python files that a page names, but that are neither in its folder nor a path from the root."""
    named = re.findall(r"`([\w./-]+\.py)`", text)
    return [name for name in named if not (ROOT / folder / name).is_file() and not (ROOT / name).is_file()]


def test_each_python_file_that_the_readme_of_a_plugin_names_exists() -> None:
    found = {path: missing_modules((ROOT / path).read_text(), path.parent) for path in PLUGIN_READMES}
    assert len(found) > 10
    assert not any(found.values()), "\n".join(f"{path}: {names}" for path, names in found.items() if names)


def test_a_file_that_does_not_exist_is_found() -> None:
    text = "`test_docs.py`, `gone.py` and `tests/tidy/tree.py`, but `tests/gone.py`"
    assert missing_modules(text, Path("tests/tidy")) == ["gone.py", "tests/gone.py"]
