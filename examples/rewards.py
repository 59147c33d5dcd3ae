"""Two opinions of an answer: is it the number, and is the number somewhere in it?"""

from __future__ import annotations

import re


def exact_match(solution_str: str, ground_truth: str, extra_info: dict | None = None, **kwargs: object) -> float:
    """1 if the answer is the number and nothing else."""
    return float(solution_str.strip() == ground_truth)


def mentions_answer(messages: list, ground_truth: str, metadata: dict, **kwargs: object) -> float:
    """1 if the last message has the number in it."""
    return float(ground_truth in re.findall(r"-?\d+", str(messages[-1].get("content") or "")))
