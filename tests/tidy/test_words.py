"""Words that make texts hard to read become fewer: a ratchet that may only go down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.ratchet import recorded
from tests.tidy.words import figures, found_in, found_in_files, found_in_python, is_read


def test_unclear_words_are_no_more_than_recorded() -> None:
    found = found_in_files()
    assert figures(found)["words_count"] <= recorded()["words_count"], "say it by a plain word:\n" + "\n".join(found)


def test_the_recorded_count_is_no_higher_than_the_texts_need() -> None:
    now, limit = figures(found_in_files()), recorded()
    assert limit["words_count"] <= now["words_count"], f"the texts got better: {now}; keep it so with `make ratchet`"


def test_each_of_the_words_is_found_in_docstrings_comments_and_pages() -> None:
    source = '''"""Nobody\nstands here."""\nx = "nobody"  # Lest it falls.\n'''
    assert sorted(found_in_python(source)) == [(1, "Nobody"), (2, "stands"), (3, "Lest")]
    assert list(found_in("Ask\nwhoever leads.")) == [(2, "whoever")]


@pytest.mark.parametrize(
    "source",
    [
        "raise Unavailable(f'{name} is down, so nobody answers')",
        "raise Unavailable('it takes ' 'them back')",
        "log.warning('the leader was told of %s', name)",
        "typer.Option(help='Wait so many seconds.')",
        "# It waits for so\n# many seconds.",
        "#: What became\n#: of it.",
    ],
)
def test_errors_log_lines_help_and_comments_of_several_lines_are_read(source: str) -> None:
    assert len(list(found_in_python(source))) == 1


def test_a_name_is_no_text_and_comments_apart_are_not_read_as_one() -> None:
    assert not list(found_in_python("kind = 'nobody.serves'\n# Drawn so\nx = 1\n# many times.\n"))


@pytest.mark.parametrize(
    "path", ["README.md", "changelog/unreleased/x.md", "plugins/x/README.md", "kernel/stelae/x.py"]
)
def test_all_pages_and_the_modules_of_kernel_and_plugins_are_read(path: str) -> None:
    assert is_read(Path(path))
    assert not is_read(Path("tests/unit/x.py"))


def test_a_replica_stands_down_and_names_of_the_code_pass() -> None:
    assert not list(found_in("It stands down, see `stands_down`: it stands\ndown."))
