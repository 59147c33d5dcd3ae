"""Rubric that asks a judge model. Reward functions call the judge through their parameter `judge`; each question about
a rollout is sent only once. `judge_port` connects the judge models; `judge_prompt` has the prompts and parses the
replies.

    JudgeRubric()                                    CORRECT or INCORRECT with the default prompt
    JudgeRubric(verdicts={"A": 1.0, "B": 0.5, …})    other verdicts
    JudgeRubric([own_function], judge_prompt=…)      async def own_function(judge, prompt, completion, answer, state)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast
from weakref import WeakValueDictionary

from harness.core.errors import EnvironmentFault, JudgeError, ModelError, SystemicError
from harness.core.openai_client import async_openai, original
from harness.core.records import JUDGEMENTS, Score
from harness.core.state import State
from harness.core.types import JsonDict, ModelResponse, Prompt, Sampling, Tools
from harness.rubrics.functions import RewardFunc, RewardFunction, plan
from harness.rubrics.judge_port import (
    JudgeReply,
    JudgeSpec,
    ask,
    collect_failures,
    judged_by,
    other_loop,
    prompt_digest,
    scoring_pass,
)
from harness.rubrics.judge_prompt import (
    DEFAULT_PROMPT,
    DEFAULT_VERDICTS,
    Verdict,
    check_template,
    check_verdicts,
    last_question,
    quoted_response,
    read_verdict,
    render,
    reply_text,
)
from harness.rubrics.parser import Parser
from harness.rubrics.rubric import Rubric
from harness.settings.wording import suggestion
from harness.usercode.event_loop import in_loop

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["Judge", "JudgeRubric", "JudgeSpec", "Verdict", "judge_verdict", "judged_by", "quoted_response"]

DEFAULT_JUDGE = "openai/gpt-4.1-mini"
"""Default judge model, at the run's default endpoint."""


class Judge:
    """The `judge` argument of reward functions: `text = await judge(prompt, completion, answer, state)`.

    Equal questions about the same rollout are sent once, even if several functions ask them.

    Args:
        spec: The judge model.
        template: The prompt template; see `judge_prompt.render`.
        verdicts: The verdicts that `verdict` accepts, with their values.
        answer_of: Extracts the model's answer from a completion.
    """

    def __init__(
        self, spec: JudgeSpec, template: str, verdicts: Mapping[str, float], answer_of: Callable[[Prompt], str]
    ) -> None:
        self.spec = spec
        self.template = template
        self.verdicts = dict(verdicts)
        self._answer_of = answer_of
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        """Locks by rollout and question, so that equal questions wait until the first one has been answered."""

    async def __call__(self, prompt: Prompt, completion: Prompt, answer: str = "", state: State | None = None) -> str:
        """Ask the judge about a rollout and return its reply.

        Args:
            prompt: The rollout's prompt; the last user message is the question.
            completion: The model's messages; the rubric's parser extracts the answer from them.
            answer: The expected answer.
            state: The rollout's state. Without it nothing is recorded, and equal questions are sent again.

        Raises:
            JudgeError: the judge refused, its reply was empty or truncated, or the call failed.
            SystemicError: the judge's endpoint is unusable; the run stops.
        """
        return await self.ask(self.question(prompt, completion, answer), state)

    async def verdict(
        self, prompt: Prompt, completion: Prompt, answer: str = "", state: State | None = None
    ) -> Verdict:
        """Ask the judge for one of the rubric's verdicts; its reply is parsed strictly.

        Args:
            prompt: The rollout's prompt; the last user message is the question.
            completion: The model's messages; the rubric's parser extracts the answer from them.
            answer: The expected answer.
            state: The rollout's state. Without it nothing is recorded, and equal questions are sent again.

        Raises:
            JudgeError: the judge refused, its reply was empty or truncated or does not end with a verdict, or the call
                failed.
            SystemicError: the judge's endpoint is unusable; the run stops.
        """
        text, entry = await self._ask(self.question(prompt, completion, answer), state)
        verdict = read_verdict(text, self.verdicts)
        entry["label"] = verdict.label
        return verdict

    async def ask(self, question: Prompt, state: State | None = None) -> str:
        """Send any question, a string or messages, to the judge, and return its reply.

        Args:
            question: The question, sent without the rubric's prompt template.
            state: The rollout's state. Without it nothing is recorded, and equal questions are sent again.

        Raises:
            JudgeError: the judge refused, its reply was empty or truncated, or the call failed.
            SystemicError: the judge's endpoint is unusable; the run stops.
        """
        return (await self._ask(question, state))[0]

    def question(self, prompt: Prompt, completion: Prompt, answer: str = "") -> str:
        """Fill in the rubric's prompt template for a rollout; the arguments are those of the judge's call."""
        return render(
            self.template,
            question=last_question(prompt),
            answer=str(answer),
            response=self._answer_of(completion),
            verdicts=self.verdicts,
        )

    async def _ask(self, question: Prompt, state: State | None) -> tuple[str, JsonDict]:
        """Return the text of the judge's reply to a question, and the record of it."""
        messages: Prompt = [{"role": "user", "content": question}] if isinstance(question, str) else question
        try:
            reply = await self.reply(messages, state)
        except SystemicError:
            raise
        except ModelError as error:
            raise JudgeError(f"judge {error.reason}", str(error)) from error
        return reply_text(reply.response), reply.entry

    async def reply(
        self, messages: Prompt, state: State | None, *, tools: Tools = None, sampling_args: Sampling = None
    ) -> JudgeReply:
        """Return the judge's whole reply, from the rollout's record if it is there. Requests with tools are always
        sent, since a record has only the text of a reply.

        Raises:
            ModelError: the call failed after all retries.
            SystemicError: the judge's endpoint is unusable; the run stops.
        """
        if (loop := other_loop()) is not None:
            return await in_loop(loop, self.reply(messages, state, tools=tools, sampling_args=sampling_args))
        if state is None:
            return await ask(self.spec, messages, tools=tools, sampling_args=sampling_args)
        key = prompt_digest(self.spec, messages, sampling_args)
        async with self._locks.setdefault((id(state), key), asyncio.Lock()):
            judgements = cast("list[JsonDict]", state.get(JUDGEMENTS, []))
            entry = next((each for each in judgements if each.get("prompt") == key), None)
            if entry is not None and not tools:
                message: JsonDict = {"role": "assistant", "content": entry["text"], "refusal": entry.get("refusal")}
                return JudgeReply(ModelResponse(message, entry["finish_reason"]), entry)
            target = cast("MutableMapping[str, Any]", state)
            asked = await ask(self.spec, messages, target, tools=tools, sampling_args=sampling_args)
            if asked.response.is_refusal:
                asked.entry["refusal"] = True
            return asked

    def openai(self, state: State | None = None) -> AsyncOpenAI:
        """Create an `openai.AsyncOpenAI` client for the judge, for code written for that SDK. Its requests have the
        limits, retries and budget of the run, and equal questions about a rollout are sent once.

        Args:
            state: The rollout's state. Without it nothing is recorded, and equal questions are sent again.
        """
        return async_openai(_SdkJudge(self, state), names={self.spec.model})


