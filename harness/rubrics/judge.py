"""The rubric with a judge model. Functions ask the judge through their parameter `judge`; each question about a rollout
is sent only once. `judge_port` connects the judge models; `judge_prompt` has the prompts and parses the replies.

    JudgeRubric()                                    CORRECT or INCORRECT with the default prompt
    JudgeRubric(verdicts={"A": 1.0, "B": 0.5, …})    other verdicts
    JudgeRubric([own_function], judge_prompt=…)      async def own_function(judge, prompt, completion, answer, state)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack, cast
from weakref import WeakValueDictionary

from harness.core.errors import EnvironmentFault, JudgeError, ModelError, SystemicError
from harness.core.records import JUDGEMENTS, Score
from harness.core.state import State
from harness.core.types import JsonDict, ModelResponse, Prompt, Usage
from harness.rubrics.functions import RewardFunc, RewardFunction, plan
from harness.rubrics.judge_port import JudgeSpec, ask, collect_failures, judged_by, prompt_digest, scoring_pass
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
        """One lock for each question about a rollout; equal questions wait until the first one has been answered."""

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
        text, entry = await self._asked(self.question(prompt, completion, answer), state)
        verdict = read_verdict(text, self.verdicts)
        entry["label"] = verdict.label
        return verdict

    async def ask(self, question: Prompt, state: State | None = None) -> str:
        """Ask the judge a question of your own, a text or messages, and return its reply.

        Raises:
            JudgeError: the judge refused, its reply was empty or truncated, or the call failed.
            SystemicError: the judge's endpoint is unusable; the run stops.
        """
        text, _ = await self._asked(question, state)
        return text

    def question(self, prompt: Prompt, completion: Prompt, answer: str = "") -> str:
        """Fill in the rubric's prompt template for a rollout."""
        return render(
            self.template,
            question=last_question(prompt),
            answer=str(answer),
            response=self._answer_of(completion),
            verdicts=self.verdicts,
        )

    async def _asked(self, question: Prompt, state: State | None) -> tuple[str, JsonDict]:
        messages: Prompt = [{"role": "user", "content": question}] if isinstance(question, str) else question
        try:
            if state is None:
                asked = await ask(self.spec, messages)
                return reply_text(asked.response), asked.entry
            key = prompt_digest(self.spec, messages)
            async with self._locks.setdefault((id(state), key), asyncio.Lock()):
                judgements = cast("list[JsonDict]", state.get(JUDGEMENTS, []))
                entry = next((each for each in judgements if each.get("prompt") == key), None)
                if entry is not None:
                    return reply_text(_replayed(entry)), entry
                asked = await ask(self.spec, messages, cast("MutableMapping[str, Any]", state))
                if asked.response.is_refusal:
                    asked.entry["refusal"] = True
                return reply_text(asked.response), asked.entry
        except SystemicError:
            raise
        except ModelError as error:
            raise JudgeError(f"judge {error.reason}", str(error)) from error


class JudgeOptions(TypedDict, total=False):
    """Settings of the judge besides its model, and the additional arguments of `Rubric`."""

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

    If the judge refuses, gives no valid verdict or an empty reply, or if its call fails, the rollout is unscored, with
    a reason. If the call failed, this holds even if the function catches the error. The replies with model, tokens and
    cost are stored in `state["judgements"]`, and so in the journal.

    Args:
        funcs: As in `Rubric`. A function with the parameter `judge` must be async.
        weights: As in `Rubric`.
        parser: As in `Rubric`; also extracts the answer that the judge sees.
        judge_model: An alias in the endpoint registry, or a model name.
        **options: `judge_prompt`, `judge_sampling_args`; `judge_base_url` and `judge_api_key_var` (name of an
            environment variable) for a judge that is not in the registry; `verdicts`, label → value; `max_concurrent`
            requests of a run; and the options of `Rubric`.

    Raises:
        EnvironmentFault: as in `Rubric`; or an invalid prompt, verdicts, sampling arguments or request limit.
        ConfigError: an invalid URL, or a key instead of the name of an environment variable.
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
        sampling_args = _table("judge_sampling_args", options.get("judge_sampling_args"))
        spec = JudgeSpec(
            _text("judge_model", judge_model),
            options.get("judge_base_url"),
            options.get("judge_api_key_var"),
            sampling_args,
            _bound(options.get("max_concurrent")),
            prompt=[template, verdicts],
        )
        self.judge = Judge(spec, template, verdicts, lambda completion: self.parser.parse_answer(completion) or "")
        self._asks = True
        given: JsonDict = {
            "judge": self.judge,
            "judge_model": judge_model,
            "judge_prompt": template,
            "judge_sampling_args": sampling_args,
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
        """The judge model; none after `only` with a function that does not ask it."""
        return (self.judge.spec,) if self._asks else ()

    def only(self, name: str) -> Rubric:
        """Make a copy of this rubric that runs only one function. It needs no judge if the function has no parameter
        `judge`."""
        part = cast(JudgeRubric, super().only(name))
        [planned] = part._functions
        part._asks = planned.takes is None or "judge" in planned.takes
        return part

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to the reward.

        Raises:
            EnvironmentFault: an unknown parameter, a name in use, or a function with `judge` that is not async.
        """
        planned = plan(func, weight, tuple(self._objects))
        if not planned.is_async and planned.takes is not None and "judge" in planned.takes:
            raise EnvironmentFault(
                f"reward function {planned.name!r} has the parameter judge, which must be awaited: make it `async def`"
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
    """The value of the judge's verdict."""
    return (await judge.verdict(prompt, completion, answer, state)).value


def _replayed(entry: JsonDict) -> ModelResponse:
    """Rebuild a recorded reply, with the fields that `reply_text` needs."""
    message: JsonDict = {"role": "assistant", "content": entry["text"], "refusal": entry.get("refusal")}
    return ModelResponse(message, cast("str | None", entry["finish_reason"]), Usage())


def _fail_with_judge(planned: RewardFunction) -> RewardFunc:
    """Wrap a function so that it has no value if a judge call failed, even if it caught the error."""

    async def checked(**arguments: Any) -> object:
        with collect_failures() as failures:
            value = planned.function(**arguments)
            value = await value if inspect.isawaitable(value) else value
        for error in failures:
            raise JudgeError(f"judge {error.reason}", str(error)) from error
        return value

    return checked


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise EnvironmentFault(f"{name} must be a string, not {value!r}")
    return value


def _table(name: str, value: object) -> JsonDict:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) for key in cast("Mapping[object, object]", value)
    ):
        raise EnvironmentFault(f"{name} must be a table of names and values, not {value!r}")
    return dict(cast("Mapping[str, Any]", value))


def _bound(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise EnvironmentFault(f"max_concurrent must be a whole number of 1 or more, or None, not {value!r}")
