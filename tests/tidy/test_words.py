"""Words that make texts hard to read become fewer: a ratchet that may only go down."""

from __future__ import annotations

from tests.tidy.ratchet import recorded
from tests.tidy.words import figures, found_in, found_in_files, found_in_python


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


def test_a_replica_stands_down_and_names_of_the_code_pass() -> None:
    assert not list(found_in("It stands down, see `stands_down`: it stands\ndown."))
