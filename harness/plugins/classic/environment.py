"""Base class for environments of the classic `verifiers` API, based on `harness.Environment`: constructor, attributes,
model calls in the classic format, and support for subclasses that define `rollout` themselves."""

from __future__ import annotations

import copy
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, cast

from harness.core.errors import EnvironmentFault, ModelError, UsageError
from harness.core.state import State
from harness.core.types import Chat, JsonDict, Message, MessageType, Prompt
from harness.envs.dataset import Style, Table
from harness.envs.environment import Environment as NativeEnvironment
from harness.plugins.classic import faults, marks
from harness.plugins.classic.clients import ask
from harness.plugins.classic.context import current
from harness.plugins.classic.context import generation as running
from harness.plugins.classic.dataset import Format, Rows, selected
from harness.plugins.classic.generation import Generation
from harness.plugins.classic.messages import concat, messages_of, tools_of, tools_to_wire
from harness.plugins.classic.own_rollouts import Input, dispatching, is_engine, reading, take_over, wrap_own
from harness.plugins.classic.parsers import Parser
from harness.plugins.classic.responses import Response, response_of
from harness.plugins.classic.rubric import Rubric, settle_all
from harness.plugins.classic.rubric_group import RubricGroup
from harness.plugins.classic.state import ClassicState, classic_state, count_model_call, timing_of
from harness.rubrics.rubric import Rubric as NativeRubric

_TOOLS: dict[Generation, str] = {"B": "oai_tools", "C": "tool_defs"}
"""Name of the attribute and state key that hold the tool definitions, for each generation of the classic API."""


