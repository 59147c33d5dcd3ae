"""Options of the environment `agent-eval`, and execution of one agent run. The module `outcome` converts the run's
result or exception to a rollout's outcome."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from harness.agents.llm import AgentLLM, Ask, Step
from harness.agents.loop import AgentLike, RolloutContext
from harness.agents.outcome import conversation_so_far, finish, keep, note, result_of
from harness.agents.schemas import RolloutRequest
from harness.agents.trace import Trace
from harness.agents.validation import validate_tools
from harness.core.state import State
from harness.core.types import JsonDict
from harness.usercode.separate_task import OwnTask

Mode: TypeAlias = Literal["eval", "bench", "test"]

MODES: tuple[Mode, ...] = ("eval", "bench", "test")


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of an agent evaluation besides rows, agent and eval functions; see `environment.AgentEnv`."""

    first_row: int = 0
    """Number of the first evaluated row in the dataset, from 0."""
    max_turns: int = 10
    """Maximum number of model calls, passed to the agent in its request."""
    mode: Mode = "eval"
    """Kind of evaluation, passed to the agent in its request."""
    model_tag: str | None = None
    """`baseline` for the second model of a comparison, `primary` for the first; None without a second model."""
    first_run: int = 0
    """Index of the first run of each row, from 0."""
    debug_dir: str | None = None
    """Folder of the trace files; None for no traces."""
    files: tuple[Path, ...] = ()
    """Source files of the agent and of the eval functions."""
    dataset: str = ""
    """Name of the dataset, for error messages about a row."""
    fingerprint: JsonDict = field(default_factory=dict[str, Any])
    """Hashes of the dataset and of the source files, which a resume compares."""
    step: Step | None = None
    """Callback of an interactive session; see `llm.Step`."""


class AgentRun:
    """One run of an agent for a rollout.

    Args:
        agent: The agent, which other runs may use at the same time.
        state: The state of the rollout.
        ask: Function that sends a request to the rollout's model.
        options: Options of the evaluation.
    """

    def __init__(self, agent: AgentLike, state: State, ask: Ask, options: AgentOptions) -> None:
        self._agent = agent
        self._state = state
        self._ask = ask
        self._options = options
        self._trace = Trace(None, "")
        self.llm: AgentLLM | None = None
        """The run's model; None before the agent starts."""

    async def play(self, request: RolloutRequest) -> None:
        """Run the agent, and store its result in the rollout's state.

        Raises:
            BaseException: the exception that the agent raised. The conversation until then is in the state.
        """
        started = time.monotonic()
        self._trace = Trace(self._options.debug_dir, request.rollout_id)
        if self._options.debug_dir is not None:
            begun = request.model_dump(include={"messages", "completion_params", "max_turns", "metadata"})
            self._trace.write("rollout_started", {"model": self._state["model"], **begun})
        offered = cast(object, self._agent.get_tools(request))
        tools = cast("Sequence[Any]", [] if offered is None else offered)
        self._state["tools"] = validate_tools(tools)
        own = OwnTask[object](f"the run() of agent {self._agent.name!r}", on_end=self._mark_ended)
        self.llm = llm = AgentLLM(
            self._ask,
            model=self._state["model"],
            tools=self._state["tools"],
            rollout_id=request.rollout_id,
            trace=self._trace,
            step=self._options.step,
            stop=own.stop,
        )
        context = RolloutContext(
            request, tools, llm, self._state.machine, _start_time=started, _debug_dir=self._options.debug_dir,
            _trace=self._trace,
        )  # fmt: skip
        try:
            returned = await own.run(self._result(context))
            if llm.fatal is not None:
                raise llm.fatal
            result = result_of(returned)
        except BaseException:
            keep(self._state, conversation_so_far(self._state, llm))
            note(self._state, context, llm)
            raise
        finally:
            self._mark_ended()
        finish(self._state, result, context, llm)

    def _mark_ended(self) -> None:
        """Mark the agent's run as ended, so that later model calls are refused."""
        if self.llm is not None:
            self.llm.is_over = True

    async def _result(self, context: RolloutContext) -> object:
        """Call the agent's `run`, which may be sync or async, and return its value."""
        returned: object = self._agent.run(context)
        return cast(object, await returned) if inspect.isawaitable(returned) else returned

    def end(self, event: str, data: Mapping[str, object]) -> None:
        """Record the end of the agent's run and close its trace, if one is written."""
        if self._options.debug_dir is None:
            return
        metrics = {} if self.llm is None else self.llm.get_metrics().model_dump(exclude_defaults=True)
        self._trace.write(event, {**data, "messages": len(self._state.transcript), **metrics})
        self._trace.close()
