"""``stelae plugins new``: a distribution of one's own, with an engine that works and can be changed.

The files come from templates in ``stelae/scaffold/<kind>``: text with ``$names`` in it, in which the folder
``package`` stands for the import package and the ending ``.in`` goes. Everything is checked before the first
file is written, and what an error or an interrupt leaves half made is removed."""

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
"""Characters of an engine's name: it becomes part of file, package and class names."""

KINDS_WITHOUT_TEMPLATE = {
    "store": "its contract is there, with a suite, but no template yet",
    "consensus": "its contract is there, with a suite, but no template yet",
    "copy": "its contract has version 0 and may still change",
    "policy": "its contract is there, with a suite, but no template yet",
}
"""Kinds of engines that cannot be made from a template, and why."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PACKAGE = "package"
_ENDING = ".in"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginNames:
    """What the parts of a new distribution are called; all of it follows from kind and name."""

    kind: str
    name: str
    distribution: str
    package: str
    engine: str
    config: str

    @classmethod
    def of(cls, kind: str, name: str) -> PluginNames:
        """Derive them; ``timeline`` of kind ``wal`` has the class ``TimelineWal``."""
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
    name: Annotated[str, typer.Argument(help="Name of the engine, as node.toml will pick it: `timeline`.")],
    kind: Annotated[str, typer.Option(help="What it is an engine for: `wal`.", show_default=False)],
    directory: Annotated[
        Path, typer.Option("--dir", help="Folder in which to make the distribution's folder; it must exist.")
    ] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Make a distribution of your own with an engine in it, to be changed into yours.

    For `timeline` of kind `wal` that is the folder `stelae-wal-timeline`: a pyproject.toml that announces
    the engine as `wal.timeline`, the import package `stelae_wal_timeline` with settings, hook and an engine
    that works, and a test module that runs the conformance suite on it. Nothing is installed, and no
    node.toml is touched. Exit code 2, with nothing written, if the name, the kind or the folder will not do.

    Then, in the new folder: install it, let `stelae plugins check` load it, run `pytest`, and change the
    engine with the suite at your back."""
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
    print(f"made {target}:\n")
    print("\n".join(f"  {path}" for path in files))
    print("\nnext:\n")
    print("\n".join(f"  {command}" for command in following))
    print("\nThe engine works as it is; its README.md says what to change first.")


def _check(names: PluginNames) -> None:
    """Refuse a kind or name that will not do.

    Raises:
        CallerError: says what would do."""
    from stelae.config.contracts import EngineKind
    from stelae.config.registry import Registry

    kinds = ", ".join(_kinds())
    if names.kind in KINDS_WITHOUT_TEMPLATE:
        reason = KINDS_WITHOUT_TEMPLATE[names.kind]
        raise CallerError(f"an engine of kind {names.kind!r} cannot be made from a template: {reason}; known: {kinds}")
    if names.kind not in _kinds():
        raise CallerError(f"there is no kind {names.kind!r} to make an engine of; known: {kinds}")
    if not _NAME.fullmatch(names.name) or len(names.name) > NAME_LENGTH_MAX:
        raise CallerError(
            f"{names.name[:80]!r} cannot be the name of an engine: it takes 1 to {NAME_LENGTH_MAX} lower-case letters, "
            "digits and single underscores between them, beginning with a letter"
        )
    taken = Registry.installed().names(EngineKind(names.kind))
    if names.name in taken:
        raise CallerError(
            f"an engine {names.kind}.{names.name} is installed already; choose another name than {', '.join(taken)}"
        )


def _kinds() -> list[str]:
    return sorted(folder.name for folder in (resources.files("stelae") / "scaffold").iterdir() if folder.is_dir())


def _write(names: PluginNames, target: Path) -> list[Path]:
    """Make the folder and all its files, or nothing; return their paths within it.

    Raises:
        CallerError: the folder cannot be made.
        StorageError: a file could not be written; the folder is gone again."""
    try:
        target.mkdir()
    except FileExistsError as error:
        raise CallerError(f"{target} exists already; choose another name, or another folder with --dir") from error
    except OSError as error:
        raise CallerError(f"{target} cannot be made: {error.strerror}; choose another folder with --dir") from error
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
            raise StorageError(f"cannot write: {error.strerror}; nothing was made", path=str(target)) from error
        raise
    return written


def _rendered(names: PluginNames) -> Iterator[tuple[Path, str]]:
    """Each file of the new distribution, by its path in it, in order."""
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
