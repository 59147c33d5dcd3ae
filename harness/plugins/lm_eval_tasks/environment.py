"""A task of lm-eval as an environment: its documents are the rows, its requests the model calls of a rollout."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, cast

from harness.core.errors import ContextLengthError, ModelError, SystemicError
from harness.core.state import State
from harness.core.types import JsonDict, Prompt
from harness.envs.env_group import EnvGroup
from harness.envs.environment import Environment
from harness.plugins.lm_eval_tasks.documents import GENERATE, ROLLING, Documents
from harness.plugins.lm_eval_tasks.library import SEED, quiet
from harness.plugins.lm_eval_tasks.likelihood import NEEDS, ScoredText, Splitter
from harness.plugins.lm_eval_tasks.metrics import RESPONSES, VALUES, Scorer, TaskRubric, named, plain
from harness.usercode.threads import offload

logger = logging.getLogger(__name__)

MAX_TOKENS = 256
"""Tokens to generate for tasks that do not set a number, as in lm-eval."""

_REFUSED = (400, 405, 422, 501)
"""HTTP status of endpoints that do not know `echo` or `logprobs`."""

_MOST_REFUSED = 3
"""Maximum number of documents that are refused before the run ends, if none was answered."""

_SHOWN = 5
"""Maximum number of tasks in a warning."""

_MOST_STOPS = 4
"""Maximum number of stop sequences of a chat, as in lm-eval, since endpoints reject more."""


class TaskEnv(Environment):
    """One task.

    Args:
        name: Name of the task.
        documents: Its documents.
        splitter: Makes the prompts for log-likelihoods.
        reward: Name of the metric that is the reward; None for the task's first.
        is_chat: Whether prompts are messages.
    """

    def __init__(
        self, name: str, documents: Documents, splitter: Splitter, *, reward: str | None = None, is_chat: bool = False
    ) -> None:
        self.scorer = Scorer(name, documents)
        self._documents = documents
        self._splitter = splitter
        self._refused: set[int] = set()
        self._has_answer = False
        super().__init__(
            eval_dataset=documents,
            rubric=TaskRubric(self.scorer, reward),
            message_type="chat" if is_chat else "completion",
            env_id=name,
        )

    figures_of = VALUES

    @property
    def fingerprint(self) -> JsonDict:
        """The library's release, and a hash of the task's configuration with the source of its functions."""
        return {"lm_eval": version("lm_eval"), "task": self.scorer.config_digest()}

    def figures(self, values: Sequence[JsonDict]) -> dict[str, float]:
        """Return the task's figures that are no means over documents, or of metrics that have no column; the other
        means are those of the columns."""
        found = self.scorer.figures(values)
        columns = [name for name in self.scorer.declared if self.scorer.is_mean(name)]
        means = {key for key in found if key.partition(",")[0].removesuffix("_stderr") in columns}
        return named({key: value for key, value in found.items() if key not in means})

    async def play(self, state: State) -> None:
        """Send the task's requests, one after the other, and store the replies."""
        prompt: Prompt = state["prompt"]
        state.transcript, state.start = (prompt if isinstance(prompt, str) else list(prompt)), len(prompt)
        replies: list[list[Any]] = []
        for request in self._documents.requests(state["info"]["doc_id"]):
            replies.append([])
            for _ in range(request.repeats or 1):
                replies[-1].append(await self._reply(state, request))
        state[RESPONSES] = plain(replies)
        if len(state.transcript) == state.start and isinstance(state.transcript, str):
            state.transcript += _summary(state["info"], replies)
        state["is_completed"], state["stop_condition"] = True, "answered"

    async def _reply(self, state: State, request: Any) -> Any:
        """Return the reply to one request, in the form that the task reads."""
        if request.request_type == GENERATE:
            return await self._generate(state, *request.args[:2])
        if request.request_type == ROLLING:
            parts = await offload.run(lambda: list(self._splitter.windows(request.args[0])))
            return sum([(await self._score(state, each))[0] for each in parts])
        context, continuation = request.args[:2]
        return list(await self._score(state, await offload.run(self._splitter.pair, context, continuation)))

    async def _score(self, state: State, text: ScoredText) -> tuple[float, bool]:
        """Return the log-likelihood of a part of a prompt, and whether its tokens are the likeliest."""
        arguments = text.sampling_args(state["sampling_args"])
        try:
            response = await self.get_model_response(state, text.text, sampling_args=arguments)
        except (ContextLengthError, SystemicError):
            raise
        except ModelError as error:
            if error.status not in _REFUSED:
                raise
            self._refused.add(state["info"]["doc_id"])
            kind = SystemicError if len(self._refused) > _MOST_REFUSED and not self._has_answer else ModelError
            advice = kind(f"{error}; {NEEDS}", status=error.status, retryable=error.retryable, reason=error.reason)
            advice.wasted = error.wasted
            raise advice from error
        self._has_answer = True
        return text.read(response)

    async def _generate(self, state: State, prompt: Prompt, settings: JsonDict) -> str:
        """Return the model's text; the first one becomes the rollout's completion."""
        given = state["sampling_args"]
        arguments = {**sampling_args(settings, is_chat=not isinstance(prompt, str)), **given}
        if "max_completion_tokens" in given:
            del arguments["max_tokens"]
        response = await self.get_model_response(state, prompt, sampling_args=arguments)
        text = str(response.message.get("content") or "")
        if len(state.transcript) == state.start:
            if isinstance(state.transcript, str):
                state.transcript += text
            else:
                state.transcript.append(response.message)
        state["is_truncated"] = state["is_truncated"] or response.is_truncated
        return text


