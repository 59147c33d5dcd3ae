"""The documents of a task as the rows of an environment, with the requests that the task builds for each."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.plugins.lm_eval_tasks.library import SEED, quiet

GENERATE = "generate_until"
ROLLING = "loglikelihood_rolling"

ChatTemplate = Callable[..., Any]
"""Converts messages to a prompt: to a text, or to the messages themselves for an endpoint that has its own template."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How prompts are built; the names are those of lm-eval."""

    num_fewshot: int | None = None
    """Number of examples in each prompt; None for the task's own. As in lm-eval, not used by tasks that set it to 0."""
    system_instruction: str | None = None
    apply_chat_template: bool = False
    fewshot_as_multiturn: bool | None = None
    """Whether examples are messages of their own; None if a chat template is applied."""


class Documents:
    """The rows of a task. Prompts are built from the first document on, since the examples in them are drawn in the
    order of the documents; so those of the first rows are the same with any limit.

    Args:
        task: The task.
        options: How prompts are built.
        limit: Number of documents, or if less than 1 their share; None for all.
        template: Chat template; None for plain text.
    """

    def __init__(
        self, task: Any, options: PromptOptions, limit: float | None = None, template: ChatTemplate | None = None
    ) -> None:
        self.task = task
        self._options = options
        self._template = template
        self._documents: Any = task.eval_docs
        self._count = _count(len(self._documents), limit)
        self._requests: list[list[Any]] = []
        self._lock = threading.Lock()
        shots = task.config.num_fewshot
        if shots != 0 and options.num_fewshot is not None:
            shots = options.num_fewshot
        task.set_config(key="num_fewshot", value=shots or 0)
        task.set_fewshot_seed(seed=SEED)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> JsonDict:
        requests = self.requests(index)
        first = requests[0].args
        contexts = [each.args[0] for each in requests]
        info: JsonDict = {"doc_id": index}
        if requests[0].request_type not in (GENERATE, ROLLING):
            continuations = [each.args[1] for each in requests]
            same = contexts.count(contexts[0]) == len(contexts)
            info |= {"continuations": continuations} if same else {"pairs": [list(each.args[:2]) for each in requests]}
        # Only for readers: the requests are sent as the task built them, and a row's prompt must not be blank.
        prompt = first[0] if not isinstance(first[0], str) or first[0].strip() else "".join(map(str, first[:2]))
        if isinstance(prompt, str) and not prompt.strip():
            prompt = "(empty context)"
        return {"prompt": prompt, "answer": self._answer(requests[0].doc), "info": info}

    def requests(self, index: int) -> list[Any]:
        """Return the requests of a document, in the order in which the task reads their replies."""
        with self._lock, quiet():
            while len(self._requests) <= index:
                self._requests.append(self._build(len(self._requests)))
            return self._requests[index]

    def _build(self, index: int) -> list[Any]:
        task, options, document = self.task, self._options, self._documents[index]
        as_turns = options.fewshot_as_multiturn
        context = task.fewshot_context(
            document,
            num_fewshot=task.config.num_fewshot,
            system_instruction=options.system_instruction,
            apply_chat_template=options.apply_chat_template,
            fewshot_as_multiturn=options.apply_chat_template if as_turns is None else as_turns,
            chat_template=self._template,
            gen_prefix=task.doc_to_prefix(document),
        )
        built = task.construct_requests(
            doc=document,
            ctx=context,
            metadata=(task.config.task, index, task.config.repeats),
            apply_chat_template=options.apply_chat_template,
            chat_template=self._template,
        )
        requests = cast("list[Any]", built) if isinstance(built, list) else [built]
        return sorted(requests, key=lambda each: each.idx)

    def _answer(self, document: Any) -> str:
        """Return the right answer as text, for readers."""
        task = self.task
        target = (task.doc_to_text if getattr(task, "multiple_input", 0) else task.doc_to_target)(document)
        if isinstance(target, int) and getattr(task.config, "doc_to_choice", None) is not None:
            choices = task.doc_to_choice(document)
            target = choices[target] if 0 <= target < len(choices) else target
        return target if isinstance(target, str) else str(target)


def _count(documents: int, limit: float | None) -> int:
    """Return the number of documents to use, as lm-eval does.

    Raises:
        ConfigError: the limit is not positive.
    """
    if limit is None:
        return documents
    if isinstance(cast(object, limit), bool) or not isinstance(cast(object, limit), int | float) or not limit > 0:
        raise ConfigError(f"limit must be a number of documents per task, or a share below 1, not {limit!r}")
    return min(documents, math.ceil(documents * limit) if limit < 1 else int(limit))
