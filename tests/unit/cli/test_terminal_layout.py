"""What commands print fits the terminal; names that are nearly right are told."""

from __future__ import annotations

import pytest

from stelae.cli.kit.name_lookup import UnknownName, pick, shorten
from stelae.cli.kit.terminal_layout import age_text, bytes_text, fitted, print_facts, print_fitted, print_note
from stelae.client.counted import counted


def test_a_table_that_fits_is_as_wide_as_its_contents() -> None:
    assert fitted(("A", "LONGER"), [("1", "2"), ("22", "")], 80) == ["A   LONGER", "1   2", "22"]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(columns: int) -> None:
    row = ("a" * 32, "127.0.0.1:12345 127.0.0.1:12346 127.0.0.1:12347", "does not answer: nobody is there", "ok")
    lines = fitted(("TABLET", "REPLICAS", "WHY", "STATE"), [row], columns)
    assert max(map(len, lines)) <= columns
    assert sorted("".join("".join(lines[1:]).split())) == sorted("".join("".join(row).split()))


def test_narrow_columns_keep_their_width_and_wide_ones_share_the_rest() -> None:
    lines = fitted(("ID", "WHY"), [("12345678", "word " * 40)], 40)
    assert all(line.startswith(("ID", "12345678", " " * 10)) for line in lines)


def test_what_wraps_is_text_and_not_an_address() -> None:
    lines = fitted(("ADDRESS", "UP", "STATE"), [("127.0.0.1:12345", "5 min 52 s", "does not answer")], 32)
    assert lines[1].startswith("127.0.0.1:12345  ") and max(map(len, lines)) <= 32


@pytest.mark.parametrize(("count", "text"), [(0, "0 tablets"), (1, "1 tablet"), (2, "2 tablets")])
def test_one_thing_is_told_in_the_singular(count: int, text: str) -> None:
    assert counted(count, "tablet") == text


def test_a_remark_goes_to_standard_error_and_its_further_lines_stand_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_note("problem: " + "word " * 12)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("problem: word") and second.startswith("  word") and max(map(len, (first, second))) <= 40


def test_line_breaks_in_a_cell_are_kept() -> None:
    assert fitted(("A", "B"), [("x\ny", "1")], 80) == ["A  B", "x  1", "y"]


def test_a_table_without_rows_is_its_headers() -> None:
    assert fitted(("A", ""), [], 80) == ["A"]


def test_facts_stand_below_each_other_and_empty_ones_are_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_facts({"name": "x", "nothing": "", "much": "word " * 12})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "name  x" and lines[1].startswith("much  word") and lines[2].startswith("      word")
    assert max(map(len, lines)) <= 40


def test_where_the_output_is_no_terminal_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_fitted(("WHY", "STATE"), [("word " * 60, "ok")])
    print_facts({"much": "word " * 60})
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_sizes_and_ages_are_told_in_units_that_people_read() -> None:
    assert [bytes_text(n) for n in (None, 0, 1023, 1536, 5 << 30)] == ["-", "0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    ages = (None, 400, 61_000, 3_700_000, 3 * 86_400_000)
    assert [age_text(ms) for ms in ages] == ["never", "0.4 s", "1 min 1 s", "1 h 1 min", "3 d 0 h"]


NAMES = {"readings": "readings", "stations": "stations", "abcd1111": "abcd1111", "abcd2222": "abcd2222"}


def test_a_name_and_the_beginning_of_an_id_mean_the_same_thing() -> None:
    assert pick("thing", "stations", NAMES, "x") == "stations"
    assert pick("thing", "abcd1", NAMES, "x") == "abcd1111"
    assert pick("server", "a:1", {"a:1": "id-1", "id-1": "id-1"}, "x") == "id-1"


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ("readngs", "no thing 'readngs'; the nearest are: readings; list them with: stelae list"),
        ("abcd", "2 things begin with 'abcd': abcd1111, abcd2222"),
        ("abc", "no thing 'abc'"),
        ("qqqqqqqqqqqq", "known: abcd1111, abcd2222, readings, stations"),
        ("x" * 500, "'" + "x" * 80 + "'"),
    ],
)
def test_what_is_unknown_or_ambiguous_is_told_with_its_neighbours_and_the_next_step(given: str, fact: str) -> None:
    with pytest.raises(UnknownName) as caught:
        pick("thing", given, NAMES, "stelae list")
    assert fact in str(caught.value)


def test_the_beginning_of_an_address_or_a_name_is_not_taken_for_the_whole() -> None:
    """A removal by an address that no server has any more was one of the server whose port begins alike."""
    names = {"10.0.0.1:60510": "abcd1111", "tserver-10": "abcd1111", "abcd1111": "abcd1111"}
    for given in ("10.0.0.1:6051", "tserver-1"):
        with pytest.raises(UnknownName, match="the nearest are: "):
            pick("server", given, names, "x")


def test_where_there_is_nothing_nothing_is_suggested() -> None:
    with pytest.raises(UnknownName, match="there are none; list them with"):
        pick("thing", "x", {}, "stelae list")


def test_ids_are_cut_where_they_still_differ() -> None:
    assert shorten(["a" * 32, "b" * 32]) == {"a" * 32: "a" * 8, "b" * 32: "b" * 8}
    near = ["a" * 20 + "b" * 12, "a" * 32]
    assert {len(short) for short in shorten(near).values()} == {21}
    assert shorten([]) == {} and shorten(["abc"]) == {"abc": "abc"}
