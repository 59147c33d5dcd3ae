r"""The program that compares mathematical answers, run as a child process by `math_pool`. From this package it loads
only the file `math_text`, which normalizes answers.

It reads one JSON object per line from stdin (`id`, `answer`, `gold`, `cpu_seconds`) and writes one per line to stdout:
first `{"ready": …}`, then `{"id", "right"}` for every request. The main process only forks; its child compares the
answers. A check that exceeds its CPU time ends the child by SIGPROF. The main process reports that as `{"died":
<signal>}` and forks the next child, which is faster than importing the libraries again. Only the CPU time of the child
is limited, so a busy machine does not change results.

The harness may be killed at any time. On Linux the kernel then ends both processes. On all systems the child ends when
its input is closed.

Answers are parsed by a grammar (latex2sympy), never evaluated as Python. Those that cannot be parsed as mathematics are
compared as text."""

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
else:  # run as a program, which starts faster without importing the harness
    _spec = importlib.util.spec_from_file_location("math_text", Path(__file__).with_name("math_text.py"))
    math_text = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(math_text)

MEMORY_BYTES = 2 << 30
"""Limit of the address space in bytes. sympy takes an eighth of it, but nested exponents would take any amount."""

WALL_SECONDS = 600
"""Wall-time limit in seconds of loading the libraries and of one check, for machines that swap; SIGALRM ends the
process. It is generous, so that results do not depend on it."""

CHECKS_A_CHILD = 2000
"""Number of checks after which a child is replaced, so that memory in caches does not accumulate."""

PR_SET_PDEATHSIG = 1
"""Linux's number of the `prctl` option that sends a signal to this process when its parent ends."""

RECYCLED, UNREADABLE = 3, 4
"""Exit codes of a child process: after `CHECKS_A_CHILD` checks, and after a request that it cannot parse."""

SMALL, RELATIVE = 0.01, 1e-4
"""Numbers below `SMALL` are equal only if their relative difference is at most `RELATIVE`, since math-verify rounds
decimals to six places, so that all very small numbers become 0."""

HUGE = 100_000
"""Number of digits above which a number is not computed; expected answers are shorter."""

DEEPEST = 60
"""Maximum depth of nested brackets, since the grammar needs exponential time for them."""

_TWO_NUMBERS = re.compile(r"(?<![_^\d.,])\d(?:[\d.,]*\d)? +[\d.]")
_STUCK = re.compile(r"([^\d\s])\1{30}")
"""Pattern of the output of a model that repeats a character for ever."""
_BASE = re.compile(r"\A[\dA-Fa-f]+_\{?(\d+)\}?\Z")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")


