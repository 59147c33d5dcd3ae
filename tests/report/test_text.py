"""Foreign text can neither steer a terminal nor hide anything."""

from __future__ import annotations

import io
import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from pace import is_linear
from rich.cells import cell_len
from tables import for_each_row

from harness.report.text import clean, clean_block, fit, make_console


@for_each_row(
    ("text", "harmless"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hfake prompt $", "fake prompt $"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;ZXZpbA==\x1b\\after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9d0;title\x9cafter", "after"),
        ("\x1bPdcs\x1b\\after", "after"),
        ("\x1b]0;never ends, but is not hidden", "0;never ends, but is not hidden"),
        ("\x1b\x1b[0m[31m", "[31m"),
        ("over\rwrite", "over write"),
        ("be\x08ep\x07\x00", "beep"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("a\u202egnp.exe\u2066\u200b\ufeff", "agnp.exe"),
        ("\U000e0041\U000e0042tag", "tag"),
        ("half \ud83d of a character", "half \ufffd of a character"),
        ("1 \u2028 2", "1 2"),
        ("naïve 数学 🙂 [bold]not markup[/]", "naïve 数学 🙂 [bold]not markup[/]"),
    ],
)
def test_what_a_terminal_would_obey_is_gone(text: str, harmless: str) -> None:
    assert clean(text) == harmless


@given(st.text(st.characters(codec=None), max_size=200))
def test_nothing_printed_is_a_control_character(text: str) -> None:
    line = clean(text)
    assert not [c for c in line if ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000]
    assert clean(line) == line
    block = clean_block(text)
    assert set(c for c in block if ord(c) < 32) <= {"\n", "\t"}


def test_long_text_is_cut_and_says_so() -> None:
    assert clean("x" * 1000, 10) == "xxxxxxxxx…"
    assert len(clean("x" * 10_000_000)) == 300


@for_each_row("piece", ["\x1b]", "\x1b[0", "\x9b", "\x1b", "\x9d0;", "\x1bP\x1b"])
def test_cleaning_is_linear_in_hostile_input(piece: str) -> None:
    assert is_linear(lambda size: clean_block(piece * size), 20_000)


@given(st.text(st.characters(exclude_categories=["C", "M"]), max_size=40), st.integers(1, 30))
def test_fitted_text_has_the_width(text: str, width: int) -> None:
    short = fit(text, width)
    assert cell_len(short) == width or width < 4
    if cell_len(text) <= width:
        assert short.rstrip() == text.rstrip()


def test_a_cut_name_keeps_both_ends() -> None:
    assert fit("ablation-temperature-0.7", 12) == "ablat…re-0.7"


def test_a_console_takes_text_literally() -> None:
    file = io.StringIO()
    make_console(file=file, width=80).print("[bold]x[/bold] :smile: 123")
    assert file.getvalue() == "[bold]x[/bold] :smile: 123\n"


def test_a_stream_that_cannot_write_a_character_replaces_it() -> None:
    code = "from harness.report.text import make_console; make_console().print('0.5 \\xb10.1 \\u6570')"
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, timeout=60, check=True)
    assert done.stdout == b"0.5 ?0.1 ?\n"


def test_a_reader_that_went_away_ends_nothing() -> None:
    # stderr's reader is gone; what goes to stdout must still arrive.
    code = (
        "from harness.report.text import make_console\n"
        "console = make_console(stderr=True)\n"
        "for _ in range(3): console.print('x' * 100_000)\n"
        "make_console().print('data')"
    )
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=write, timeout=60, check=False)
    os.close(write)
    assert done.stdout == b"data\n"
