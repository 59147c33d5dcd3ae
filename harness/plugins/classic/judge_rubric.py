"""`vf.JudgeRubric` of the classic API: reward functions that call a judge model. Implements the default prompt, the
cache of the judge's replies in the rollout's state, and the parameter `judge_client` of reward functions. Calls use the
run's endpoints, limits and accounting (`harness.rubrics.judge_port`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from harness.core.errors import EnvironmentFault
from harness.core.records import Score
from harness.core.state import State
from harness.core.types import JsonDict, Prompt
from harness.plugins.classic.own_rollouts import awaited
from harness.plugins.classic.records import plain
from harness.plugins.classic.rubric import Rubric
from harness.rubrics.judge_port import JudgeSpec, ask, judge_chat, scoring_pass
from harness.rubrics.parser import Parser as NativeParser

DEFAULT_MODEL = "gpt-4.1-nano"
DEFAULT_URL = "https://api.openai.com/v1"
KEY_VAR = "OPENAI_API_KEY"

DEFAULT_JUDGE_PROMPT = """\
Compare the response to a question with the known answer, and decide whether the response is right.

Question:
```
{question}
```

Known answer:
```
{answer}
```

Response:
```
{response}
```

Say "yes" if it is right, else "no", and nothing more."""


class JudgeRubric(Rubric):
    """`vf.JudgeRubric`: a rubric with a judge model. Its functions may have the parameters `judge`, `judge_client`,
    `judge_model`, `judge_prompt` and `judge_sampling_args`.

    Args:
        parser: Extracts the part of a completion that the judge sees.
        parallelize_scoring: Stored as an attribute, but without effect.
        judge_client: Client of the openai package with the judge's URL and key; by default, one with that package's
            defaults.
        judge_model: Name of the judge model.
        judge_sampling_args: Sampling arguments of the judge.
        judge_prompt: A template with `{question}`, `{answer}` and `{response}`.
        **kwargs: See `Rubric`.
    """

    def __init__(
        self,
        parser: NativeParser | None = None,
        parallelize_scoring: bool = False,
        judge_client: Any = None,
        judge_model: str = DEFAULT_MODEL,
        judge_sampling_args: Mapping[str, Any] | None = None,
        judge_prompt: str = DEFAULT_JUDGE_PROMPT,
        **kwargs: Any,
    ) -> None:
        super().__init__(parser=parser, **kwargs)
        self.parallelize_scoring = parallelize_scoring
        self.given_client = judge_client
        """The client that the author passed as `judge_client`; None if none was passed."""
        self.is_ours = judge_client is None or all(hasattr(judge_client, name) for name in ("base_url", "api_key"))
        """Whether bench sends the judge's requests, because the judge's URL and key are known. Otherwise the author's
        client sends them."""
        self.judge_model, self.judge_prompt = judge_model, judge_prompt
        self.judge_sampling_args: JsonDict = dict(judge_sampling_args or {})
        self.judge_client = _Client(self)
        self.class_objects = {
            "parser": self.parser,
            "judge": self.judge,
            "judge_client": self.judge_client,
            "judge_model": self.judge_model,
            "judge_prompt": self.judge_prompt,
            "judge_sampling_args": self.judge_sampling_args,
        }

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judge model, as the only item, if bench sends its requests; otherwise empty."""
        return (self.spec,) if self.is_ours else ()

    @functools.cached_property
    def spec(self) -> JudgeSpec:
        """Description of the judge model for the engine: name, URL, key and sampling arguments."""
        client = self.given_client
        if client is None:
            named = os.environ.get("OPENAI_BASE_URL") or None
            return JudgeSpec(self.judge_model, named, KEY_VAR, prompt=self.judge_prompt, default_url=DEFAULT_URL)
        key: object = client.api_key
        given: Mapping[str, object] = getattr(client, "_custom_headers", None) or {}
        headers = {name: str(value) for name, value in given.items()}
        return JudgeSpec(
            self.judge_model, str(client.base_url).rstrip("/"), headers=headers, prompt=self.judge_prompt,
            key=key if isinstance(key, str) and key else None,
        )  # fmt: skip

    async def judge(self, prompt: Prompt, completion: Prompt, answer: Any, state: State | None = None) -> str:
        """Ask the judge about a completion and return its reply. Equal prompts in a rollout are sent only once.

        Raises:
            ModelError: the call failed.
        """
        question = str(prompt[-1].get("content", "")) if isinstance(prompt, list) else str(prompt)
        response = cast(Any, self.parser).parse_answer(completion)
        text = self.judge_prompt.format(question=question, answer=answer, response=response)
        cached: Any = state.get("judge_response") if state is not None else None
        known: dict[str, str] = cast("dict[str, str]", cached) if isinstance(cached, dict) else {}
        if text in known:
            return known[text]
        said = await self._ask([{"role": "user", "content": text}], state)
        if state is not None:
            state["judge_response"] = {**known, text: said}
        return said

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts. An unusable judge endpoint ends the run."""
        with scoring_pass():
            return await super().score(states)

    async def _ask(self, messages: list[JsonDict], state: State | None) -> str:
        args = {name: value for name, value in self.judge_sampling_args.items() if value is not None}
        if "max_tokens" in args:
            args["max_completion_tokens"] = args.pop("max_tokens")
        if not self.is_ours:
            create = self.given_client.chat.completions.create
            reply = await awaited(create(model=self.judge_model, messages=messages, **args))
            return str(reply.choices[0].message.content)
        asked = await ask(self.spec, cast(Prompt, messages), state, sampling_args=args)
        return str(asked.response.message.get("content"))


class _Client:
    """Client that reward functions get as `judge_client`. bench sends requests to the rubric's judge model, and the
    author's client sends all others."""

    def __init__(self, rubric: JudgeRubric) -> None:
        self._rubric = rubric
        self.chat = self
        self.completions = self

    def __getattr__(self, name: str) -> Any:
        given = self._rubric.given_client
        if given is None:
            return getattr(self._ours(), name)
        return getattr(given, name)

    def create(self, **request: Any) -> Any:
        """Send a request, as `chat.completions.create` of the openai package does."""
        rubric = self._rubric
        given = rubric.given_client
        # Async methods of a client may be wrapped by functions that do not look async.
        is_async = given is None or any(base.__name__.startswith("Async") for base in type(given).__mro__)
        if rubric.is_ours and is_async and request.get("model") == rubric.judge_model:
            return self._ours().chat.completions.create(**{**request, "messages": plain(request.get("messages"))})
        if given is None:
            raise EnvironmentFault(
                f"the rubric's judge is {rubric.judge_model!r}, but a reward function requests "
                f"{request.get('model')!r}; to call another model, pass judge_client to JudgeRubric"
            )
        return given.chat.completions.create(**request)

    def _ours(self) -> Any:
        from harness.core.openai_client import async_openai

        return async_openai(judge_chat(self._rubric.spec))
