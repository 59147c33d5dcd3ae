r"""The rubric for mathematical answers: `\boxed{x = \frac{1}{2}}` equals `0.5`. Answers are compared in separate
processes (`math_pool`) with a limit on their CPU time.

An answer that is too complex to compare is wrong, and the reason is recorded. If a comparison fails for another reason,
the rollout is unscored, and the reason is recorded as well."""

from __future__ import annotations

import copy
import functools
import importlib.util
import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, cast

from harness.core.errors import EnvironmentFault, VerificationError
from harness.core.state import State
from harness.core.types import Prompt
from harness.rubrics.extract import extract_boxed_answer
from harness.rubrics.functions import RewardFunc
from harness.rubrics.math_pool import Exhausted, math_pool
from harness.rubrics.math_text import squeezed
from harness.rubrics.parser import Parser, identity
from harness.rubrics.rubric import Rubric
from harness.rubrics.xml_parser import XMLParser

MAX_WORKERS = 10
"""Maximum number of worker processes. Comparisons take milliseconds, so more processes would only need more memory."""

TIMEOUT_SECONDS = 5.0
"""Default limit of CPU seconds per comparison: a thousand times the typical need."""

LONGEST, LONGEST_GOLD = 2_000, 20_000
"""Maximum length in characters of an answer and of an expected answer. An answer may also be up to four times as long
as the expected one. A longer answer is wrong, since the model has probably repeated itself."""

REASON = "correct_answer_reason"
"""Key in the rollout's state, for the reason why an answer that was too complex to compare is wrong."""

CONTROL = "1"
"""A simple answer, compared with an expected answer to find out whether the latter is itself too complex."""


