"""The base class of environments: a dataset, a rubric and a method that runs a rollout. It records and cleans up every
rollout, including failed and cancelled ones. The loop of turns is in `multi_turn`."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.openai_client import original
from harness.core.records import Example, Row
from harness.core.state import State
from harness.core.types import Chat, JsonDict, Message, Messages, MessageType, ModelResponse, Prompt, Sampling, Tools
from harness.envs.dataset import Style, Table
from harness.envs.hooks import Hook, Kind, hooks_of
from harness.envs.options import EnvOptions, checked, option_fault, unknown_name
from harness.rubrics.group import RubricGroup
from harness.rubrics.parser import Parser
from harness.rubrics.rubric import Rubric
from harness.usercode.exceptions import as_exception, describe, should_propagate
from harness.usercode.threads import offload

if TYPE_CHECKING:
    import harness

logger = logging.getLogger(__name__)

_FINAL = ("rollout", "row", "row_count", "teardown")
"""Methods that the engine calls and that subclasses must not override; subclasses define hooks instead."""

_MAX_LOGGED_FAULTS = 20
"""Maximum number of distinct cleanup errors that are logged; the records of the rollouts contain all."""

_UNSETTABLE = frozenset({"env_id", "env_args", "extra_env_kwargs", "message_type", "parser", "rubric", "source_files"})
"""Attributes that a run's settings cannot change, since they define the environment."""


