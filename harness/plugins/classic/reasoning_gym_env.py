"""Tasks that the library reasoning-gym generates and scores, as a classic environment. Creates the dataset rows, and
looks up the library's entry for a row when a reply is scored."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any, cast

from harness.core.errors import EnvironmentFault
from harness.core.types import JsonDict, Prompt
from harness.plugins.classic.context import generation
from harness.plugins.classic.multi_turn import SingleTurnEnv
from harness.plugins.classic.parsers import Parser, XMLParser
from harness.plugins.classic.rubric import Rubric
from harness.usercode.threads import offload


class ReasoningGymEnv(SingleTurnEnv):
    """`vf.ReasoningGymEnv`: tasks of one dataset of reasoning-gym, or of a mixture.

    Args:
        gym: Name of a dataset, or for a mixture a list of names and of dicts `{"name": …, "weight": …, "config": {…}}`.
        num_train_examples: Number of rows of the training dataset.
        num_eval_examples: Number of rows of the evaluation dataset; if 0, the training rows are evaluated.
        system_prompt: System prompt; by default that of reasoning-gym, None for no system prompt.
        parser: Parses the answer; `XMLParser(["answer"])` by default.
        seed: Seed of the tasks.

    Raises:
        EnvironmentFault: reasoning-gym is not installed, or has no such dataset.
    """

    def __init__(
        self,
        gym: str | Sequence[str | Mapping[str, Any]],
        num_train_examples: int = 1000,
        num_eval_examples: int = 100,
        system_prompt: str | EllipsisType | None = ...,
        parser: Parser | None = None,
        seed: int = 0,
    ) -> None:
        self.gym = gym
        self.num_train_examples, self.num_eval_examples = num_train_examples, num_eval_examples
        self.seed = seed
        self.rg_dataset = self.build_rg_dataset(gym, num_train_examples + num_eval_examples, seed=seed)
        rows = [_row(index, entry) for index, entry in enumerate(self.rg_dataset)]
        reader = parser or XMLParser(fields=["answer"])
        rubric = Rubric(parser=reader)
        rubric.add_reward_func(self.check_answer_reward_func)
        rubric.add_reward_func(reader.get_format_reward_func(), weight=0.0)
        super().__init__(
            dataset=rows[:num_train_examples] or None,
            eval_dataset=rows[num_train_examples:] or None,
            system_prompt=str(_library().utils.SYSTEM_PROMPTS["default"])
            if isinstance(system_prompt, EllipsisType)
            else system_prompt,
            parser=reader,
            rubric=rubric,
            message_type="chat",
        )

    async def check_answer_reward_func(self, completion: Prompt, answer: str) -> float:
        """Reward function: the score of the model's answer by reasoning-gym, from 0 to 1."""
        said = self.parser.parse_answer(cast(Any, completion))
        return await offload.run(self._score, None if said is None else str(said).strip(), int(answer))

    def build_rg_dataset(
        self, gym: str | Sequence[str | Mapping[str, Any]], total_examples: int = 1000, seed: int = 0
    ) -> Any:
        """Create the dataset of reasoning-gym, which generates each entry when it is read."""
        library = _library()
        try:
            if isinstance(gym, str):
                return library.create_dataset(gym, size=total_examples, seed=seed)
            given = [{"name": each} if isinstance(each, str) else dict(each) for each in gym]
            specs = [library.composite.DatasetSpec(**{"weight": 1.0, "config": {}, **fields}) for fields in given]
            return library.create_dataset("composite", datasets=specs, size=total_examples, seed=seed)
        except (ValueError, TypeError, AssertionError) as error:
            raise EnvironmentFault(f"ReasoningGymEnv(gym={gym!r}): {error}") from error

    def _score(self, said: str | None, index: int) -> float:
        return float(self.rg_dataset.score_answer(answer=said, entry=self.rg_dataset[index]))


def _library() -> Any:
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise EnvironmentFault(
            "ReasoningGymEnv needs reasoning-gym, which is not installed: pip install 'bench-harness[reasoning-gym]'"
        ) from error


def _row(index: int, entry: Mapping[str, Any]) -> JsonDict:
    """Create the dataset row of a task. Its `answer` is the index of the task, by which reasoning-gym scores a reply,
    because many tasks have more than one correct answer."""
    source = str(entry["metadata"].get("source_dataset", ""))
    row: JsonDict = {"question": entry["question"], "answer": str(index)}
    if generation() == "B":
        return {**row, "task": source}
    return {**row, "info": {"source_dataset": source}}
