"""The environment `multi-eval`: tasks with one request each and the documented scoring. Converts tasks to rows and
requests; `rubric` scores them, and `reference` creates ideal answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import cast

from harness.agents.environment import source_hashes
from harness.core.errors import ConfigError, TaskTimeout
from harness.core.keys import digest
from harness.core.records import Example
from harness.core.redact import REDACTED
from harness.core.state import Prefix, State, step
from harness.core.types import JsonDict, Message, Messages, ModelResponse
from harness.envs.environment import Environment
from harness.models.wire import check_settings_of_sampling
from harness.multi import javascript
from harness.multi.reference import empty_output, ideal_output
from harness.multi.rubric import TaskRubric, task_of
from harness.multi.schemas import SchemaMode, chat_options_of, check_schema, schema_of, tools_of
from harness.multi.scoring import TaskOptions, changed_options
from harness.multi.scoring_hook import ScoringHook, code_of, hook_of
from harness.multi.task_files import load_tasks
from harness.multi.tasks import MatchMode, Task, read_task, read_tasks
from harness.usercode.deadline import Deadline

# Conversion of a task's chat options to the arguments of a request to the model.

WIRE_NAMES: Mapping[str, str] = {
    "maxTokens": "max_tokens", "maxCompletionTokens": "max_completion_tokens", "maxOutputTokens": "max_tokens",
    "topP": "top_p", "topK": "top_k", "minP": "min_p", "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty", "repetitionPenalty": "repetition_penalty", "stopSequences": "stop",
    "responseFormat": "response_format", "toolChoice": "tool_choice", "parallelToolCalls": "parallel_tool_calls",
    "reasoningEffort": "reasoning_effort", "logitBias": "logit_bias", "topLogprobs": "top_logprobs",
    "serviceTier": "service_tier", "extraBody": "extra_body", "extraHeaders": "extra_headers", "apiKey": "api_key",
}  # fmt: skip
"""Chat options that have another name in requests. All others keep their names."""


def sampling_args_of(chat_options: JsonDict) -> JsonDict:
    """Return the sampling arguments among a task's chat options: all options except the tools, by their names in
    requests.

    Raises:
        ConfigError: two options are the same argument, or one is not allowed in a run.
    """
    args: JsonDict = {}
    for name, value in chat_options.items():
        wire = WIRE_NAMES.get(name, name)
        if wire == "tools":
            continue
        if wire in ("headers", "extra_headers"):
            raise ConfigError(f"chatOptions.{name}: set headers in the definition of the model")
        if wire in args:
            raise ConfigError(f"chatOptions: {wire} is given in two spellings; remove one")
        if f'"{REDACTED}"' in json.dumps(value, default=str):
            raise ConfigError(f"chatOptions.{name}: the stored value lacks a secret; give the option again")
        args[wire] = value
    check_settings_of_sampling(args)
    return args


TASK_NAME = "multi-eval"
"""The value of the column `task` in all rows."""


class TaskEnv(Environment):
    """Environment of a list of tasks, each with one request to the model.

    Args:
        tasks: At least one; dicts are accepted.
        options: Options for requests and scoring.

    Raises:
        ValidationError: the list is empty.
        ConfigError: a task is invalid, or cannot be sent or scored with these options; the message names the task.
    """

    def __init__(self, tasks: Sequence[Task | Mapping[str, object]], *, options: TaskOptions | None = None) -> None:
        self.options = options or TaskOptions()
        self.tasks = tuple(read_tasks(tasks))
        for task in self.tasks:
            self._check(task)
        rows = [
            {
                "example_id": task.id,
                "prompt": task.conversation,
                "answer": task.expected_text or "",
                "task": TASK_NAME,
                "info": {"task": task.document()},
            }
            for task in self.tasks
        ]
        super().__init__(dataset=rows, rubric=TaskRubric(self.tasks, self.options))
        hook = self.options.score_output
        self.source_files = hook.files if hook is not None else ()

    @property
    def fingerprint(self) -> JsonDict:
        """Hashes of the tasks and the scoring hook, used to recognize changes on resume; and the options, unless the
        run's arguments contain them."""
        if self.options.fingerprint is not None:
            return self.options.fingerprint
        return {**_hashes(self.tasks, self.options.score_output), "options": changed_options(self.options)}

    def settable(self) -> set[str]:
        """Names of the settings that affect this environment; the tasks themselves define prompt, tools and turns."""
        return {"sampling_args"}

    def _check(self, task: Task) -> None:
        try:
            chat_options = chat_options_of(task, self.options.chat_options)
            sampling_args_of(chat_options)
            tools_of(chat_options)
            schema = schema_of(task, chat_options)
            if schema is not None:
                check_schema(schema, self.options.schema_mode)
        except ConfigError as error:
            raise ConfigError(f"task {task.id!r}: {error}") from error

    def _tools(self, state: State) -> list[JsonDict]:
        return tools_of(chat_options_of(task_of(state), self.options.chat_options))

    # A rollout

    async def play(self, state: State) -> None:
        """Send the one request of a rollout's task.

        Raises:
            TaskTimeout: the reply took too long; the request is cancelled.
            ModelError: the call failed after all retries.
        """
        prompt: Messages = state["prompt"]
        transcript = list(prompt)
        state.transcript, state.start = transcript, len(prompt)
        response = await self._ask(state, transcript)
        transcript.append(response.message)
        state["trajectory"].append(step(state, Prefix(transcript, len(prompt)), [response.message], response))
        state["is_completed"], state["stop_condition"] = True, "max_turns_reached"
        state["is_truncated"] = response.is_truncated

    async def _ask(self, state: State, prompt: Messages) -> ModelResponse:
        task = task_of(state)
        args = sampling_args_of(chat_options_of(task, self.options.chat_options))
        milliseconds = self._bound(task)
        if not milliseconds:
            return await self.get_model_response(state, prompt, sampling_args=args)
        deadline = Deadline(milliseconds / 1000)
        try:
            with deadline:
                return await self.get_model_response(state, prompt, sampling_args=args)
        except TimeoutError:
            if not deadline.expired():
                raise
        raise TaskTimeout(f"MultiModelEvaluator timeout after {javascript.number_text(milliseconds)}ms")

    def _bound(self, task: Task) -> float:
        """Return the timeout of a task's request in milliseconds; 0 for no timeout."""
        if task.timeout_ms is not None and task.timeout_ms > 0:
            return task.timeout_ms
        return max(0, self.options.timeout_ms)

    # Reference policies

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return a reply that scores best by the documented formula, as far as expected text and schema allow."""
        return ideal_output(read_task(example.info["task"], 0), self.options)

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return a reply that does not answer the task, chosen so that it does not pass by chance."""
        return empty_output(read_task(example.info["task"], 0), self.options)