class Environment(NativeEnvironment):
    """`vf.Environment`: base class of classic environments, which have a dataset, a rubric and a method `rollout`.

    Args:
        dataset: Rows, a `datasets.Dataset`, or a function that makes one.
        eval_dataset: As `dataset`; used for evaluation if both are given.
        system_prompt: Prepended to prompts that have no system prompt.
        few_shot: Messages between the system prompt and the question.
        parser: Parses answers.
        rubric: Scores rollouts.
        **options: `sampling_args` (overridden by those of the run), `message_type`, `oai_tools` or `tool_defs` (tool
            definitions in the older or newer classic API), `env_id`, `env_args`. All others become attributes,
            including those without an effect here (`map_kwargs`, `max_seq_len`, `max_workers`, `interleaved_rollouts`,
            `score_rollouts`, `pass_threshold`).
    """

    generation: Generation = "B"
    max_workers: int = 512
    max_seq_len: int | None = None
    interleaved_rollouts: bool = False
    score_rollouts: bool = True
    pass_threshold: float = 0.5
    rollouts_per_example: int | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if not cls.__module__.startswith("harness."):
            wrap_own(cls, "rollout", lambda own: dispatching(own, Environment.rollout))
            wrap_own(cls, "get_model_response", reading)
        # The base class of bench rejects subclasses that define `rollout`, but classic environments may define it.
        super(NativeEnvironment, cls).__init_subclass__(**kwargs)

    def __init__(
        self,
        dataset: Any = None,
        eval_dataset: Any = None,
        system_prompt: str | None = None,
        few_shot: list[Message] | None = None,
        parser: Any = None,
        rubric: NativeRubric | None = None,
        **options: Any,
    ) -> None:
        message_type: MessageType = options.pop("message_type", "chat")
        if message_type == "completion" and (system_prompt or few_shot):
            raise ValueError("system_prompt and few_shot cannot be combined with message_type='completion'")
        if dataset is None and eval_dataset is None:
            raise ValueError("Either dataset or eval_dataset must be provided")
        self.generation = running()
        self.logger = logging.getLogger(f"verifiers.envs.{type(self).__name__}")
        self._put("dataset", dataset)
        self._put("eval_dataset", eval_dataset)
        definitions = [options.pop(name, None) for name in ("tool_defs", "oai_tools")]
        tools = next((each for each in definitions if each is not None), None)
        native = {name: options.pop(name) for name in ("env_id", "env_args") if name in options}
        native.update({name: source.supply for name, source in self._sources.items()})
        super().__init__(
            **native, parser=parser or Parser(), message_type=message_type,
            rubric=rubric if rubric is not None else Rubric(),
            sampling_args=copy.deepcopy(options.pop("sampling_args", None)),
        )  # fmt: skip
        self.system_prompt, self.few_shot = system_prompt, [dict(message) for message in few_shot or []]
        wire = None if tools is None else tools_of(tools_to_wire(tools), self.generation)
        setattr(self, _TOOLS[self.generation], wire)
        options.setdefault("map_kwargs", {})
        for name, value in options.items():
            setattr(self, name, value)
        for name, source in self._sources.items():
            if source.is_built:
                self._tables[name].check(self._style())
        self.__post_init__()

    def __post_init__(self) -> None:
        """Find the methods that are marked as hooks by decorators such as `@vf.stop`."""
        self._cleanups = marks.hooks_of(self, "cleanup")
        self._teardowns = marks.hooks_of(self, "teardown")
        self._stops = marks.hooks_of(self, "stop")

    def settle(self) -> None:
        """Validate the reward functions once the environment is fully built; until then, functions may be added.

        Raises:
            EnvironmentFault: a reward function has a parameter that cannot be supplied.
        """
        evaluated = self._evaluated
        settle_all(self.rubric, self.prepared, None if evaluated is None else evaluated.known_columns)

    # Datasets

    @cached_property
    def _sources(self) -> dict[str, Rows]:
        """The datasets that the author passed, by name: `dataset` and `eval_dataset`."""
        return {}

    @property
    def _evaluated(self) -> Rows | None:
        return self._sources.get("eval_dataset") or self._sources.get("dataset")

    def _put(self, name: str, given: Any) -> None:
        """Set or replace a dataset; None removes it."""
        tables: dict[str, Table] = vars(self).get("_tables", {})
        for kept in (self._sources, tables):
            kept.pop(name, None)
        if given is not None:
            source = self._sources[name] = Rows(given, self._format, name)
            tables[name] = Table(source.supply, name)

    def _format(self) -> Format:
        task = (self.env_id or "").split("/")[-1] or "default"
        return Format(self.generation, self.message_type, self.system_prompt, self.few_shot, task)

    def _style(self) -> Style:
        return Style(self.message_type, None, [])  # rows are already formatted

    @property
    def dataset(self) -> Any:
        """The formatted training rows as a `datasets.Dataset`; None if the environment has none."""
        return self._sources["dataset"].shown if "dataset" in self._sources else None

    @dataset.setter
    def dataset(self, source: Any) -> None:
        self._put("dataset", source)

    @property
    def eval_dataset(self) -> Any:
        """The formatted evaluation rows as a `datasets.Dataset`; None if the environment has none."""
        return self._sources["eval_dataset"].shown if "eval_dataset" in self._sources else None

    @eval_dataset.setter
    def eval_dataset(self, source: Any) -> None:
        self._put("eval_dataset", source)

    def get_dataset(self, n: int = -1, seed: int | None = None) -> Any:
        """Return the formatted training rows, shuffled if a seed is given; only the first `n` if `n` is above 0."""
        if "dataset" not in self._sources:
            raise ValueError("dataset is not set")
        return selected(self.dataset, n, seed)

    def get_eval_dataset(self, n: int = -1, seed: int | None = None) -> Any:
        """Return the formatted evaluation rows, shuffled if a seed is given; only the first `n` if `n` is above 0."""
        return selected(self.eval_dataset, n, seed) if "eval_dataset" in self._sources else self.get_dataset(n, seed)

    # Tools

    def _tools(self, state: State) -> list[JsonDict]:
        """Return the tool definitions in the row's `info`, or else the environment's; also store them in the state."""
        given: Any = state.get("info")
        info: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
        own: Any = info.get("tool_defs") or info.get("oai_tools")
        if isinstance(own, str):
            own = json.loads(own)
        wire = tools_to_wire(own or getattr(self, _TOOLS[self.generation], None))
        state[_TOOLS[self.generation]] = tools_of(wire, self.generation)
        return wire

    # The rollout

    def _timing(self) -> JsonDict:
        return timing_of(super()._timing(), self.generation)

    def prepared(self, state: State) -> ClassicState:
        """Convert the engine's state of a rollout, new or restored from a journal, to a classic state, in place."""
        if isinstance(state, ClassicState) and state.generation == self.generation:
            return state
        prompt = state["prompt"] if state.example is None else state.example.prompt
        source = self._evaluated
        row = None if source is None else source.columns(state["example_id"], prompt)
        converted = classic_state(state, self.generation, row)
        if _TOOLS[self.generation] not in converted:
            self._tools(converted)
        return converted

    async def rollout(self, *args: Any, **kwargs: Any) -> Any:
        """Run one rollout. The engine calls this method with `(state, chat)`, authors' code with `(input, client,
        model, sampling_args)`."""
        if not is_engine(args, kwargs):
            own = await self.init_state(*args, **kwargs)
            await self._loop(own)
            await self.render_completion(own)
            return own
        token = current.set(self.generation)
        state = self.prepared(args[0])
        try:
            await super().rollout(state, cast(Chat, args[1]))
        finally:
            current.reset(token)
            state.check_client()

    async def play(self, state: State) -> None:
        """Run the rollout with the author's `rollout(input, client, model, sampling_args)` if there is one, else with
        the default loop."""
        own: Callable[..., Awaitable[Any]] | None = getattr(type(self).rollout, "own", None)
        if own is None:
            return await self._loop(state)
        args = copy.deepcopy(state["sampling_args"])
        made = await own(self, Input(state), state["client"], state["model"], args)
        if isinstance(made, dict) and made is not state:
            take_over(state, cast(JsonDict, made))
        state["is_completed"] = True

    async def _loop(self, state: State) -> None:
        raise EnvironmentFault(f"{type(self).__name__} must define rollout(input, client, model, sampling_args)")

    async def init_state(
        self, input: Mapping[str, Any], client: Any, model: str, sampling_args: JsonDict | None = None
    ) -> ClassicState:
        """Create the state of a rollout of `input`, or return the engine's state if the engine started the rollout."""
        if isinstance(input, Input):
            return self.prepared(input.state)
        fields = copy.deepcopy(dict(input))
        if isinstance(fields.get("info"), str):
            fields["info"] = json.loads(fields["info"])
        state = State(input={"task": self._format().task, "answer": "", "info": {}, "example_id": 0, **fields})
        state.update(
            model=model, sampling_args=sampling_args or {}, is_completed=False, is_truncated=False, stop_condition=None,
            final_env_response=None, trajectory=[], trajectory_id=uuid.uuid4().hex, reward=None, metrics=None,
            error=None, timing={"started_at": time.time()}, client=client,
        )  # fmt: skip
        made = classic_state(state, self.generation, None)
        state["tools"] = self._tools(made)
        return made

    async def render_completion(self, state: State) -> None:
        """Set `state["completion"]` to the messages after the prompt, from the last step of the trajectory."""
        if not state["trajectory"]:
            state["completion"] = state.get("completion") or ("" if isinstance(state["prompt"], str) else [])
            whole, start = state["completion"], 0
        else:
            last = state["trajectory"][-1]
            whole, start = concat([last["prompt"], last["completion"]]), len(state["prompt"])
        if state.get("final_env_response"):
            whole = concat([whole, messages_of(state["final_env_response"], self.generation)])
        state["completion"] = whole[start:]

    async def get_model_response(  # type: ignore[override]
        self,
        state: State,
        prompt: Any,
        client: Any = None,
        model: str | None = None,
        oai_tools: Any = None,
        sampling_args: Mapping[str, Any] | None = None,
        message_type: MessageType | None = None,
        **options: Any,
    ) -> Any:
        """Call the rollout's model, or `client` if the author passes a different one. The type of the prompt determines
        whether a chat or a text completion is requested. `tool_defs` is an alias of `oai_tools`.

        Raises:
            EnvironmentFault: `message_type` does not match the prompt.
            ModelError: the call failed: `vf.ModelError`, `vf.OverlongPromptError` or another classic exception; or
                bench's own exception if the endpoint is unusable.
        """
        asked: Prompt = messages_of(prompt, self.generation)
        is_text = isinstance(asked, str)
        if message_type is not None and is_text != (message_type == "completion"):
            kind = "a text" if is_text else "messages"
            raise EnvironmentFault(f"get_model_response: the prompt is {kind}, which does not match {message_type=}")
        mine = state.get(_TOOLS[self.generation])
        tools = tools_to_wire(oai_tools or options.get("tool_defs") or mine)
        started = time.time()
        try:
            reply = await ask(state, asked, tools=tools, sampling_args=sampling_args, client=client, model=model)
        except ModelError as error:
            raise faults.classic(error)  # noqa: B904  # chained there
        response = reply if isinstance(reply, Response) else response_of(reply, is_text=is_text, model=state["model"])
        count_model_call(cast(ClassicState, state), started, response)
        return response

    def get_state_usage(self, state: State) -> JsonDict | None:
        """Return the token usage of the rollout so far, as reported by the endpoint."""
        return state.get("usage")

    # Changes

    def add_rubric(self, rubric: NativeRubric) -> None:
        """Add `rubric` to the rubrics that score rollouts."""
        mine = cast(NativeRubric, self.rubric)
        if isinstance(mine, RubricGroup):
            mine.rubrics.append(rubric)
        else:
            self.rubric = RubricGroup([mine, rubric])

    def set_kwargs(self, **values: Any) -> None:
        """Set attributes of the environment. Author code may set any attribute, a run's settings only existing ones.

        Raises:
            ConfigError: a run's settings name an unknown attribute.
        """
        if current.get() is None:
            return super().set_kwargs(**values)
        for name, value in values.items():
            setter = getattr(self, f"set_{name}", None)
            if callable(setter):
                setter(value)
            else:
                setattr(self, name, value)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error: the classic method `evaluate` is not supported.

        Raises:
            UsageError: always; the message names the alternative.
        """
        name = self.env_id or type(self).__name__
        raise UsageError(
            f"{name}: evaluate() and generate() are not supported; use `bench run {self.env_id or 'ENV'} -m MODEL`, "
            "which uses the configured endpoints and limits and records the replies"
        )

    generate = generate_sync = evaluate_sync = run_rollout = run_group = evaluate

    async def teardown(self) -> None:
        """Run the environment's methods that are marked `@vf.teardown`, then those of its rubric."""
        await super().teardown()
        mine = cast(NativeRubric, self.rubric)
        if isinstance(mine, Rubric):
            try:
                await mine.teardown()
            except (Exception, SystemExit) as error:  # the results are already complete
                self._fault("rubric teardown", error)