@dataclass(frozen=True, slots=True)
class _SdkJudge:
    """A judge as a `Chat`, for a client of the openai SDK."""

    judge: Judge
    state: State | None

    @property
    def model(self) -> str:
        """The judge's model, as the rubric names it."""
        return self.judge.spec.model

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Ask the judge."""
        return (await self.judge.reply(prompt, self.state, tools=tools, sampling_args=sampling_args)).response


class JudgeOptions(TypedDict, total=False):
    """Keyword arguments of `JudgeRubric`: settings of the judge besides its model, and further arguments of
    `Rubric`."""

    judge_prompt: str
    """Prompt template with the fields `{question}`, `{answer}`, `{response}`, and optionally `{mark}` and
    `{verdicts}`."""
    judge_sampling_args: Mapping[str, Any] | None
    judge_base_url: str | None
    judge_api_key_var: str | None
    verdicts: Mapping[str, float]
    max_concurrent: int | None
    class_objects: Mapping[str, object] | None
    reward_range: tuple[float, float] | None
    needs_live_state: bool


class JudgeRubric(Rubric):
    """A rubric with a judge model. Functions may have the parameters `judge` (see `Judge`), `judge_model`,
    `judge_prompt` and `judge_sampling_args`. Without functions, `judge_verdict` is the reward.

    The rollout is unscored, with a reason, if the judge refuses, if its reply is empty or has no valid verdict, or if
    the call fails. A failed call has this effect even if the function catches the error. The replies are stored with
    model, tokens and cost in `state["judgements"]`, and thus in the journal.

    Args:
        funcs: As in `Rubric`. A function with the parameter `judge` must be async.
        weights: As in `Rubric`.
        parser: As in `Rubric`; also extracts the answer that the judge sees.
        judge_model: An alias in the endpoint registry, or a model name.
        **options: `judge_prompt`, `judge_sampling_args`; `judge_base_url` and `judge_api_key_var` (name of an
            environment variable) for a judge that is not in the registry; `verdicts`, a mapping of labels to values;
            `max_concurrent`, the maximum number of concurrent requests of a run; and the options of `Rubric`.

    Raises:
        EnvironmentFault: as in `Rubric`; or the prompt, the verdicts, the sampling arguments or the request limit is
            invalid.
        ConfigError: the URL is invalid, or `judge_api_key_var` is a key instead of the name of a variable.
    """

    def __init__(
        self,
        funcs: Sequence[RewardFunc] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        *,
        judge_model: str = DEFAULT_JUDGE,
        **options: Unpack[JudgeOptions],
    ) -> None:
        known = ["judge_model", *JudgeOptions.__annotations__, "funcs", "weights", "parser"]
        for name in options:
            if name not in known:
                raise EnvironmentFault(f"JudgeRubric({name}=…): unknown argument; {suggestion(name, known)}")
        verdicts = check_verdicts(options.get("verdicts", DEFAULT_VERDICTS))
        template = check_template(options.get("judge_prompt", DEFAULT_PROMPT))
        spec = _judge_spec(judge_model, cast("Mapping[str, Any]", options), [template, verdicts])
        self.judge = Judge(spec, template, verdicts, lambda completion: self.parser.parse_answer(completion) or "")
        self._uses_judge = True
        given: JsonDict = {
            "judge": self.judge,
            "judge_model": judge_model,
            "judge_prompt": template,
            "judge_sampling_args": spec.sampling_args,
        }
        if taken := given.keys() & (options.get("class_objects") or {}):
            raise EnvironmentFault(f"class object {min(taken)!r}: this name is reserved for the judge; rename it")
        super().__init__(
            [judge_verdict] if funcs is None else funcs,
            weights,
            parser,
            class_objects={**given, **(options.get("class_objects") or {})},
            reward_range=options.get("reward_range"),
            needs_live_state=options.get("needs_live_state", False),
        )
        if funcs is None and options.get("reward_range") is None:
            ends = [self._functions[0].weight * value for value in verdicts.values()]
            self._range = min(ends), max(ends)

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judge model; empty after `only` with a function that does not use it."""
        return (self.judge.spec,) if self._uses_judge else ()

    def only(self, name: str) -> Rubric:
        """Make a copy of this rubric that runs only one function. It needs no judge if the function has no parameter
        `judge`."""
        part = cast(JudgeRubric, super().only(name))
        [planned] = part._functions
        part._uses_judge = planned.takes is None or "judge" in planned.takes
        return part

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to the reward.

        Raises:
            EnvironmentFault: the function has an unknown parameter or the name of another function, or it has the
                parameter `judge` and is not async.
        """
        planned = plan(func, weight, tuple(self._objects))
        if not planned.is_async and planned.takes is not None and "judge" in planned.takes:
            raise EnvironmentFault(
                f"reward function {planned.name!r} is not async, but calls of `judge` must be awaited: use `async def`"
            )
        super().add_reward_func(func, weight)
        if planned.is_async:
            self._functions[-1] = replace(self._functions[-1], function=_fail_with_judge(planned))

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts as `Rubric` does.

        Raises:
            SystemicError: the judge's endpoint is unusable; no rollout is scored.
            ThreadsHung: as in `Rubric`.
        """
        with scoring_pass():
            return await super().score(states)