class TaskGroup(EnvGroup):
    """A group or tag of tasks: one environment for each task, and the group's own figures.

    Args:
        members: The environments by the names of their tasks.
        groups: The library's groups, the outermost first; none for a tag.
    """

    figures_of = VALUES

    def __init__(self, members: Mapping[str, TaskEnv], groups: Mapping[str, Any]) -> None:
        super().__init__(list(members.values()), list(members))
        self._members = members
        self._groups = groups

    @property
    def fingerprint(self) -> JsonDict:
        """The library's release, and hashes of the configurations of all tasks."""
        return {"lm_eval": version("lm_eval"), "tasks": {n: e.scorer.config_digest() for n, e in self._members.items()}}

    def figures(self, values: Sequence[JsonDict]) -> dict[str, float]:
        """Return the figures of all groups, as lm-eval defines them, and those of all tasks. Of groups that lack
        documents of a task, a warning says so."""
        by_task: dict[str, list[JsonDict]] = {name: [] for name in self._members}
        for each in values:
            by_task[each["task"]].append(each)
        tasks = {name: self._members[name].scorer.figures(found) for name, found in by_task.items() if found}
        with quiet():
            groups = {name: group.aggregate(tasks) for name, group in self._groups.items()}
        if self._groups and (lacking := [name for name in self._members if name not in tasks]):
            logger.warning(
                "%s: the figures of its groups lack %d of %d tasks, which have no scored document: %s",
                self.env_id, len(lacking), len(self._members), ", ".join(lacking[:_SHOWN]),
            )  # fmt: skip
        return {key: value for name, each in {**groups, **tasks}.items() for key, value in named(each, name).items()}


def _summary(info: JsonDict, replies: list[list[Any]]) -> str:
    """Return a rollout of log-likelihoods as text, for readers: the likeliest choice, or the log-likelihood."""
    choices, values = info.get("continuations", ()), [reply[0] for reply in replies]
    if len(choices) > 1:
        return choices[max(range(len(choices)), key=lambda place: values[place][0])]
    return "; ".join(f"{each[0] if isinstance(each, list) else each:.6g}" for each in values)


def sampling_args(settings: JsonDict, *, is_chat: bool) -> JsonDict:
    """Convert a task's `generation_kwargs` to sampling arguments, as lm-eval does for its API models."""
    rest = {name: value for name, value in settings.items() if name not in ("do_sample", "until", "max_gen_toks")}
    until = cast("str | list[str]", settings.get("until") or [])
    stop = [until] if isinstance(until, str) else until
    return {
        "max_tokens": settings.get("max_gen_toks", MAX_TOKENS),
        "temperature": 0,
        "stop": (stop[:_MOST_STOPS] if is_chat else stop) or None,
        "seed": SEED,
        **rest,
    }
