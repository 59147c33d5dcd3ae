r"""The program that compares mathematical answers, run as a child process. Owns what counts as equal; owns no policy of
retries and no scheduling. Of the harness it loads one file, `math_text`, which says what of a text's spelling matters.

It reads one JSON object a line from standard input (`id`, `answer`, `gold`, `cpu_seconds`) and writes one a line to
standard output: `{"ready": …}` first, then `{"id", "right"}` for every request. The process that was started only
forks: its child does the work, and a check that uses up its CPU time ends that child by SIGPROF, which is reported as
`{"died": <signal>}` before the next child goes on. So a cut check costs a fork, not a second of imports, and time is
the process's own: waiting for a busy machine costs nothing.

Whoever started it may be killed at any time. On Linux the kernel then ends both processes, and everywhere the child
ends itself when its input closes, so nobody computes for nobody.

Reading is by grammar (latex2sympy), never by evaluating text as Python. What is not read as mathematics is compared as
text.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import math
import os
import re
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING or __name__ != "__main__":
    from harness.rubrics import math_text
else:  # run as a program, which starts faster without the harness
    _spec = importlib.util.spec_from_file_location("math_text", Path(__file__).with_name("math_text.py"))
    math_text = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(math_text)

MEMORY_BYTES = 2 << 30
"""Of address space: sympy takes an eighth of it, a tower of exponents any amount."""

CHECKS_A_CHILD = 2000
"""Then a fresh child: what caches and half-built expressions hold on to does not add up."""

PR_SET_PDEATHSIG = 1
"""Linux's number for the signal that a process gets when its parent ends."""

RECYCLED, UNREADABLE = 3, 4
"""Exit codes of a child: done its share; lost its place in the input."""

SMALL, RELATIVE = 0.01, 1e-4
"""math-verify rounds decimals to six places, where all very small numbers are 0; numbers below the first must also
agree to the second."""

HUGE = 100_000
"""Digits: more than any expected answer writes out, and more than is worth computing."""

DEEPEST = 60
"""Brackets within brackets; the grammar takes exponential time over them."""

_TWO_NUMBERS = re.compile(r"(?<![_^\d.,])\d(?:[\d.,]*\d)? +[\d.]")
_STUCK = re.compile(r"([^\d\s])\1{30}")
"""A model that went into a loop."""
_BASE = re.compile(r"\A[\dA-Fa-f]+_\{?(\d+)\}?\Z")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")


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
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
        )
        self._golds: dict[tuple[str, bool], object] = {}

    def right(self, answer: str, gold: str) -> bool:
        """Whether `answer` says what `gold` says.

        Args:
            answer: The content of a box.
            gold: The expected answer, without a box.
        """
        answer, gold = math_text.plain(answer), math_text.plain(gold)
        if not answer or not gold:
            return False
        if math_text.same_text(answer, gold):
            return True
        if (wanted := math_text.words(gold)) is not None:
            return wanted == math_text.spelled(answer)
        gold = math_text.without_unit(gold, number_expected=False)
        answer = math_text.without_unit(answer, number_expected=math_text.is_numeral(gold))
        if math_text.same_text(answer, gold):
            return True
        bases = [found[1] for found in map(_BASE.match, (answer, gold)) if found]
        if len(set(bases)) > 1:
            return False
        return self._same(*self._both(answer, gold))

    def _both(self, answer: str, gold: str) -> tuple[object, object]:
        """The two expressions, read alike: `i` is the imaginary unit in both or in none."""
        lower = not (math_text.i_is_variable(answer) or math_text.i_is_variable(gold))
        texts = math_text.with_imaginary(answer, lower), math_text.with_imaginary(gold, lower)
        if texts != (answer, gold):
            said, wanted = self._read(texts[0], True), self._read_gold(texts[1], True)
            if said is not None and wanted is not None:
                return said, wanted
        complex_ = any(map(self._grader.should_treat_as_complex, (answer, gold)))
        return self._read(answer, complex_), self._read_gold(gold, complex_)

    def _read_gold(self, text: str, complex_: bool) -> object:
        key = (text, complex_)
        if key not in self._golds:
            self._golds = {key: self._read(*key)}  # rollouts of one example come together
        return self._golds[key]

    def _read(self, text: str, complex_: bool) -> object:
        """The expression that a text stands for; None if it is none. Variables are real unless it is about complex
        numbers."""
        if _TWO_NUMBERS.search(text) or _STUCK.search(text) or _depth(text) > DEEPEST or math_text.is_prose(text):
            return None  # the grammar would add numbers up, multiply letters of words, and lose itself in the rest
        degrees = "\\circ" in text and _TRIGONOMETRIC.search(text) is not None
        try:
            return self._grammar.latex2sympy(
                self._grammar.normalize_latex(text, self._rules),
                is_real=None if complex_ else True,
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
    lines, share = RequestLines(), CHECKS_A_CHILD
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


class RequestLines:
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
    worker = os.getpid()
    while True:
        child = os.fork()
        if not child:
            try:
                end_with_parent(worker)
                threading.Thread(target=end_with_input, daemon=True).start()
                code = serve(mathematics, say)
            except BaseException:  # the child must end here, whatever happens: a second copy of this loop would compete
                code = UNREADABLE
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code in (0, UNREADABLE):
            return code
        if code != RECYCLED:
            say({"died": -code})


def end_with_parent(parent: int) -> None:
    """Let the kernel end this process when its parent ends, where the kernel can do that.

    Args:
        parent: Its id. A parent that has ended already is noticed by another one having taken its place.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def end_with_input() -> None:
    """End this process when nobody is left who could send it anything. What it still computes, nobody would read."""
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll()):
        continue
    os._exit(0)


def limit_memory() -> None:
    """Bound this process and its children: memory, no core dumps, no files."""
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        try:
            resource.setrlimit(what, (most, most))
        except (OSError, ValueError):  # a limit that this system lacks, or a lower one that stands already
            continue


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    end_with_parent(int(sys.argv[1]))
    sys.exit(main())
