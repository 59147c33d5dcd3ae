"""The arguments of tasks, and the environment of a task with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.plugins.lm_eval_tasks.documents import GENERATE, ROLLING, ChatTemplate, Documents, PromptOptions
from harness.plugins.lm_eval_tasks.environment import TaskEnv, TaskGroup
from harness.plugins.lm_eval_tasks.library import load
from harness.plugins.lm_eval_tasks.likelihood import Splitter, TextSplitter, TokenSplitter

MAX_LENGTH = 2048


def load_environment(
    num_fewshot: int | None = None,
    system_instruction: str | None = None,
    apply_chat_template: bool = False,
    fewshot_as_multiturn: bool | None = None,
    include_path: str | None = None,
    limit: float | None = None,
    reward: str | None = None,
    tokenizer: str | None = None,
    max_length: int = MAX_LENGTH,
) -> TaskArguments:
    """Load a task of lm-eval.

    Args:
        num_fewshot: Number of examples in each prompt; the task's own by default.
        system_instruction: Text before the task's description.
        apply_chat_template: Whether to send messages to `/chat/completions` instead of a text to `/completions`.
        fewshot_as_multiturn: Whether examples are messages of their own; with a chat template they are by default.
        include_path: Folder with YAML files of further tasks.
        limit: Number of documents of each task, or if below 1 their share; all by default.
        reward: Name of the metric that is the reward; by default the first one whose figure is a mean.
        tokenizer: For log-likelihoods: address of a server with `/tokenize`, or folder of a local tokenizer. Without
            it, prompts are sent as text.
        max_length: Maximum number of tokens of a request for log-likelihoods and its reply, with a tokenizer.

    Raises:
        ConfigError: an argument has a wrong type or value, or arguments contradict each other.
    """
    for name, number, least in (("num_fewshot", num_fewshot, 0), ("max_length", max_length, 3)):
        if number is not None and (type(cast(object, number)) is not int or number < least):
            raise ConfigError(f"{name} must be an integer from {least}, not {number!r}")
    for name, switch in (("apply_chat_template", apply_chat_template), ("fewshot_as_multiturn", fewshot_as_multiturn)):
        if switch not in (None, True, False):
            raise ConfigError(f"{name} must be true or false, not {switch!r}")
    if fewshot_as_multiturn and not apply_chat_template:
        raise ConfigError("fewshot_as_multiturn: set apply_chat_template, too")
    options = PromptOptions(num_fewshot, system_instruction, apply_chat_template, fewshot_as_multiturn)
    return TaskArguments(options, include_path, limit, reward, tokenizer, max_length)


@dataclass(frozen=True, slots=True)
class TaskArguments:
    """Arguments of a task; see `load_environment`."""

    prompts: PromptOptions
    include_path: str | None
    limit: float | None
    reward: str | None
    tokenizer: str | None
    max_length: int

    def load(self, name: str) -> TaskEnv | TaskGroup:
        """Load a task, group or tag.

        Raises:
            EnvironmentNotFound: no task has this name.
            EnvironmentLoadError: the task cannot run here.
            ConfigError: an argument is invalid for the task.
        """
        loaded = load(name, self.include_path)
        splitter = TextSplitter() if self.tokenizer is None else TokenSplitter(self.tokenizer, self.max_length)
        if (
            self.prompts.apply_chat_template
            and len({task.OUTPUT_TYPE == GENERATE for task in loaded.tasks.values()}) > 1
        ):
            raise ConfigError(
                f"apply_chat_template: some tasks of {name} generate, and others need log-likelihoods, which different "
                "endpoints answer: run them one by one"
            )
        members = {each: self._environment(each, task, splitter) for each, task in loaded.tasks.items()}
        return members[name] if list(members) == [name] and not loaded.groups else TaskGroup(members, loaded.groups)

    def _environment(self, name: str, task: Any, splitter: Splitter) -> TaskEnv:
        template: ChatTemplate | None = None
        is_chat = self.prompts.apply_chat_template and task.OUTPUT_TYPE == GENERATE
        if task.OUTPUT_TYPE == ROLLING and isinstance(splitter, TextSplitter):
            raise ConfigError(f"the task {name} scores whole texts, so it needs a tokenizer: set tokenizer")
        if is_chat:
            template = _as_messages
        elif self.prompts.apply_chat_template and isinstance(splitter, TextSplitter):
            raise ConfigError(
                f"the task {name} needs log-likelihoods, so its chat template is applied here: set tokenizer, or leave "
                "out apply_chat_template"
            )
        elif self.prompts.apply_chat_template:
            template = partial(_as_text, cast("TokenSplitter", splitter).tokenizer)
        documents = Documents(task, self.prompts, self.limit, template)
        return TaskEnv(name, documents, splitter, reward=self.reward, is_chat=is_chat)


def _as_messages(messages: list[JsonDict], add_generation_prompt: bool = True) -> list[JsonDict]:
    """Chat template for endpoints that apply their own: the messages themselves."""
    return messages


def _as_text(tokenizer: Any, messages: list[JsonDict], add_generation_prompt: bool = True) -> str:
    """Chat template of a tokenizer."""
    options: JsonDict = {"add_generation_prompt": add_generation_prompt}
    if not add_generation_prompt:
        options["continue_final_message"] = True
    return tokenizer.apply_chat_template(messages, tokenize=False, **options)