def load_environment(  # noqa: PLR0913 - its parameters are the keys of its table
    tasks: str,
    match_mode: MatchMode = "contains",
    length_target: float = 400,
    score_output: str | None = None,
    schema_mode: SchemaMode = "subset",
    timeout_ms: float = 0,
    chat_options: JsonDict | None = None,
    model_id: str | None = None,
) -> TaskEnv:
    """Build the environment of a multi-model evaluation from a task file.

    Args:
        tasks: A .json, .jsonl or .toml file.
        match_mode: Default of the tasks: `contains` or `exact`.
        length_target: Length that earns the full length bonus; 0 means 400, and a negative value no bonus.
        score_output: A scoring hook, `module:function`.
        schema_mode: `subset` for the documented check, `jsonschema` for JSON Schema.
        timeout_ms: Default timeout of a task's request in milliseconds; 0 for no timeout.
        chat_options: Default chat options of tasks: `tools`, and sampling arguments.
        model_id: The model's name in results; by default its own name.

    Raises:
        ConfigError: the file, a task or an argument is invalid.
        EvalFnError: the hook cannot be loaded.
    """
    if not isinstance(tasks, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"tasks must be the path of a file, not {tasks!r}")
    if score_output is not None and not isinstance(score_output, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"score_output must be 'module:function', not {score_output!r}")
    read = load_tasks(tasks)
    hook = hook_of(score_output or None)
    options = TaskOptions(
        match_mode, length_target, hook, schema_mode, timeout_ms, {} if chat_options is None else chat_options,
        model_id, fingerprint=_hashes(read, hook),
    )  # fmt: skip
    return TaskEnv(read, options=options)


def _hashes(tasks: Sequence[Task], hook: ScoringHook | None) -> JsonDict:
    """Hashes of the content of the tasks and of the scoring hook."""
    hashes: JsonDict = {"tasks_content": digest([task.document() for task in tasks])}
    if hook is not None:
        hashes["score_output_source"] = _source_of(hook)
    return hashes


def _source_of(hook: ScoringHook) -> JsonDict | str:
    if hook.files:
        return source_hashes(hook.files)
    code = code_of(hook.function)
    try:
        return digest(inspect.getsource(code))
    except (OSError, TypeError):  # entered at a prompt, or not written in Python
        compiled = getattr(code, "__code__", None)
        return digest(_bytecode(compiled)) if isinstance(compiled, CodeType) else hook.name


def _bytecode(code: CodeType) -> list[object]:
    """Return a function's bytecode and constants, which are equal in all processes with the same Python version."""
    constants: list[object] = []
    for value in cast("tuple[object, ...]", code.co_consts):
        if isinstance(value, CodeType):
            constants.append(_bytecode(value))
        elif isinstance(value, frozenset):  # its order differs between processes
            constants.append(sorted(map(repr, cast("frozenset[object]", value))))
        else:
            constants.append(repr(value))
    return [code.co_code.hex(), list(code.co_names), constants]