class Mathematics:
    """Comparison of answers with math-verify."""

    def __init__(self) -> None:
        # Imported only here, since the import takes a second.
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
        """Return whether `answer` equals `gold`.

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
        """Parse both expressions in the same way: `i` is the imaginary unit either in both or in neither."""
        lower = not (math_text.i_is_variable(answer) or math_text.i_is_variable(gold))
        texts = math_text.with_imaginary(answer, lower), math_text.with_imaginary(gold, lower)
        if texts != (answer, gold):
            said, wanted = self._read(texts[0], True), self._read_gold(texts[1], True)
            if said is not None and wanted is not None:
                return said, wanted
        complex_ = any(map(self._grader.should_treat_as_complex, (answer, gold)))
        return self._read(answer, complex_), self._read_gold(gold, complex_)

    def _read_gold(self, text: str, complex_: bool) -> object:
        """Parse an expected answer; the result for the last one is cached."""
        key = (text, complex_)
        if key not in self._golds:
            self._golds = {key: self._read(*key)}  # rollouts of one example are checked in sequence
        return self._golds[key]

    def _read(self, text: str, complex_: bool) -> object:
        """Parse a string as an expression; None if it is not one. Variables are real numbers, unless `complex_`."""
        if _TWO_NUMBERS.search(text) or _STUCK.search(text) or _depth(text) > DEEPEST or math_text.is_prose(text):
            return None  # the grammar would add the numbers, multiply the letters of words, or need too much time
        degrees = "\\circ" in text and _TRIGONOMETRIC.search(text) is not None
        try:
            return self._grammar.latex2sympy(
                self._grammar.normalize_latex(text, self._rules),
                is_real=None if complex_ else True,
                convert_degrees=degrees,
                normalization_config=None,
            )
        except Exception:  # the parser raises bare Exception for invalid input
            return None

    def _same(self, answer: object, gold: object) -> bool:
        """Return whether two parsed expressions are equal."""
        if answer is None or gold is None:
            return False  # a text that cannot be parsed must match exactly
        if getattr(gold, "is_Number", False) and self._digits(answer) > HUGE:
            return False  # the expected answer is written out, so it is smaller; this one cannot be computed
        if not self._grader.verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True):
            return False
        return not self._is_false_equation(answer) and self._is_near(answer, gold)

    def _digits(self, value: object) -> float:
        """Estimate the number of digits of integers, nested powers and factorials; 0 for other values."""
        sympy, number = self._sympy, cast(Any, value)
        if isinstance(value, sympy.Integer):
            return math.log10(max(int(number), 1))
        if isinstance(value, sympy.Pow):
            return self._digits(number.base) * _power(self._digits(number.exp))
        if isinstance(value, sympy.factorial):
            digits = self._digits(number.args[0])
            return digits and _power(digits) * (digits - 0.5)
        return 0.0

    def _is_false_equation(self, answer: object) -> bool:
        """Return whether an answer is a false equation: `5=6` is neither 5 nor 6."""
        if not isinstance(answer, self._sympy.Eq):
            return False
        sides = cast(Any, answer)
        numeric = sides.lhs.is_number and sides.rhs.is_number
        return bool(numeric) and not self._grader.verify(sides.lhs, sides.rhs, timeout_seconds=None)

    def _is_near(self, answer: object, gold: object) -> bool:
        """Return whether two small decimals that are equal after rounding are exactly equal; True for all other
        values."""
        basic, values = self._sympy.Expr, [cast(Any, answer), cast(Any, gold)]
        if not all(isinstance(v, basic) and v.is_number and not v.has(self._sympy.UnevaluatedExpr) for v in values):
            return True
        if not any(value.has(self._sympy.Float) for value in values):
            return True
        try:
            first, second = (complex(value.evalf(15)) for value in values)
        except (TypeError, ValueError):  # infinite or undefined
            return True
        size = max(abs(first), abs(second))
        return size >= SMALL or abs(first - second) <= RELATIVE * size


def _power(digits: float) -> float:
    """Return 10 to the power of `digits`; infinity if that is too large."""
    return 10.0**digits if digits < 300 else math.inf


def _depth(text: str) -> int:
    """Return the maximum depth of nested brackets in a string."""
    depth = deepest = 0
    for letter in text:
        depth += (letter in "{([") - (letter in "])}")
        deepest = max(deepest, depth)
    return deepest


def serve(mathematics: Mathematics, say: Callable[[dict[str, object]], None]) -> int:
    """Answer requests until the end of the input or `CHECKS_A_CHILD` checks; return the exit code."""
    for _ in range(CHECKS_A_CHILD):
        # `math_pool` sends one request at a time, so a child that ends leaves none in its buffer.
        line = sys.stdin.buffer.readline()
        if not line.endswith(b"\n"):
            return 0
        try:
            request = cast("dict[str, Any]", json.loads(line))
            number, answer, gold = int(request["id"]), str(request["answer"]), str(request["gold"])
            seconds = float(request["cpu_seconds"])
        except (KeyError, TypeError, ValueError):
            return UNREADABLE
        signal.alarm(WALL_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # user and system time of this process; SIGPROF ends it
        try:
            reply: dict[str, object] = {"id": number, "right": mathematics.right(answer, gold)}
        except Exception as error:  # a failure of the library is not a verdict
            signal.setitimer(signal.ITIMER_PROF, 0)
            say({"id": number, "error": f"{type(error).__name__}: {error}"[:500]})
            return RECYCLED  # memory may be short, and caches incomplete
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        say(reply)
    return RECYCLED


def main() -> int:
    """Load math-verify, then run children until the end of the input; return the exit code."""
    replies = os.dup(1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)  # the libraries print; the replies must stay readable

    def say(reply: dict[str, object]) -> None:
        os.write(replies, json.dumps(reply).encode() + b"\n")

    signal.alarm(WALL_SECONDS)
    try:
        mathematics = Mathematics()
        warm = mathematics.right(r"\frac{1}{2}+\sqrt{x}", "0.5+x^{1/2}") and mathematics.right("(1,2]", "(1, 2]")
    except Exception as error:  # any problem of the installation is reported by the parent
        say({"ready": False, "error": f"{type(error).__name__}: {error}"})
        return 1
    signal.alarm(0)
    say({"ready": warm, "error": "" if warm else "its self-test failed: 1/2 must equal 0.5"})
    limit_memory()
    worker = os.getpid()
    while True:
        child = os.fork()
        if not child:
            try:
                end_with_parent(worker)
                threading.Thread(target=end_with_input, daemon=True).start()
                code = serve(mathematics, say)
            except BaseException:  # the child must end here in all cases, and not continue this loop
                code = UNREADABLE
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code in (0, UNREADABLE):
            return code
        if code != RECYCLED:
            say({"died": -code})


def end_with_parent(parent: int) -> None:
    """Make the kernel end this process when its parent ends, if the kernel supports that.

    Args:
        parent: Process id of the parent. If this process has another parent, the original one has ended, and this
            process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def end_with_input() -> None:
    """Wait until the input of this process is closed, and then end the process, since its results will not be read."""
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll()):
        continue
    os._exit(0)


def limit_memory() -> None:
    """Limit the memory, core dumps and files of this process and its children."""
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        try:
            resource.setrlimit(what, (most, most))
        except (OSError, ValueError):  # not supported on this system, or a lower limit is set already
            continue


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    end_with_parent(int(sys.argv[1]))
    sys.exit(main())
