"""`vf.MathRubric` of the classic API: compares answers mathematically. Answers are extracted by the rules of the
classic API and compared in worker processes that all math rubrics share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from harness.core.state import State
from harness.core.types import Prompt
from harness.plugins.classic.context import generation as running
from harness.plugins.classic.parsers import MaybeThinkParser
from harness.plugins.classic.reward_functions import RewardFunc
from harness.plugins.classic.rubric import Rubric
from harness.rubrics.extract import extract_boxed_answer
from harness.rubrics.math import expected, graded, require_math_verify
from harness.rubrics.math_pool import math_pool
from harness.rubrics.parser import Parser as NativeParser

MAX_VERIFY_CHARS = 50_000


class MathRubric(Rubric):
    r"""`vf.MathRubric`: the reward is 1 for an answer that is mathematically equal to the expected one, else 0.

    Args:
        funcs: Further reward functions.
        weights: Their weights, one each.
        parser: Extracts the answer; by default, the last `\boxed{…}` outside of `<think>`. Without one, the answer is
            the whole text in the older API (generation B), and empty in the newer one (generation C).
        max_workers: Stored as an attribute, but without effect: all math rubrics share worker processes.
        timeout_seconds: CPU seconds of one comparison.
        max_verify_chars: Maximum length of an answer; longer ones count as wrong (newer API, generation C, only).
        **kwargs: See `Rubric`.
    """

    def __init__(
        self,
        funcs: Sequence[RewardFunc] | None = None,
        weights: Sequence[float] | None = None,
        parser: NativeParser | None = None,
        max_workers: int = 10,
        timeout_seconds: float = 5,
        max_verify_chars: int = MAX_VERIFY_CHARS,
        **kwargs: Any,
    ) -> None:
        require_math_verify("vf.MathRubric")
        strict = functools.partial(extract_boxed_answer, strict=True)
        default = MaybeThinkParser(extract_fn=extract_boxed_answer if running() == "B" else strict)
        super().__init__(funcs=funcs, weights=weights, parser=parser or default, **kwargs)
        self.max_workers, self.timeout_seconds, self.max_verify_chars = max_workers, timeout_seconds, max_verify_chars
        self.add_reward_func(self.correct_answer)

    async def correct_answer(
        self, parser: NativeParser, completion: Prompt, answer: Any, state: State | None = None, **kwargs: Any
    ) -> float:
        """Reward function: 1 if the extracted answer equals the expected one, else 0.

        Raises:
            VerificationError: the answers could not be compared.
        """
        found: Any = parser.parse_answer(completion)
        said = "" if found is None else extract_boxed_answer(str(found)).strip()
        if not said or len(str(found)) > self.max_verify_chars:
            return 0.0
        math_pool.reserve(self.max_workers)
        return await graded(said, expected(str(answer)), float(self.timeout_seconds), {} if state is None else state)
