from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.cli import dotenv


@for_each_row(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("A = b ", "b"),
        ("export A=b", "b"),
        ("A=", ""),
        ("A=b c", "b c"),
        ("A=b # comment", "b"),
        ("A=b#c", "b#c"),
        ("A=# comment", ""),
        ("A='b # c'", "b # c"),
        ("A='b' # comment", "b"),
        (r'A="b\n\"c\" # $X"', 'b\n"c" # $X'),
        ("A=a=b==", "a=b=="),
        ("A=$HOME", "$HOME"),
        ("\ufeffA=b", "b"),
    ],
)
def test_values(line: str, value: str) -> None:
    assert dotenv.parse(line) == ({"A": value}, [])


@for_each_row("line", ["word", "1A=b", "A b=c", "A='open", 'A="open', "A='x' y", "=b"])
def test_lines_that_are_not_understood_are_counted(line: str) -> None:
    assert dotenv.parse(f"# comment\n\n{line}\nB=c\n") == ({"B": "c"}, [3])


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    found, odd = dotenv.parse(text)
    assert len(found) + len(odd) <= len(text) + 1


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="'\\\x85")))
def test_what_single_quotes_hold_is_what_stands_there(text: str) -> None:
    assert dotenv.parse(f"A='{text}'") == ({"A": text}, [])


def test_the_process_is_never_overridden(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    environ = {"A": "process", "C": ""}
    assert dotenv.load(tmp_path / ".env", environ) == []
    assert environ == {"A": "process", "B": "file", "C": ""}


def test_a_file_that_cannot_be_read_is_told_without_its_content(tmp_path: Path) -> None:
    assert dotenv.load(tmp_path / ".env", {}) == []
    (tmp_path / ".env").write_bytes(b"KEY=\xff\xfe")
    assert dotenv.load(tmp_path / ".env", {}) == [".env was not read: UnicodeDecodeError"]
