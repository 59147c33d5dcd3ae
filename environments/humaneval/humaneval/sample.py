"""Problems that ship with the package, in HumanEval's form. Owns their text; a few lines each, none from the original.

They cover what the original does: helper functions and imports in the prompt, tests that import, that compute with what
they get back, and that look at types."""

from __future__ import annotations

_PROMPTS = (
    (
        "running_total",
        '''from typing import List


def running_total(numbers: List[int]) -> List[int]:
    """ For each position, the sum of all numbers up to and including it.
    >>> running_total([1, 2, 3])
    [1, 3, 6]
    """
''',
        """    totals, total = [], 0
    for number in numbers:
        total += number
        totals.append(total)
    return totals
""",
        """def check(candidate):
    assert candidate([]) == []
    assert candidate([4]) == [4]
    assert candidate([1, 2, 3]) == [1, 3, 6]
    assert candidate([5, -5, 0, 2]) == [5, 0, 0, 2]
""",
    ),
    (
        "initials",
        '''def initials(name: str) -> str:
    """ The first letters of all words of a name, in capitals, each followed by a full stop.
    >>> initials("ada king lovelace")
    'A.K.L.'
    """
''',
        """    return "".join(word[0].upper() + "." for word in name.split())
""",
        """def check(candidate):
    assert candidate("") == ""
    assert candidate("ada") == "A."
    assert candidate("ada king lovelace") == "A.K.L."
    assert candidate("  grace   hopper ") == "G.H."
""",
    ),
    (
        "decode_runs",
        '''def encode_runs(text: str):
    """ A text as pairs of a character and how often it stands in a row.
    """
    runs = []
    for char in text:
        if runs and runs[-1][0] == char:
            runs[-1] = (char, runs[-1][1] + 1)
        else:
            runs.append((char, 1))
    return runs


def decode_runs(runs) -> str:
    """ The text that encode_runs has encoded.
    """
''',
        """    return "".join(char * count for char, count in runs)
""",
        """def check(candidate):
    from random import Random
    rng = Random(5)
    for _ in range(20):
        text = "".join(rng.choice("ab") for _ in range(rng.randint(1, 12)))
        assert candidate(encode_runs(text)) == text
    assert candidate([]) == ""
""",
    ),
    (
        "root",
        '''import math


def cube(x: float) -> float:
    """ x to the third power """
    return x * x * x


def root(y: float) -> float:
    """ The real number whose cube is y, to within one millionth of y or better.
    >>> round(root(27.0), 3)
    3.0
    """
''',
        """    size = abs(y) ** (1.0 / 3.0)
    return math.copysign(size, y)
""",
        """def check(candidate):
    import math
    for y in (27.0, -8.0, 0.0, 1e9, -1e-3):
        assert math.fabs(cube(candidate(y)) - y) <= 1e-6 * math.fabs(y)
""",
    ),
    (
        "tally",
        '''def tally(words):
    """ A dictionary from each word to how often it occurs; words that differ only in case are the same word and
    stand there in lower case.
    >>> tally(["Yes", "no", "yes"])
    {'yes': 2, 'no': 1}
    """
''',
        """    counts = {}
    for word in words:
        counts[word.lower()] = counts.get(word.lower(), 0) + 1
    return counts
""",
        """def check(candidate):
    assert candidate([]) == {}
    assert candidate(["Yes", "no", "yes"]) == {"yes": 2, "no": 1}
    assert candidate(("a", "A", "a")) == {"a": 3}
    assert isinstance(candidate(["x"]), dict)
""",
    ),
    (
        "second_largest",
        '''def second_largest(numbers):
    """ The second largest of the different numbers in a list, or None if there are not two different ones.
    >>> second_largest([3, 1, 3])
    1
    """
''',
        """    different = sorted(set(numbers))
    return different[-2] if len(different) > 1 else None
""",
        """def check(candidate):
    assert candidate([3, 1, 3]) == 1
    assert candidate([5, 9, 7]) == 7
    assert candidate([2, 2]) is None
    assert candidate([]) is None
    assert candidate([-1, -2]) == -2
""",
    ),
    (
        "split_in_two",
        '''from typing import List, Tuple


def split_in_two(items: List[int], wanted: int) -> Tuple[List[int], List[int]]:
    """ The items below `wanted` and all others, both in their old order.
    """
''',
        """    return [item for item in items if item < wanted], [item for item in items if item >= wanted]
""",
        """def check(candidate):
    assert candidate([], 1) == ([], [])
    assert candidate([3, 1, 2], 2) == ([1], [3, 2])
    assert candidate(items=[5, 5], wanted=5) == ([], [5, 5])
    assert isinstance(candidate([1], 1), tuple)
""",
    ),
    (
        "is_leap",
        '''def is_leap(year: int) -> bool:
    """ Whether a year of the Gregorian calendar has 366 days.
    """
''',
        """    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
""",
        """def check(candidate):
    import calendar
    for year in range(1890, 2110):
        assert candidate(year) is calendar.isleap(year)
    assert candidate(2000) is True
    assert candidate(1900) is False
""",
    ),
)

PROBLEMS: tuple[dict[str, str], ...] = tuple(
    {
        "task_id": f"sample/{number}",
        "prompt": prompt,
        "entry_point": entry_point,
        "canonical_solution": solution,
        "test": test,
    }
    for number, (entry_point, prompt, solution, test) in enumerate(_PROMPTS)
)
