r"""The program that compares mathematical answers, run as a child process. Owns what counts as equal; owns no policy of
retries, no scheduling, and imports nothing of the harness.

It reads one JSON object a line from standard input (`id`, `answer`, `gold`, `cpu_seconds`) and writes one a line to
standard output: `{"ready": …}` first, then `{"id", "right"}` for every request. The process that was started only
forks: its child does the work, and a check that uses up its CPU time ends that child by SIGPROF, which is reported as
`{"died": <signal>}` before the next child goes on. So a cut check costs a fork, not a second of imports, and time is
the process's own: waiting for a busy machine costs nothing.

Reading is by grammar (latex2sympy), never by evaluating text as Python. What is not read as mathematics is compared as
text.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, cast

MEMORY_BYTES = 2 << 30
"""Of address space: sympy takes an eighth of it, a tower of exponents any amount."""

CHECKS_A_CHILD = 2000
"""Then a fresh child: what caches and half-built expressions hold on to does not add up."""

RECYCLED, UNREADABLE = 3, 4
"""Exit codes of a child: done its share; lost its place in the input."""

SMALL, RELATIVE = 0.01, 1e-4
"""math-verify rounds decimals to six places, where all very small numbers are 0; numbers below the first must also
agree to the second."""

HUGE = 100_000
"""Digits: more than any expected answer writes out, and more than is worth computing."""

DEEPEST = 60
"""Brackets within brackets; the grammar takes exponential time over them."""

WORD_LETTERS = 4
"""From this length on, letters without markup are a word and not a product: `east` is not `seat`."""

_CHARACTERS = str.maketrans(
    dict.fromkeys("−‐‑‒–—﹣-", "-")
    | {
        "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "×": r"\times ", "·": r"\cdot ", "÷": "/",
        "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "±": r"\pm ", "°": r"^\circ ",
        "²": "^{2}", "³": "^{3}", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "≠": r"\ne ",
        "√": r"\sqrt ", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "≈": r"\approx ",
    }
)  # fmt: skip
_WRAPPED = re.compile(r"\A(?:\$\$(?P<d>.+)\$\$|\$(?P<s>[^$]+)\$|\\\((?P<p>.+)\\\)|\\\[(?P<b>.+)\\\])\Z", re.DOTALL)
_TRAILING = re.compile(r"(?:\\\\|[.,;:\s])+\Z")
_LEADING = re.compile(r"\A\s*\\(?:approx|simeq|sim)(?![A-Za-z])")
_SPACING = re.compile(r"(?<!\\)\\(?:[,;:! ]|q?quad(?![A-Za-z])|(?:thin|med|thick)space(?![A-Za-z]))|~")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])")
_MIXED = re.compile(r"(?<![\d.,/^_])(\d+) +(\d+) ?/ ?(\d+)(?![\d.])")
_BARE_ARGUMENTS = re.compile(r"\\([dt]?frac|binom) *(\d) *(\d)(?!\d)")
_TWO_NUMBERS = re.compile(r"(?<![_^\d.,])\d(?:[\d.,]*\d)? +[\d.]")
_STUCK = re.compile(r"([^\d\s])\1{30}")
"""A model that went into a loop."""
_EXPONENT = re.compile(r"(?<=\d)[eE]([-+]?\d{1,4})(?![\w{])")
_BASE = re.compile(r"\A[\dA-Fa-f]+_\{?(\d+)\}?\Z")
_UNITS = (
    r"(?:[kcm]?m|ft|feet|foot|in|inch(?:es)?|mi(?:les?)?|yd|[km]?g|lbs?|oz|[mµ]?s|sec(?:onds?)?|min(?:utes?)?|h|hrs?|"
    r"hours?|days?|weeks?|months?|years?|dollars?|cents?|degrees?|[km]?(?:meters?|metres?)|liters?|litres?|units?|mph)"
)
_UNIT_TAIL = re.compile(
    rf"(?<=[\d}}])\s*(?<![A-Za-z\\]){_UNITS}(?:\s*(?:/|\bper\b)\s*{_UNITS}|\s*\^\s*\{{?[23]\}}?)\s*\Z"
)
_SPELLED = re.compile(
    r"\A(?:\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*\{)?\s*([A-Za-z][A-Za-z ,'-]*)\}?\Z"
)
_REPEATING = re.compile(r"(?<![\d.])(\d{0,30})\.(\d{0,30})\\overline\s*\{(\d{1,30})\}")
_NO_WORDS = {"inf", "infinity"}
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")


def plain(text: str) -> str:
    """`text` without what changes nothing: delimiters, spacing, typographic signs, a full stop at the end."""
    text = "".join(str(unicodedata.decimal(c, c)) if not c.isascii() else c for c in text.translate(_CHARACTERS))
    text = text.strip()
    while found := _WRAPPED.match(text):
        text = next(part for part in found.groups() if part is not None).strip()
    text = _SPACING.sub(lambda m: "" if m[0] == "\\!" else " ", text)
    text = _TRAILING.sub("", _LEADING.sub("", " ".join(text.split()))).strip()
    text = _THOUSANDS.sub(lambda m: m[0].replace(" ", ""), text.replace("{,}", ","))
    text = _BARE_ARGUMENTS.sub(r"\\\1{\2}{\3}", text)
    text = _REPEATING.sub(_fraction, text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = _EXPONENT.sub(r"\\times 10^{\1}", text)
    return _UNIT_TAIL.sub("", text.replace("\\varnothing", "\\emptyset"))


def spelled(text: str) -> str | None:
    """The letters of a text that has nothing but letters, in one spelling; None for formulas."""
    found = _SPELLED.match(text)
    return " ".join(found[1].lower().split()) if found else None


def words(text: str) -> str | None:
    """What `spelled` makes of a text that is meant as words: marked as text, or too long for a product."""
    said = spelled(text)
    if said is None or len(said) == 1 or said in _NO_WORDS:
        return None
    bare = said.replace(" ", "").isalpha() and max(map(len, said.split())) >= WORD_LETTERS
    return said if "\\" in text or bare else None


def _fraction(found: re.Match[str]) -> str:
    whole, fixed, repeated = found.groups()
    value = int(whole + fixed + repeated) - int(whole + fixed or "0")
    return rf"\frac{{{value}}}{{{10 ** len(fixed) * (10 ** len(repeated) - 1)}}}"


class Mathematics:
    """math-verify, loaded."""

    def __init__(self) -> None:
        # The one place where the library is imported.
        import latex2sympy2_extended as grammar  # pyright: ignore[reportMissingTypeStubs]
        import sympy  # pyright: ignore[reportMissingTypeStubs]
        from math_verify import grader  # pyright: ignore[reportMissingTypeStubs]

        self._sympy = cast(Any, sympy)
        self._grader = cast(Any, grader)
        self._grammar = cast(Any, grammar)
        self._rules = self._grammar.NormalizationConfig(
            basic_latex=True, units=True, malformed_operators=True, nits=True, boxed="none"
        )
        self._golds: dict[str, object] = {}

    def right(self, answer: str, gold: str) -> bool:
        """Whether `answer` says what `gold` says.

        Args:
            answer: The content of a box.
            gold: The expected answer, without a box.
        """
        answer, gold = plain(answer), plain(gold)
        if not answer or not gold:
            return False
        if "".join(answer.split()) == "".join(gold.split()):
            return True
        if (wanted := words(gold)) is not None:
            return wanted == spelled(answer)
        bases = [found[1] for found in map(_BASE.match, (answer, gold)) if found]
        if len(set(bases)) > 1:
            return False
        if gold not in self._golds:
            self._golds = {gold: self._read(gold)}  # rollouts of one example come together
        return self._same(self._read(answer), self._golds[gold])

    def _read(self, text: str) -> object:
        """The expression that a text stands for; None if it is none."""
        if _TWO_NUMBERS.search(text) or _STUCK.search(text) or _depth(text) > DEEPEST:
            return None  # the grammar would add the numbers up, and lose itself in the rest
        degrees = "\\circ" in text and _TRIGONOMETRIC.search(text) is not None
        try:
            normal = self._grammar.normalize_latex(text, self._rules)
            return self._grammar.latex2sympy(
                normal,
                is_real=not self._grader.should_treat_as_complex(normal),
                convert_degrees=degrees,
                normalization_config=None,
            )
        except Exception:  # the edge of a foreign parser, which raises bare Exception for what it cannot read
            return None

    def _same(self, answer: object, gold: object) -> bool:
        if answer is None or gold is None:
            return False  # what is not read is right only letter by letter
        if getattr(gold, "is_Number", False) and self._digits(answer) > HUGE:
            return False  # the expected answer is written out, so it is smaller; this one cannot be
        if not self._grader.verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True):
            return False
        return not self._is_false_equation(answer) and self._is_near(answer, gold)

    def _digits(self, value: object) -> float:
        """About how many digits a tower of exponents or factorials has; 0 for what is none."""
        sympy, number = self._sympy, cast(Any, value)
        if isinstance(value, sympy.Integer):
            return math.log10(max(int(number), 1))
        if isinstance(value, sympy.Pow):
            return self._digits(number.base) * _power(self._digits(number.exp))
        if isinstance(value, sympy.factorial):
            return self._digits(number.args[0]) and _power(self._digits(number.args[0])) * (
                self._digits(number.args[0]) - 0.5
            )
        return 0.0

    def _is_false_equation(self, answer: object) -> bool:
        """`5=6` is neither 5 nor 6."""
        if not isinstance(answer, self._sympy.Eq):
            return False
        sides = cast(Any, answer)
        numeric = sides.lhs.is_number and sides.rhs.is_number
        return bool(numeric) and not self._grader.verify(sides.lhs, sides.rhs, timeout_seconds=None)

    def _is_near(self, answer: object, gold: object) -> bool:
        """Whether two small decimals that are equal after rounding are so without it; true of all else."""
        basic, values = self._sympy.Expr, [cast(Any, answer), cast(Any, gold)]
        if not all(isinstance(v, basic) and v.is_number and not v.has(self._sympy.UnevaluatedExpr) for v in values):
            return True
        if not any(value.has(self._sympy.Float) for value in values):
            return True
        try:
            first, second = (complex(value.evalf(15)) for value in values)
        except (TypeError, ValueError):  # infinite or undefined: nothing to measure
            return True
        size = max(abs(first), abs(second))
        return size >= SMALL or abs(first - second) <= RELATIVE * size


def _power(digits: float) -> float:
    return 10.0**digits if digits < 300 else math.inf


def _depth(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        depth += (letter in "{([") - (letter in "])}")
        deepest = max(deepest, depth)
    return deepest


def serve(mathematics: Mathematics, say: Callable[[dict[str, object]], None]) -> int:
    """Answer requests until the input ends or the share is done; the exit code."""
    lines, share = Lines(), CHECKS_A_CHILD
    while share > 0 or lines.rest:
        share -= 1
        line = lines.next()
        if not line:
            return 0
        try:
            request = cast("dict[str, Any]", json.loads(line))
            number, answer, gold = int(request["id"]), str(request["answer"]), str(request["gold"])
            seconds = float(request["cpu_seconds"])
        except (KeyError, TypeError, ValueError):
            return UNREADABLE
        signal.setitimer(signal.ITIMER_PROF, seconds)  # user and system time of this process; SIGPROF ends it
        try:
            reply: dict[str, object] = {"id": number, "right": mathematics.right(answer, gold)}
        except Exception as error:  # the edge of the foreign library: what it could not do is no verdict
            signal.setitimer(signal.ITIMER_PROF, 0)
            say({"id": number, "error": f"{type(error).__name__}: {error}"[:500]})
            share = 0  # memory may be short, and caches half full
            continue
        signal.setitimer(signal.ITIMER_PROF, 0)
        say(reply)
    return RECYCLED


class Lines:
    """The lines of standard input. There is one request at a time, so a child that ends takes none with it."""

    def __init__(self) -> None:
        self.rest = b""

    def next(self) -> bytes:
        """The next line, or "" at the end."""
        while b"\n" not in self.rest:
            part = os.read(0, 1 << 20)
            if not part:
                return b""
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return line


def main() -> int:
    """Load the library, then keep a child at work until the input ends."""
    replies = os.dup(1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)  # the libraries print; the replies must stay readable

    def say(reply: dict[str, object]) -> None:
        os.write(replies, json.dumps(reply).encode() + b"\n")

    try:
        mathematics = Mathematics()
        warm = mathematics.right(r"\frac{1}{2}+\sqrt{x}", "0.5+x^{1/2}") and mathematics.right("(1,2]", "(1, 2]")
    except Exception as error:  # whatever is wrong with the installation: the parent says it
        say({"ready": False, "error": f"{type(error).__name__}: {error}"})
        return 1
    say({"ready": warm, "error": "" if warm else "it does not know that 1/2 is 0.5"})
    limit_memory()
    while True:
        child = os.fork()
        if not child:
            try:
                code = serve(mathematics, say)
            except BaseException:  # the child must end here, whatever happens: a second copy of this loop would compete
                code = UNREADABLE
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code in (0, UNREADABLE):
            return code
        if code != RECYCLED:
            say({"died": -code})


def limit_memory() -> None:
    """Bound this process and its children: memory, no core dumps, no files."""
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        try:
            resource.setrlimit(what, (most, most))
        except (OSError, ValueError):  # a limit that this system lacks, or a lower one that stands already
            continue


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    sys.exit(main())