async def judge_verdict(judge: Judge, prompt: Prompt, completion: Prompt, answer: str, state: State) -> float:
    """Reward function: the value that the rubric assigns to the judge's verdict."""
    return (await judge.verdict(prompt, completion, answer, state)).value


def _fail_with_judge(planned: RewardFunction) -> RewardFunc:
    """Wrap a reward function so that it raises `JudgeError` if a judge call failed, even if it caught the error."""

    async def checked(**arguments: Any) -> object:
        with collect_failures() as failures:
            try:
                value = planned.function(**arguments)
                value = await value if inspect.isawaitable(value) else value
            except Exception as error:  # of the author's code: only the cause of an SDK's exception is raised instead
                inner = original(error, contexts=False)
                if inner is None or inner is error:
                    raise
                if isinstance(inner, ModelError) and not isinstance(inner, SystemicError):
                    raise JudgeError(f"judge {inner.reason}", str(inner)) from error
                raise inner from error
        for error in failures:
            raise JudgeError(f"judge {error.reason}", str(error)) from error
        return value

    return checked


def _judge_spec(model: object, options: Mapping[str, Any], prompt: object) -> JudgeSpec:
    """Validate the settings of a judge, whose types may be wrong despite the annotations."""
    given, bound = options.get("judge_sampling_args"), options.get("max_concurrent")
    if not isinstance(model, str) or not model:
        raise EnvironmentFault(f"judge_model must be a string, not {model!r}")
    sampling_args: Mapping[Any, Any] = {} if given is None else given
    if not (given is None or isinstance(given, Mapping)) or not all(isinstance(key, str) for key in sampling_args):
        raise EnvironmentFault(f"judge_sampling_args must be a table of names and values, not {given!r}")
    if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 1):
        raise EnvironmentFault(f"max_concurrent must be a whole number of 1 or more, or None, not {bound!r}")
    base_url, key_var = options.get("judge_base_url"), options.get("judge_api_key_var")
    return JudgeSpec(model, base_url, key_var, dict(sampling_args), bound, prompt=prompt)
