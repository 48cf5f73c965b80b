"""``stelae plugins new``: create a distribution with a working engine to start from.

The files come from templates in ``stelae/scaffold/<kind>``. A template is text with ``$names``. The folder ``package``
becomes the import package, and the ending ``.in`` is removed. All arguments are checked before the first file is
written. After an error or an interrupt, the incomplete folder is removed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from stelae.cli.kit.output import JsonOption, print_json
from stelae.spi.errors import CallerError, StorageError

NAME_LENGTH_MAX = 32
"""Most characters of the name of an engine, which becomes part of file, package and class names."""

_NO_TEMPLATE = (
    "it has a contract and a conformance suite, but no template yet; start from docs/howto/replace-an-engine.md"
)

KINDS_WITHOUT_TEMPLATE = {
    "store": _NO_TEMPLATE,
    "consensus": _NO_TEMPLATE,
    "copy": _NO_TEMPLATE,
    "policy": _NO_TEMPLATE,
    "service": "docs/howto/add-a-service.md has a complete one",
    "cli": "docs/howto/replace-an-engine.md says how a plugin adds a command",
}
"""Kinds of plugins without a template, with the reason and the next step."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PACKAGE = "package"
_ENDING = ".in"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginNames:
    """The names in a new distribution, all derived from the kind and the name of the engine."""

    kind: str
    name: str
    distribution: str
    package: str
    engine: str
    config: str

    @classmethod
    def of(cls, kind: str, name: str) -> PluginNames:
        """Derive the names. The engine ``timeline`` of kind ``wal`` has the class ``TimelineWal``."""
        title = "".join(word.capitalize() for word in name.split("_"))
        return cls(
            kind=kind,
            name=name,
            distribution=f"stelae-{kind}-{name.replace('_', '-')}",
            package=f"stelae_{kind}_{name}",
            engine=f"{title}{kind.capitalize()}",
            config=f"{title}Config",
        )


def new_plugin(
    name: Annotated[str, typer.Argument(help="Name of the engine in node.toml, such as `timeline`.")],
    kind: Annotated[str, typer.Option(help="Kind of the engine: `wal`.", show_default=False)],
    directory: Annotated[
        Path, typer.Option("--dir", help="Existing folder in which the folder of the distribution is created.")
    ] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Create a distribution with a working engine, as a start for your own.

    For `timeline` of kind `wal` the command creates the folder `stelae-wal-timeline`. It has a pyproject.toml that
    announces the engine as `wal.timeline`, the import package `stelae_wal_timeline` with settings, hook and a working
    engine, and a test module that runs the conformance suite. The command installs nothing and changes no node.toml.

    Then, in the new folder: install it, load it with `stelae plugins check`, run `pytest`, and change the engine.

    Exit code 2: the name, the kind or the folder is not valid. Nothing was written."""
    names = PluginNames.of(kind, name)
    _check(names)
    target = directory / names.distribution
    files = [path.as_posix() for path in _write(names, target)]
    following = [
        f"cd {target}",
        "pip install --no-build-isolation --no-deps --editable .",
        "stelae plugins check",
        "pytest",
    ]
    if as_json:
        print_json({**asdict(names), "directory": str(target), "files": files, "next": following})
        return
    print(f"created {target}:\n")
    print("\n".join(f"  {path}" for path in files))
    print("\nnext:\n")
    print("\n".join(f"  {command}" for command in following))
    print("\nThe engine works as it is. Its README.md says what to change first.")


def _check(names: PluginNames) -> None:
    """Check the kind and the name.

    Raises:
        CallerError: one of them is not valid; with the valid ones."""
    from stelae.config.contracts import EngineKind
    from stelae.config.registry import Registry

    kinds = ", ".join(_kinds())
    if names.kind in KINDS_WITHOUT_TEMPLATE:
        reason = KINDS_WITHOUT_TEMPLATE[names.kind]
        raise CallerError(
            f"there is no template for a plugin of kind {names.kind!r}: {reason}; kinds with a template: {kinds}"
        )
    if names.kind not in _kinds():
        raise CallerError(f"unknown kind {names.kind!r}; kinds with a template: {kinds}")
    if not _NAME.fullmatch(names.name) or len(names.name) > NAME_LENGTH_MAX:
        raise CallerError(
            f"{names.name[:80]!r} is not a valid name of an engine; use 1 to {NAME_LENGTH_MAX} lower-case letters, "
            "digits and single underscores between them, beginning with a letter"
        )
    taken = Registry.installed().names(EngineKind(names.kind))
    if names.name in taken:
        raise CallerError(
            f"engine {names.kind}.{names.name} is already installed; choose a name other than {', '.join(taken)}"
        )


def _kinds() -> list[str]:
    return sorted(folder.name for folder in (resources.files("stelae") / "scaffold").iterdir() if folder.is_dir())


def _write(names: PluginNames, target: Path) -> list[Path]:
    """Create the folder and all its files, and return the paths of the files in it.

    Raises:
        CallerError: the folder cannot be created.
        StorageError: a file could not be written. The folder has been removed."""
    try:
        target.mkdir()
    except FileExistsError as error:
        raise CallerError(f"{target} already exists; choose another name, or another folder with --dir") from error
    except OSError as error:
        raise CallerError(f"cannot create {target}: {error.strerror}; choose another folder with --dir") from error
    written = []
    try:
        for path, text in _rendered(names):
            place = target / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
            written.append(path)
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError):
            raise StorageError(f"cannot write: {error.strerror}; nothing was created", path=str(target)) from error
        raise
    return written


def _rendered(names: PluginNames) -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each file of the new distribution, in order."""
    from stelae import __version__

    values = {**asdict(names), "stelae_version": __version__}
    for parts, template in sorted(_templates(resources.files("stelae") / "scaffold" / names.kind, ())):
        path = Path(*[names.package if part == _PACKAGE else part for part in parts])
        text = Template(template).substitute(values)
        yield path.with_name(path.name.removesuffix(_ENDING)), text


def _templates(folder: Traversable, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for found in folder.iterdir():
        parts = (*before, found.name)
        if found.is_dir():
            yield from _templates(found, parts)
        elif found.name.endswith(_ENDING):
            yield parts, found.read_text(encoding="utf-8")
