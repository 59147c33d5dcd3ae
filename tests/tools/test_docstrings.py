"""Docstrings in the three styles, and what is in none of them."""

from __future__ import annotations

import pytest
from tables import for_each_row

from harness.tools.docstrings import read_docstring

GOOGLE = """Add two numbers.

    The sum is exact.

    Args:
        a (int): The first.
        b (int, optional): The second: it may be
            negative.

            Even zero.
        *rest: Others.
        **more: Named others.

    Returns:
        c: the sum.

    Raises:
        ValueError: never.
    """

NUMPY = """Add two numbers.

    The sum is exact.

    Parameters
    ----------
    a : int
        The first.
    b : int, optional
        The second: it may be
        negative.

        Even zero.
    *rest
        Others.
    **more : dict
        Named others.

    Returns
    -------
    c : int
        the sum.
    """

REST = """Add two numbers.

    The sum is exact.

    :param int a: The first.
    :param b: The second: it may be
        negative.

        Even zero.
    :type b: int
    :arg rest: Others.
    :keyword more: Named others.
    :returns: c: the sum
    :raises ValueError: never
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_the_three_styles_say_the_same(docstring: str) -> None:
    read = read_docstring(docstring)
    assert read.description == "Add two numbers.\n\nThe sum is exact."
    assert read.parameters == {
        "a": "The first.",
        "b": "The second: it may be\nnegative.\n\nEven zero.",
        "rest": "Others.",
        "more": "Named others.",
    }


def test_two_names_may_share_a_numpy_entry() -> None:
    read = read_docstring("""Scale.

    Parameters
    ----------
    width, height : float
        In metres.
    """)
    assert read.parameters == {"width": "In metres.", "height": "In metres."}


@for_each_row(
    ("docstring", "description"),
    [
        (None, ""),
        ("", ""),
        ("One line.", "One line."),
        ("Two\n    lines.", "Two\nlines."),
        ("Steps:\n    first this\n\nThen that.", "Steps:\n    first this\n\nThen that."),  # no heading that is known
        ("Use it so: a: b\n", "Use it so: a: b"),
        ("Do.\n\nExamples:\n    >>> f(a: 1)\n", "Do."),
        ("Do.\n\nNote:\n    x: not a parameter.\n", "Do."),
        ("Args:\n    x: first thing.\n", ""),
        ("Args:\n    x: first thing.\n\n    More.", ""),
        ("Do.\n\nargs: x\n", "Do.\n\nargs: x"),
    ],
)
def test_the_description_is_what_stands_before_the_sections(docstring: str | None, description: str) -> None:
    assert read_docstring(docstring).description == description


def test_several_sections_of_parameters_are_all_read() -> None:
    read = read_docstring("""Do.

    Args:
        a: one

    Keyword Args:
        b: two

    Returns:
        d: no parameter
    """)
    assert read.parameters == {"a": "one", "b": "two"}


def test_a_description_on_the_line_below_its_name_is_read() -> None:
    read = read_docstring("Do.\n\nArgs:\n    a:\n        Below.\n    b (dict[str, int]): Beside.\n")
    assert read.parameters == {"a": "Below.", "b": "Beside."}
