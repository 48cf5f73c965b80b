"""The key locator finds exactly the keys that ``tomllib`` finds, each on its line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.config.toml_locator import Path, locate
from tests.at_length import times


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every path in what ``tomllib`` returned."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from paths(item, (*path, position))


def test_each_key_is_on_its_line() -> None:
    text = "a = 1\n# b = 2\n\n[node]\nlisten = 'x' # c = 3\n\n[[m]]\nid = 1\n[[m]]\nid = 2\n"
    lines = locate(text)
    assert lines[("a",)] == 1
    assert lines[("node",)] == 4
    assert lines[("node", "listen")] == 5
    assert (lines[("m",)], lines[("m", 0)], lines[("m", 0, "id")]) == (7, 7, 8)
    assert (lines[("m", 1)], lines[("m", 1, "id")]) == (9, 10)


def test_elements_of_an_array_over_several_lines_have_their_own() -> None:
    lines = locate("k = [\n  1, # one\n  [2,\n 3],\n  {a.b = 4, c = 5},\n]\n")
    assert lines[("k", 0)] == 2
    assert lines[("k", 1)] == 3
    assert lines[("k", 1, 1)] == 4
    assert lines[("k", 2, "a", "b")] == lines[("k", 2, "c")] == 5


TRICKY = [
    "",
    "# only a comment",
    'a = """\n[x]\ny = 1\n"""\nb = 1',
    "a = '''\n''quoted'''''\nb = 1",
    'a = """ends in quotes"""""\nb = 1',
    'a = "x\\"] # not a comment"\nb = 1',
    "a.b.c = 1\na.b.d = 2\n[a.e]\nf = 3",
    '"quoted key"."ü.\\u0041" = 1\n\'literal "key"\' = 2',
    "[ a . b ]\nc = 1\n[a]\nd = 2",
    "[[a]]\n[[a.b]]\nc = 1\n[[a.b]]\n[a.b.d]\ne = 1\n[[a]]\n[[a.b]]\nc = 2",
    "t = 1979-05-27 07:32:00 # date with a space\nf = [1.5e3, inf, nan, 0xff]",
    "a = []\nb = {}\nc = [[], {}, [{}]]",
    "a = [ # comment ]\n 1, # ] more\n]\nb = 2",
    "a = 1\r\nb = '''x\r\ny'''\r\nc = 3\r\n",
    "1 = 1\n-_ = 2\n3.2 = 3",
    "[a]\n[a.b.c]\n[a.b]\nd = 1",
    'x = ["""a\nb""", \'\'\'c\n]\'\'\', "d"]',
]


@pytest.mark.parametrize("text", TRICKY)
def test_tricky_documents_have_the_keys_that_tomllib_finds(text: str) -> None:
    assert set(locate(text)) == set(paths(tomllib.loads(text)))


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=5).map(quoted),
    st.text('abc .#=[]{}"', max_size=5).map(lambda text: f"'{text}'"),
)
TEXTS = st.text("ab\"'\\#=[]{},\n ", max_size=12)


def multiline(text: str) -> str:
    return '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'


SCALARS = st.one_of(
    st.integers(-(1 << 40), 1 << 40).map(str),
    st.booleans().map(lambda value: str(value).lower()),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: repr(value + 0.5)),
    st.sampled_from(["1979-05-27", "07:32:00", "1979-05-27 07:32:00.5Z", "inf", "0b101"]),
    TEXTS.map(json.dumps),
    TEXTS.map(multiline),
    st.text('ab"#=[]{}, \n', max_size=12).map(lambda text: f"'''{text}'''"),
)
GAPS = st.sampled_from(["", " ", "\n", " # ] } = [x]\n", "\n\n  "])


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(st.tuples(GAPS, values, GAPS).map("".join), max_size=4)
    return st.tuples(items, GAPS).map(lambda pair: "[" + ",".join(pair[0]) + pair[1] + "]")


def inline_tables(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(KEYS, values).map(" = ".join), max_size=3)
    return pairs.map(lambda parts: "{ " + ", ".join(parts) + " }")


VALUES = st.recursive(SCALARS, lambda inner: arrays(inner) | inline_tables(inner), max_leaves=8)
DOTTED = st.lists(KEYS, min_size=1, max_size=3).map(" . ".join)
STATEMENTS = st.one_of(
    st.tuples(DOTTED, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}"),
    DOTTED.map(lambda key: f"[{key}]"),
    DOTTED.map(lambda key: f"[[{key}]]"),
    st.just("# comment = [1"),
    st.just(""),
)


def document(statements: list[str]) -> str:
    """Join statements, leaving out those that would not be TOML where they stand."""
    kept: list[str] = []
    for statement in statements:
        try:
            tomllib.loads("\n".join([*kept, statement]))
        except tomllib.TOMLDecodeError:
            continue
        kept.append(statement)
    return "\n".join(kept)


@settings(max_examples=times(400), deadline=None)
@given(st.lists(STATEMENTS, max_size=10))
def test_any_document_has_the_keys_that_tomllib_finds(statements: list[str]) -> None:
    text = document(statements)
    assert set(locate(text)) == set(paths(tomllib.loads(text)))


@settings(max_examples=times(200), deadline=None)
@given(st.lists(st.tuples(VALUES, GAPS), min_size=1, max_size=8))
def test_any_key_is_on_the_line_where_it_was_written(parts: list[tuple[str, str]]) -> None:
    text, expected = "", {}
    for position, (value, gap) in enumerate(parts):
        expected[(f"key-{position}",)] = text.count("\n") + 1
        text += f"key-{position} = {value}\n{gap.lstrip() if '#' in gap else ''}\n"
    lines = locate(text)
    assert {path: lines[path] for path in expected} == expected
