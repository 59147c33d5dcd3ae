"""Rewards, as they are used in training."""

from osmosis_ai import osmosis_reward


@osmosis_reward
def compute_reward(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    return 1.0 if solution_str.strip() == ground_truth.strip() else 0.0


def exact_match(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    """Score based on the last assistant message content."""
    return 1.0 if solution_str.strip() == ground_truth.strip() else 0.0


@osmosis_reward
def partial_match(solution_str: str, ground_truth: str, extra_info: dict | None = None, **kwargs) -> float:
    level = float((extra_info or {}).get("level", 0)) / 10
    return 1.0 if solution_str == ground_truth else 0.5 - level


@osmosis_reward
async def semantic_similarity(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    same = len(set(solution_str) & set(ground_truth))
    return same / max(1, len(set(solution_str) | set(ground_truth)))


@osmosis_reward
def broken(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return float(solution_str) / (int(ground_truth) - 4)


def conversation_quality(messages: list, ground_truth: str, metadata: dict, **kwargs) -> float:
    """Score based on the full conversation."""
    assistant_messages = [m for m in messages if m["role"] == "assistant"]
    return min(1.0, len(assistant_messages) / 4)


async def call_judge_llm(messages: list, ground_truth: str) -> float:
    said = [m["content"] for m in messages if m["role"] == "tool"]
    return 0.75 if said == [ground_truth] else 0.25


async def llm_judge(messages: list, ground_truth: str, metadata: dict, **kwargs) -> float:
    """Use an LLM to judge the conversation quality."""
    score = await call_judge_llm(messages, ground_truth)
    return score