class MathRubric(Rubric):
    r"""Reward 1 for the right answer, compared as mathematics by math-verify in worker processes.

    The answer is the content of the last `\boxed{…}` of the last message, outside of `<think>`; a reply without a box
    has no answer. If the parser finds the answer in another way (tags, its own `extract_fn`), no box is needed. The
    reward function `correct_answer` has weight 1; other functions can be added to it.

    Args:
        funcs: Additional functions, in the order in which they run.
        weights: One weight per function; default 1 each.
        parser: Extracts the answer from a completion; defaults to the environment's parser.
        max_workers: Maximum number of worker processes, which all math rubrics share; at most the number of CPU cores.
        timeout_seconds: CPU seconds per comparison. An answer that needs more is wrong. If the expected answer alone
            needs more than half of them, the rollout is unscored.
        class_objects: Additional arguments for functions, by name.
        reward_range: As in `Rubric`.

    Raises:
        EnvironmentFault: math-verify is not installed, an argument is out of range, or as in `Rubric`.
    """

    def __init__(
        self,
        funcs: Sequence[RewardFunc] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        max_workers: int = MAX_WORKERS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        *,
        class_objects: Mapping[str, object] | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(funcs, weights, parser, class_objects=class_objects, reward_range=reward_range)
        require_math_verify("MathRubric")
        if isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EnvironmentFault(f"MathRubric: max_workers must be a whole number of at least 1, not {max_workers!r}")
        self.max_workers = max_workers
        self.timeout_seconds = _seconds(timeout_seconds)
        self.add_reward_func(self.correct_answer)

    async def correct_answer(
        self, completion: Prompt, answer: str, parser: Parser, state: State | None = None
    ) -> float:
        """Return 1 if the boxed answer of the reply equals the expected answer, else 0.

        Raises:
            VerificationError: the answers could not be compared.
        """
        said = boxed_answer(parser, completion)
        gold = expected(answer)
        if not said:
            return 0.0
        math_pool.reserve(self.max_workers)
        return await graded(said, gold, self.timeout_seconds, {} if state is None else state)


async def graded(answer: str, gold: str, cpu_seconds: float, state: MutableMapping[str, Any]) -> float:
    """Return 1 for the right answer and 0 for any other. If an answer is too complex to compare, the reason is stored
    in `state`.

    Args:
        answer: The answer without its box.
        gold: The expected answer without its box.
        cpu_seconds: CPU seconds for the comparison.
        state: The rollout's state.

    Raises:
        VerificationError: the answers could not be compared; the message has the reason.
    """
    right, reason = await _verify(answer, gold, cpu_seconds)
    state.pop(REASON, None)
    if reason:
        state[REASON] = reason
    return float(right)


async def verify_math(answer: str, gold: str | float, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    r"""Return whether an answer is mathematically equal to the expected answer.

    Args:
        answer: LaTeX or a plain number, or text whose last `\boxed{…}` contains one.
        gold: The expected answer, in the same forms.
        timeout_seconds: CPU seconds for the comparison, not counting the wait for a free process.

    Raises:
        VerificationError: the answers could not be compared; the message has the reason. For an answer that is too
            complex the result is False instead.
        EnvironmentFault: math-verify is not installed, or `gold` is empty.
    """
    require_math_verify("verify_math")
    math_pool.reserve(MAX_WORKERS)
    said = extract_boxed_answer(answer).strip()
    return bool(said) and (await _verify(said, expected(gold), _seconds(timeout_seconds)))[0]


def boxed_answer(parser: Parser, completion: Prompt) -> str:
    r"""Extract the answer from a completion: the content of the last box, or the result of a parser that uses no box;
    "" if there is no answer."""
    uses_tags = isinstance(parser, XMLParser) and parser.extract_fn is identity
    if not uses_tags and parser.extract_fn in (identity, extract_boxed_answer):
        parser = copy.copy(parser)
        parser.extract_fn = _last_box
    found = cast(object, parser.parse_answer(completion))
    if found is None:
        return ""
    if not isinstance(found, str):
        raise EnvironmentFault(f"the parser must return a string, not {type(found).__name__}: {found!r:.60}")
    return extract_boxed_answer(found).strip()


def expected(gold: str | float) -> str:
    r"""Convert the expected answer to a string without its box.

    Raises:
        EnvironmentFault: the expected answer is empty, or neither a string nor a number.
    """
    # a row may contain any value, despite the annotation
    text = "" if gold is None or isinstance(gold, bool) else extract_boxed_answer(str(gold)).strip()  # pyright: ignore[reportUnnecessaryComparison]
    if not text:
        raise EnvironmentFault(f"the expected answer must be LaTeX or a number, not {gold!r:.60}")
    return text


@functools.cache
def require_math_verify(who: str) -> None:
    """Check that math-verify is installed, without importing it, which takes a second.

    Raises:
        EnvironmentFault: math-verify is not installed; the message has the command that installs it.
    """
    for package in ("math_verify", "latex2sympy2_extended", "sympy"):
        if importlib.util.find_spec(package) is None:
            raise EnvironmentFault(f"{who} needs math-verify ({package} is missing): pip install 'bench-harness[math]'")


async def _verify(answer: str, gold: str, cpu_seconds: float) -> tuple[bool, str]:
    """Return whether the answers are equal, and the reason if the answer is too complex to compare, otherwise ""."""
    if squeezed(answer) == squeezed(gold):
        return True, ""
    if len(gold) > LONGEST_GOLD:
        raise VerificationError(f"the expected answer has {len(gold)} characters; the limit is {LONGEST_GOLD}")
    if len(answer) > max(LONGEST, 4 * len(gold)):
        return False, ""
    try:
        return await math_pool.check(answer, gold, cpu_seconds), ""
    except Exhausted as error:
        try:
            await math_pool.check(CONTROL, gold, cpu_seconds / 2)
        except VerificationError:
            raise error from None  # the expected answer itself is too complex, so the answer may be right
        return False, f"the answer is too complex to compare and therefore wrong: {error}"


def _last_box(text: str) -> str:
    """Extract the content of the last box after the reasoning; "" if there is no box."""
    said = text.rpartition("</think>")[2].partition("<think>")[0]
    return extract_boxed_answer(said, strict=True)


def _seconds(value: float) -> float:
    """Validate a CPU time limit in seconds, and return it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EnvironmentFault(f"timeout_seconds must be a number above 0, not {value!r}")
    return float(value)
