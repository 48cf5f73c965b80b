"""Which interpreters count as built without optimisation.

Where a version is named, the values are what ``sysconfig`` returned there, shortened, and with PREFIX for a folder. The
others follow from what ``configure`` and ``make`` write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stelae_bench import ending, interpreter
from stelae_bench.interpreter import is_optimised, warning
from stelae_bench.machine import describe

WITHOUT = {
    "pyenv, 3.11.7": {
        "CONFIG_ARGS": "'--prefix=PREFIX' '--enable-shared' '--libdir=PREFIX/lib' 'LDFLAGS=-LPREFIX/lib'",
        "PY_CFLAGS": "-Wsign-compare -DNDEBUG -g -fwrapv -O3 -Wall",
        "PY_CFLAGS_NODIST": "-std=c11 -Wextra -fvisibility=hidden  -I./Include/internal",
        "PY_CORE_LDFLAGS": "-LPREFIX/lib -Wl,-rpath,PREFIX/lib",
    },
    "pyenv, 3.13.0": {
        "CONFIG_ARGS": "'--prefix=PREFIX' '--enable-shared'",
        "PY_CFLAGS": "-fno-strict-overflow -Wsign-compare -DNDEBUG -g -O3 -Wall",
        "PY_CFLAGS_NODIST": "-std=c11 -Wextra -fvisibility=hidden  -I./Include/internal -I./Include/internal/mimalloc",
        "PY_CORE_LDFLAGS": "-LPREFIX/lib",
    },
    "./configure without arguments": {"CONFIG_ARGS": "", "PY_CFLAGS": "-DNDEBUG -g -O3 -Wall"},
    "./configure into /usr/local": {"CONFIG_ARGS": "'--prefix=/usr/local'", "PY_CFLAGS": "-DNDEBUG -g -O3 -Wall"},
    "optimisation switched off": {"CONFIG_ARGS": "'--prefix=PREFIX' '--enable-optimizations=no' '--with-lto=no'"},
}

WITH = {
    "python-build-standalone (uv), 3.13": {
        "CONFIG_ARGS": "'--build=x86_64-unknown-linux-gnu' '--prefix=/install' '--with-openssl=/tools/deps' "
        "'--enable-shared' '--with-mimalloc' '--enable-optimizations' '--with-lto' 'CC=clang' 'CFLAGS= -fPIC '"
    },
    "Fedora, 3.11.2": {
        "CONFIG_ARGS": "'--build=x86_64-redhat-linux-gnu' '--prefix=/usr' '--exec-prefix=/usr' '--with-lto' "
        "'--enable-optimizations' 'CC=gcc'",
        "PY_CFLAGS": "-Wsign-compare -DDYNAMIC_ANNOTATIONS_ENABLED=1 -DNDEBUG  -O2",
    },
    "conda, 3.11 on Linux": {  # Installing replaces parts of the file, and removes blanks.
        "CONFIG_ARGS": "'--prefix=PREFIX''--build=x86_64-conda_cos6-linux-gnu''--with-computed-gotos'"
        "'--with-platlibdir=lib''--with-lto''--enable-optimizations''--disable-shared'",
        "PY_CFLAGS_NODIST": "-fno-semantic-interposition  -g -std=c11",
    },
    "conda, 3.12 on macOS": {
        "CONFIG_ARGS": "'--prefix=PREFIX''--with-platlibdir=lib''--with-lto=full''--enable-optimizations'"
    },
    "python.org, macOS": {"CONFIG_ARGS": "'--enable-framework' '--enable-optimizations' '--with-lto'"},
    "make profile-opt by hand": {
        "CONFIG_ARGS": "'--prefix=PREFIX'",
        "PY_CFLAGS_NODIST": "-std=c11 -Wextra -fvisibility=hidden -fprofile-use -fprofile-correction",
    },
    "make profile-opt with clang": {
        "CONFIG_ARGS": "'--prefix=PREFIX'",
        "PY_CFLAGS_NODIST": "-std=c11 -fprofile-instr-use=code.profclangd",
    },
}

UNKNOWN: dict[str, dict[str, Any]] = {
    "Debian 12, 3.11.2": {
        "CONFIG_ARGS": "'--enable-shared' '--prefix=/usr' '--libdir=/usr/lib/x86_64-linux-gnu' '--enable-ipv6' "
        "'--with-system-expat' 'CC=x86_64-linux-gnu-gcc' 'LDFLAGS=  -g -fwrapv -O2   '",
        "PY_CFLAGS": "-Wsign-compare -DNDEBUG -g -fwrapv -O2 -Wall -g   -fstack-protector-strong",
        "PY_CFLAGS_NODIST": "-std=c11 -Wextra -fvisibility=hidden  -I../Include/internal",
        "PY_CORE_LDFLAGS": "  -g -fwrapv -O2   ",
    },
    "Ubuntu 24.04, 3.12.3": {
        "CONFIG_ARGS": "'--enable-shared' '--prefix=/usr' '--libdir=/usr/lib/x86_64-linux-gnu' '--with-dtrace'",
        "PY_CFLAGS": "-fno-strict-overflow -Wsign-compare -DNDEBUG -g -O2 -Wall",
        "PY_CFLAGS_NODIST": "-Wdate-time -D_FORTIFY_SOURCE=3 -g -fno-omit-frame-pointer -fstack-protector",
        "PY_CORE_LDFLAGS": "-Wl,-Bsymbolic-functions  -Wl,-z,relro -g -fwrapv -O2",
    },
    "no arguments recorded": {"PY_CFLAGS": "-DNDEBUG -g -O2 -Wall"},
}


@pytest.mark.parametrize("name", WITHOUT)
def test_an_interpreter_without_optimisation_is_named_with_the_cost_and_the_next_step(name: str) -> None:
    assert is_optimised(WITHOUT[name]) is False
    text = warning(WITHOUT[name])
    assert text is not None and "\n" not in text
    assert "8 to 20 % more writes" in text and "--enable-optimizations" in text


@pytest.mark.parametrize("name", WITH)
def test_an_optimised_interpreter_causes_no_warning(name: str) -> None:
    assert is_optimised(WITH[name]) is True
    assert warning(WITH[name]) is None


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_interpreter_that_does_not_tell_causes_no_warning(name: str) -> None:
    assert is_optimised(UNKNOWN[name]) is None
    assert warning(UNKNOWN[name]) is None


def test_a_benchmark_warns_on_standard_error_before_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interpreter.sysconfig, "get_config_vars", lambda: WITHOUT["pyenv, 3.11.7"])
    seen = ending.measured(lambda: capsys.readouterr())
    assert seen.err == f"{warning()}\n" and seen.out == ""
    assert describe()["python_optimised"] is False


def test_a_benchmark_of_an_optimised_interpreter_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interpreter.sysconfig, "get_config_vars", lambda: WITH["Fedora, 3.11.2"])
    assert ending.measured(lambda: SimpleNamespace(ok=True)).ok
    assert capsys.readouterr().err == ""
    assert describe()["python_optimised"] is True


def test_make_runs_the_check_before_anything_is_installed() -> None:
    script = Path(interpreter.__file__)
    assert f"-P plugins/bench/stelae_bench/{script.name}" in (script.parents[3] / "Makefile").read_text()
    done = subprocess.run([sys.executable, "-I", "-S", script], capture_output=True, text=True, check=True)
    assert done.stdout == "" and done.stderr.strip() == (warning() or "")
