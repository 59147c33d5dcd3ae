r"""The rubric for answers that are mathematics: `\boxed{x = \frac{1}{2}}` is `0.5`. Owns what a reply's answer is and
the reward; the comparison runs in processes of its own (`math_pool`), bounded by the CPU time that it uses there.

An answer that is too much to compare is wrong, and the rollout records why. Any other comparison without a verdict is
no wrong answer: the rollout is unscored, and the reason says what happened."""

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
"""Comparisons take milliseconds; more processes than this only take memory."""

TIMEOUT_SECONDS = 5.0
"""CPU seconds of one comparison: a thousand times what a common one takes."""

LONGEST, LONGEST_GOLD = 2_000, 20_000
"""Letters. An answer longer than this, and than four times the expected one, is no final answer but a loop."""

REASON = "correct_answer_reason"
"""State key: why an answer that could not be compared is wrong."""

CONTROL = "1"
"""What the expected answer is compared with to see whether it is too much by itself."""


class MathRubric(Rubric):
    r"""1 for the right answer, compared as mathematics by math-verify, in worker processes.

    The answer is what the last `\boxed{…}` of the last message holds, outside of `<think>`; a reply without a box has
    no answer. A parser that finds the answer by other means (tags, an `extract_fn` of its own) is taken at its word.
    Functions that are given are added to `correct_answer`, which weighs 1.

    Args:
        funcs: Further functions, in the order in which they run.
        weights: As many as `funcs`; 1 each by default.
        parser: Finds the answer in a completion; the environment's own by default.
        max_workers: Processes at once. All math rubrics share them; there are never more than cores.
        timeout_seconds: CPU seconds that one comparison may use. An answer that needs more is wrong. If the expected
            answer alone needs more than half of them, the rollout is unscored.
        class_objects: Further values that functions may take, by name.
        reward_range: As for `Rubric`.

    Raises:
        EnvironmentFault: math-verify is not installed, an argument is out of range, or what `Rubric` refuses.
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
        """1 if the reply's boxed answer equals the expected one, else 0.

        Raises:
            VerificationError: there is no verdict.
        """
        said = boxed_answer(parser, completion)
        gold = expected(answer)
        if not said:
            return 0.0
        math_pool.reserve(self.max_workers)
        return await graded(said, gold, self.timeout_seconds, {} if state is None else state)


async def graded(answer: str, gold: str, cpu_seconds: float, state: MutableMapping[str, Any]) -> float:
    """1 for the right answer, 0 for any other; puts into `state` why an answer could not be compared.

    Args:
        answer: Without its box.
        gold: The same.
        cpu_seconds: CPU time that the comparison may use.
        state: Of the rollout.

    Raises:
        VerificationError: there is no verdict; says why.
    """
    right, reason = await _verify(answer, gold, cpu_seconds)
    state.pop(REASON, None)
    if reason:
        state[REASON] = reason
    return float(right)


async def verify_math(answer: str, gold: str | float, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    r"""Whether an answer equals the expected one as mathematics.

    Args:
        answer: LaTeX or a plain number, or a text whose last `\boxed{…}` holds it.
        gold: The expected answer, in the same forms.
        timeout_seconds: CPU seconds that the comparison may use; waiting for its turn does not count.

    Raises:
        VerificationError: there is no verdict; says why. An answer that is too much to compare is False.
        EnvironmentFault: math-verify is not installed, or `gold` is empty.
    """
    require_math_verify("verify_math")
    math_pool.reserve(MAX_WORKERS)
    said = extract_boxed_answer(answer).strip()
    return bool(said) and (await _verify(said, expected(gold), _seconds(timeout_seconds)))[0]


def boxed_answer(parser: Parser, completion: Prompt) -> str:
    r"""The answer in a completion: what its last box holds, or what a parser that looks elsewhere finds; "" if none."""
    by_mark = isinstance(parser, XMLParser) and parser.extract_fn is identity
    if not by_mark and parser.extract_fn in (identity, extract_boxed_answer):
        parser = copy.copy(parser)
        parser.extract_fn = _last_box
    found = cast(object, parser.parse_answer(completion))
    if found is None:
        return ""
    if not isinstance(found, str):
        raise EnvironmentFault(f"the parser must find a text to compare, not {type(found).__name__}: {found!r:.60}")
    return extract_boxed_answer(found).strip()


def expected(gold: str | float) -> str:
    r"""The expected answer without its box, as a text.

    Raises:
        EnvironmentFault: it is empty, or neither text nor number.
    """
    # a row may hold anything, whatever the annotation says
    text = "" if gold is None or isinstance(gold, bool) else extract_boxed_answer(str(gold)).strip()  # pyright: ignore[reportUnnecessaryComparison]
    if not text:
        raise EnvironmentFault(f"the expected answer must be LaTeX or a number, not {gold!r:.60}")
    return text


@functools.cache
def require_math_verify(who: str) -> None:
    """Make sure that the library is there, without the second that loading it takes.

    Raises:
        EnvironmentFault: says how to install it.
    """
    for package in ("math_verify", "latex2sympy2_extended", "sympy"):
        if importlib.util.find_spec(package) is None:
            raise EnvironmentFault(f"{who} needs math-verify ({package} is missing): pip install 'bench-harness[math]'")


async def _verify(answer: str, gold: str, cpu_seconds: float) -> tuple[bool, str]:
    """The verdict, and why an answer that could not be compared is wrong."""
    if squeezed(answer) == squeezed(gold):
        return True, ""
    if len(gold) > LONGEST_GOLD:
        raise VerificationError(f"the expected answer has {len(gold)} letters; at most {LONGEST_GOLD} can be compared")
    if len(answer) > max(LONGEST, 4 * len(gold)):
        return False, ""
    try:
        return await math_pool.check(answer, gold, cpu_seconds), ""
    except Exhausted as error:
        try:
            await math_pool.check(CONTROL, gold, cpu_seconds / 2)
        except VerificationError:
            raise error from None  # the expected answer is too much by itself, which says nothing about the other
        return False, f"the answer is too much to compare, which makes it wrong: {error}"


def _last_box(text: str) -> str:
    said = text.rpartition("</think>")[2].partition("<think>")[0]
    return extract_boxed_answer(said, strict=True)


def _seconds(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EnvironmentFault(f"timeout_seconds must be a number above 0, not {value!r}")
    return float(value)