class Environment(ABC):
    """Base class of environments. Most authors use `SingleTurnEnv` or `MultiTurnEnv`.

    Args:
        **options: See `EnvOptions`.

    Raises:
        EnvironmentFault: an unknown or invalid option, an invalid dataset, or a marked method with a wrong signature.
    """

    cleanup_timeout: ClassVar[float] = 60.0
    """Timeout in seconds of one `@cleanup` or `@teardown` method, so that a hanging one does not block the run."""

    neutral_args: ClassVar[frozenset[str]] = frozenset()
    """Arguments of `load_environment` that do not affect results: a resumed run may change them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _FINAL:
            if name in cls.__dict__ and not cls.__module__.startswith("harness."):
                raise EnvironmentFault(f"{cls.__name__}.{name} overrides a method that the engine calls; rename it")

    def __init__(self, **options: Unpack[EnvOptions]) -> None:
        given = checked(type(self), options)
        self.env_id = given.get("env_id", "")
        self.env_args: JsonDict = given.get("env_args") or {}
        self._files: tuple[Path, ...] = ()
        self.extra_env_kwargs: JsonDict = {}
        """Attributes set by `set_kwargs`."""
        self.message_type: MessageType = given.get("message_type", "chat")
        self.system_prompt = given.get("system_prompt")
        self.few_shot: Messages = given.get("few_shot") or []
        self.sampling_args: JsonDict = given.get("sampling_args") or {}
        self.tool_defs: list[JsonDict] = given.get("tool_defs") or []
        if "cluster_key" in given:
            self.cluster_key = given["cluster_key"] or ""
        self.parser = given.get("parser") or Parser()
        self.rubric = given.get("rubric") or Rubric()
        self.rubric.use_parser(self.parser)
        offload.reserve(given.get("max_workers") or 1)
        sources = {"dataset": given.get("dataset"), "eval_dataset": given.get("eval_dataset")}
        self._tables = {name: Table(source, name) for name, source in sources.items() if source is not None}
        self._fault_counts: dict[str, int] = {}
        self._cleanups = hooks_of(self, "cleanup")
        self._teardowns = hooks_of(self, "teardown")
        for table in self._tables.values():
            if table.is_open:
                table.check(self._style())

    @property
    def source_files(self) -> tuple[Path, ...]:
        """The environment's source files, as found by `load_environment`."""
        return self._files

    @source_files.setter
    def source_files(self, files: tuple[Path, ...]) -> None:
        self._files = files

    @property
    def fingerprint(self) -> JsonDict:
        """Hashes of data that the arguments name but do not contain, such as files. They are part of the run's
        identity, which must not change on resume.

        Replaces the default, the hash of `source_files`. An override must therefore include hashes of the source files;
        otherwise a run could be resumed with different code."""
        return {}

    def evaluate(self, model: str | None = None, **arguments: object) -> harness.EvaluatedRuns:
        """Evaluate a model on this environment. The arguments are those of `harness.evaluate`, without the first."""
        from harness import evaluate

        return evaluate(self, model, **arguments)

    # Dataset

    @property
    def row_count(self) -> int:
        """Number of rows of the evaluation dataset: `eval_dataset`, or else `dataset`. Loads the dataset."""
        return len(self._table())

    def row(self, index: int) -> Row:
        """One row of the evaluation dataset with its formatted prompt.

        Raises:
            IndexError: the index is out of range.
            EnvironmentFault: the row is invalid; the message names the row and the column.
        """
        return self._table().row(index, self._style())

    def _table(self) -> Table:
        table = self._tables["eval_dataset" if "eval_dataset" in self._tables else "dataset"]
        if not table.is_checked:
            table.check(self._style())
        return table

    def _style(self) -> Style:
        return Style(self.message_type, self.system_prompt, self.few_shot)

    # Rollouts

    async def rollout(self, state: State, chat: Chat) -> None:
        """Run one rollout. However it ends, the state then contains the completion so far, and the `@cleanup` methods
        have run.

        An exception in a `@cleanup` method is logged. It fails the rollout if nothing else did, since scoring may need
        the result of the method.

        Args:
            state: A new state; contains the result afterwards.
            chat: The model.

        Raises:
            ModelError: a model call failed after all retries.
            EnvironmentFault: the environment violated its interface, set `error` in the state, or failed to clean up.
            Exception: any other exception of the environment's code.
        """
        state.chat = chat
        state["tools"] = self._tools(state)
        state["timing"] = self._timing()
        started = time.monotonic()
        try:
            await self.play(state)
            if state["error"] is not None:
                raise as_exception(state["error"])
        except BaseException as error:  # recorded and raised again; a cancelled rollout needs cleanup, too
            inner = original(error, contexts=False)  # of a model call through `state.openai`
            state["error"] = inner or error
            await self._finish(state, started)
            if inner is None or inner is error:
                raise
            raise inner from error
        fault = await self._finish(state, started)
        if fault is not None:
            state["error"] = fault
            raise fault

    @abstractmethod
    async def play(self, state: State) -> None:
        """Call the model (`get_model_response`) until the rollout is complete, and update `state.transcript`."""

    async def get_model_response(
        self, state: State, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None
    ) -> ModelResponse:
        """Call the rollout's model. The transcript is not changed, so authors may also use it for additional questions.

        Args:
            state: The rollout's state.
            prompt: The messages, or the text for a completion model.
            tools: Tool definitions; default to the state's `tools`.
            sampling_args: Override the state's `sampling_args`.

        Raises:
            ModelError: the call failed after all retries.
        """
        if state.chat is None:
            raise EnvironmentFault("the model can only be called while the rollout runs")
        response = await state.chat(
            prompt,
            tools=(state["tools"] if tools is None else tools) or None,
            sampling_args={**state["sampling_args"], **(sampling_args or {})},
        )
        state["timing"]["model"] += response.seconds
        return response

    async def render_completion(self, state: State) -> None:
        """Set `state["completion"]` to the transcript after the prompt, plus `final_env_response`."""
        said: Any = state.transcript[state.start :]
        last = state["final_env_response"]
        if last is not None and type(last) is not type(said):
            kind = type(said).__name__
            raise EnvironmentFault(f"state['final_env_response'] must be a {kind}, not {type(last).__name__}")
        state["completion"] = said if last is None else said + last

    async def _finish(self, state: State, started: float) -> EnvironmentFault | None:
        """Set the rollout's completion and run the `@cleanup` methods; return the error if one of these steps failed.
        The transcript replaces a completion of the wrong type."""
        state["timing"]["generation"] = time.monotonic() - started
        fault: EnvironmentFault | None = None
        try:
            await self.render_completion(state)
        except Exception as error:  # an error of the author's own rendering must not lose the completion
            fault = self._fault("render_completion", error)
            state["completion"] = state.transcript[state.start :]
        finally:
            fault = await self._run_hooks("cleanup", self._cleanups, state) or fault
            state.chat = None
        said = cast("dict[str, object]", state).get("completion")
        wanted = str if self.message_type == "completion" else list
        if not isinstance(said, wanted):  # rendering or a cleanup method may set a wrong type
            state["completion"] = state.transcript[state.start :]
            fault = EnvironmentFault(
                f"{type(self).__name__}: state['completion'] must be a {wanted.__name__}, not {type(said).__name__}"
            )
        return fault

    async def _run_hooks(self, kind: Kind, hooks: Sequence[Hook], *arguments: object) -> EnvironmentFault | None:
        """Call all hooks, also after an error of one of them; return the first error."""
        first: EnvironmentFault | None = None
        for hook in hooks:
            try:
                async with asyncio.timeout(self.cleanup_timeout):
                    await hook(*arguments)
            except BaseException as error:
                if should_propagate(error):
                    raise
                fault = self._fault(f"@{kind} {hook.name}", error)
                first = first or fault
        return first

    async def teardown(self) -> None:
        """Run the `@teardown` methods. Exceptions are logged only, since the results are complete."""
        await self._run_hooks("teardown", self._teardowns)
        for words, number in self._fault_counts.items():
            if number > 1:
                logger.warning("%s (this error occurred %d times)", words, number)
        self._fault_counts.clear()

    def _fault(self, where: str, error: BaseException) -> EnvironmentFault:
        fault = EnvironmentFault(f"{type(self).__name__} {where} raised {describe(error)}")
        fault.__cause__ = error
        number = self._fault_counts[str(fault)] = self._fault_counts.get(str(fault), 0) + 1
        if number == 1 and len(self._fault_counts) <= _MAX_LOGGED_FAULTS:  # else logged once per rollout
            logger.warning("%s", fault)
        return fault

    def _timing(self) -> JsonDict:
        """Return the initial timings of a rollout that starts now."""
        return {"started_at": time.time(), "generation": 0.0, "model": 0.0}

    def _tools(self, state: State) -> list[JsonDict]:
        """Return the tool definitions in the row's `info`, or else those of the environment."""
        for name in ("tool_defs", "oai_tools"):
            tools = state["info"].get(name)
            if isinstance(tools, str):
                tools = cast(object, json.loads(tools))
            if tools:
                if not isinstance(tools, list):
                    raise EnvironmentFault(f"info[{name!r}] must be a list of tool definitions, not {tools!r}")
                return cast("list[JsonDict]", tools)
        return list(self.tool_defs)

    # Figures of a run

    cluster_key: str = ""
    """Key of the rows' `info`, or `task`, whose value is shared by rows that resemble each other, such as questions
    about one document; "" if rows are independent. The setting of this name takes precedence."""

    figures_of: ClassVar[str] = ""
    """Name of the state value, set by scoring, from which `figures` computes the figures of a run; "" for none."""

    def figures(self, values: Sequence[Any]) -> dict[str, float]:
        """Compute figures of a run that are no means over examples, such as a perplexity. They are part of its summary.

        Args:
            values: The state value `figures_of` of each rollout whose scoring set it, with a reward or without.
        """
        return {}

    # Changes by a run

    def add_rubric(self, rubric: Rubric) -> None:
        """Add `rubric` to the rubrics that score rollouts."""
        rubric.use_parser(self.parser)
        self.rubric = RubricGroup([self.rubric, rubric])

    def set_kwargs(self, **values: Any) -> None:
        """Change attributes of an environment: by its method `set_<name>` if it exists, else directly.

        Args:
            **values: New values by attribute name.

        Raises:
            ConfigError: an attribute is unknown or cannot be changed, or its new value is invalid.
        """
        for name, value in values.items():
            where = f"env.extra_env_kwargs.{name}"
            setter = None if name == "kwargs" else getattr(self, f"set_{name}", None)
            try:
                if callable(setter):
                    setter(value)
                else:
                    self._set(name, value, where)
            except (TypeError, ValueError, EnvironmentFault) as error:
                raise ConfigError(f"{where}: {error}") from error
            self.extra_env_kwargs[name] = value

    def _set(self, name: str, value: object, where: str) -> None:
        settable = self.settable()
        if name not in settable:
            raise ConfigError(unknown_name(f"{where} ({type(self).__name__})", name, settable))
        words = option_fault(name, value)
        old = getattr(self, name)
        kind = type(cast(object, old))
        fits = old is None or isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not words and (not fits or (isinstance(value, bool) and kind in (int, float))):
            words = f"must be {kind.__name__}, not {value!r}"
        if words:
            raise ConfigError(f"{where} {words}")
        setattr(self, name, value)

    def settable(self) -> set[str]:
        """Names that `set_kwargs` accepts: public attributes with a value, and those with a `set_<name>` method."""
        names = set(vars(self))
        for base in type(self).__mro__:
            for name, value in vars(base).items():
                if name.startswith("set_") and name != "set_kwargs":
                    names.add(name.removeprefix("set_"))
                elif value.fset is not None if isinstance(value, property) else not hasattr(value, "__get__"):
                    names.add(name)
        public = {name for name in names - _UNSETTABLE if not name.startswith("_")}
        return {name for name in public if not callable(getattr(self, name, None))}

    # Reference policies

    @property
    def has_reference(self) -> bool:
        """Whether the environment has a reference policy."""
        return type(self).reference_reply is not Environment.reference_reply

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return the next message of a perfect player.

        Args:
            example: The row.
            messages: The conversation so far.

        Raises:
            NotImplementedError: the environment has no reference policy.
        """
        raise NotImplementedError(f"{self.env_id or type(self).__name__} has no reference policy")

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return the next message of a player without any knowledge. Its score is the baseline for models.

        Args:
            example: The row.
            messages: The conversation so far.
        """
        return "I do not know."

    @property
    def has_reference_verdict(self) -> bool:
        """Whether the environment has a reference judge."""
        return type(self).reference_verdict is not Environment.reference_verdict

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """Return the reply of a perfect judge. `reference/judge` sends it, so that a rubric with a judge can be tested
        without a model.

        Args:
            example: The row of the judged rollout.
            messages: The messages to the judge; `harness.rubrics.judge.quoted_response` extracts the model's response.

        Raises:
            NotImplementedError: the environment has no reference judge.
        """
        raise NotImplementedError(f"{self.env_id or type(self).__name__} has no reference judge (reference_verdict)")
