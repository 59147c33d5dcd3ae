"""`EvalRunner` and `BenchRunner`, which evaluate an agent on dataset rows with eval functions. The module `engine` runs
the evaluation, and `summaries` computes the statistics."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from harness.agents.call_arguments import EvaluatedModel, Work
from harness.agents.clients import ClientFactory, display_name
from harness.agents.collect import collect, to_run
from harness.agents.engine import Ended, FinishedRollout, evaluate
from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.loading import LoadedAgent, missing_members
from harness.agents.loop import LLM, AgentLike
from harness.agents.results import BASELINE, PRIMARY, EvalResult, EvalRunResult, ModelOutcomes
from harness.agents.run import AgentOptions, Mode
from harness.agents.summaries import build_result
from harness.core.errors import EvalFnError, SystemicProviderError
from harness.settings.command_line import shared_options
from harness.store.journal_index import Recorded

logger = logging.getLogger(__name__)

OnProgress = Callable[[int, int, EvalRunResult], object]
"""Callback after every run, also a failed one: gets the number of finished runs, the total, and the result."""

_NOT_AWAITED = "on_progress must be a plain function, not an async one: its result is not awaited"

DEBUG_DIR = "./local_debug"
"""Default folder of traces, used with `debug=True`."""


class EvalRunner:
    """Runner that evaluates an agent on dataset rows. It can be used repeatedly and concurrently.

    Args:
        agent_loop: The agent, or the return value of `load_agent` or `load_mcp`.
        llm_client: The model: any object with `chat_completions`. One run uses it at a time.
        eval_fns: Eval functions that score each run.
        debug: Write a trace of each run.
        debug_dir: Folder of the traces, by default `./local_debug`. Passing it turns traces on.
        llm_client_factory: Function that creates a client for each concurrent run. These clients are closed at the end.
            It is not needed for an `ExternalLLMClient`, which any number of runs may share.
        baseline_llm_client: A second model to compare with; every run is repeated with it.
        baseline_llm_client_factory: Function that creates clients for the baseline.

    Raises:
        TypeError: an argument has the wrong type.
        EvalFnError: two eval functions share a name.
    """

    _mode: ClassVar[Mode] = "eval"

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        agent_loop: AgentLike | LoadedAgent,
        llm_client: LLM,
        eval_fns: Sequence[EvalFnWrapper],
        debug: bool = False,
        debug_dir: str | os.PathLike[str] | None = None,
        llm_client_factory: ClientFactory | None = None,
        baseline_llm_client: LLM | None = None,
        baseline_llm_client_factory: ClientFactory | None = None,
    ) -> None:
        self._loaded = loaded(agent_loop)
        self.agent_loop = self._loaded.agent
        self.llm_client = client_of("llm_client", llm_client)
        self.eval_fns = _functions(eval_fns)
        self.debug_dir = folder_of("debug_dir", debug_dir) or (DEBUG_DIR if debug else None)
        """Folder of the traces; None for no traces."""
        self.llm_client_factory = llm_client_factory
        self.baseline_llm_client = baseline_llm_client
        self.baseline_llm_client_factory = baseline_llm_client_factory
        if baseline_llm_client is not None:
            client_of("baseline_llm_client", baseline_llm_client)
        elif baseline_llm_client_factory is not None:
            raise TypeError("baseline_llm_client_factory requires baseline_llm_client; pass both")
        factories = {
            "llm_client_factory": llm_client_factory,
            "baseline_llm_client_factory": baseline_llm_client_factory,
        }
        for name, factory in factories.items():
            if factory is not None and not callable(cast(object, factory)):
                raise TypeError(f"{name} must be a function that creates a client, not {factory!r}")

    @property
    def has_baseline(self) -> bool:
        """Whether the runner compares its model with a baseline."""
        return self.baseline_llm_client is not None

    async def run_single(
        self,
        row: Mapping[str, Any],
        row_index: int,
        run_index: int,
        max_turns: int = 10,
        completion_params: Mapping[str, Any] | None = None,
        runner: EvalRunner | None = None,
        model_tag: str | None = None,
    ) -> EvalRunResult:
        """Run the agent once on a row, and score the run.

        Args:
            row: A row with the columns of `DatasetRow`.
            row_index: The row's number in the dataset, for the agent's request and for error messages.
            run_index: The run's index within its row, for the agent's request and the result.
            max_turns: Maximum number of model calls, passed to the agent in its request.
            completion_params: Default sampling arguments of every model call, also passed to the agent in its request.
            runner: Another runner, whose model is used instead of this one's.
            model_tag: The tag of the result. `baseline` selects the baseline's model.

        Raises:
            SystemicProviderError: the endpoint is unusable.
            DatasetValidationError: a column of the row is missing or invalid.
            ValueError: a number is out of range, or there is no baseline.
            TypeError: an argument has the wrong type.
        """
        if runner is not None and not isinstance(cast(object, runner), EvalRunner):
            raise TypeError(f"runner must be an EvalRunner, not {type(runner).__name__}")
        side = (runner or self)._side(model_tag)
        options = AgentOptions(row_index, max_turns, self._mode, first_run=run_index, debug_dir=self.debug_dir)
        work = Work(self._loaded, [row], options, self.eval_fns, completion_params=completion_params)
        [ended] = await evaluate(work, [side], self._read)
        _, run = only(ended)
        run.run_index = run_index
        return run

    async def run_eval(  # noqa: PLR0913 - as above
        self,
        rows: Iterable[Mapping[str, Any]],
        n_runs: int = 1,
        max_turns: int = 10,
        completion_params: Mapping[str, Any] | None = None,
        pass_threshold: float = 1.0,
        on_progress: OnProgress | None = None,
        start_index: int = 0,
        batch_size: int = 1,
        *,
        output_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        retry_failed: bool = False,
        private: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> EvalResult:
        """Run the agent on every row, and score the runs.

        Args:
            rows: Rows with the columns of `DatasetRow`.
            n_runs: Number of runs per row and model.
            max_turns: Maximum number of model calls, passed to the agent in its request.
            completion_params: Default sampling arguments of every model call, also passed to the agent in its request.
            pass_threshold: Minimum score of a run that passes.
            on_progress: Function that is called after every run. An exception from it is only logged.
            start_index: Number of the first row in the dataset, from 0.
            batch_size: Maximum number of concurrent runs of all models together.
            output_dir: Folder in which a run folder for each model is stored; by default nothing is stored.
            resume: Resume the newest run folder of the same evaluation in `output_dir`, if there is one.
            retry_failed: With `resume`, retry failed runs, and score unscored runs again.
            private: With `output_dir`, make the run folders readable by their owner only.
            settings: Limits by their TOML names, such as `{"message_limit": 20, "max_cost": 5}`.

        Returns:
            The result. If an endpoint becomes unusable, the result has the runs until then, with `stopped_early` set.

        Raises:
            DatasetValidationError: a row is invalid; no request was sent.
            ResumeRefused: the stored evaluation has other settings, rows or code.
            ConfigError: a setting is unknown or invalid.
            ValueError: a number is out of range.
        """
        work = Work(
            self._loaded, listed(rows), AgentOptions(start_index, max_turns, self._mode, debug_dir=self.debug_dir),
            self.eval_fns, n_runs, completion_params, pass_threshold, batch_size, folder_of("output_dir", output_dir),
            resume, retry_failed, private, shared_options(settings, "settings"),
        )  # fmt: skip
        return await self._evaluate(work, on_progress)

    async def _evaluate(self, work: Work, on_progress: OnProgress | None) -> EvalResult:
        sides = [self._side(PRIMARY), self._side(BASELINE)] if self.has_baseline else [self._side(None)]
        listener = None
        if on_progress is not None:
            listener = reporter(on_progress, work.rollouts * len(sides), self._run_of)
        ended = await evaluate(work, sides, self._read, listener)
        models = [
            ModelOutcomes(display_name(each.side.client), each.side.tag, each.results, each.wall_ms, each.resumed)
            for each in ended
        ]
        return build_result(
            models,
            self._names,
            n_runs=work.n_runs,
            pass_threshold=work.pass_threshold,
            wall_ms=max(each.wall_ms for each in ended),
            stop_reason=stop_reason(ended),
        )

    def _side(self, tag: str | None) -> EvaluatedModel:
        if tag != BASELINE:
            return EvaluatedModel(self.llm_client, tag, self.llm_client_factory)
        if self.baseline_llm_client is None:
            raise ValueError("model_tag='baseline' requires a runner with baseline_llm_client")
        return EvaluatedModel(self.baseline_llm_client, tag, self.baseline_llm_client_factory)

    def _read(self, side: EvaluatedModel, recorded: Recorded) -> list[tuple[int, EvalRunResult]]:
        runs = collect(recorded, self._names, side.tag)
        for row, run in runs:
            run.row_index = row
        return runs

    def _run_of(self, outcome: FinishedRollout) -> EvalRunResult:
        run = to_run(outcome.record, outcome.scored, self._names, outcome.side.tag)
        run.row_index = outcome.row_index
        return run

    @property
    def _names(self) -> list[str]:
        return [function.name for function in self.eval_fns]


class BenchRunner(EvalRunner):
    """Older interface of `EvalRunner`, for one model. Request ids begin with `bench` instead of `eval`.

    Args:
        agent_loop: The agent. All arguments are as in `EvalRunner`.
        llm_client: The model.
        eval_fns: Eval functions that score each run.
        debug: Write a trace of each run.
        debug_dir: Folder of the traces.
        llm_client_factory: Function that creates the clients of concurrent runs.
    """

    _mode: ClassVar[Mode] = "bench"

    def __init__(
        self,
        agent_loop: AgentLike | LoadedAgent,
        llm_client: LLM,
        eval_fns: Sequence[EvalFnWrapper],
        debug: bool = False,
        debug_dir: str | os.PathLike[str] | None = None,
        llm_client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(agent_loop, llm_client, eval_fns, debug, debug_dir, llm_client_factory)

    run_bench = EvalRunner.run_eval
    """Older name of `run_eval`."""


def loaded(agent: object) -> LoadedAgent:
    """Convert the caller's agent to a `LoadedAgent`.

    Raises:
        TypeError: the value is not an agent.
    """
    if isinstance(agent, LoadedAgent):
        return agent
    if isinstance(agent, type):
        raise TypeError(f"agent_loop must be an agent, not its class; pass {agent.__name__}()")
    if missing := missing_members(agent):
        raise TypeError(f"agent_loop must be an agent; {type(agent).__name__} lacks {' and '.join(missing)}")
    known = cast(AgentLike, agent)
    if not isinstance(cast(object, getattr(agent, "name", None)), str):
        raise TypeError(f"agent_loop: {type(agent).__name__} has no name; set the agent's attribute 'name'")
    return LoadedAgent(known, known.name, ())


def _functions(eval_fns: Sequence[EvalFnWrapper]) -> tuple[EvalFnWrapper, ...]:
    for number, function in enumerate(eval_fns):
        if not isinstance(cast(object, function), EvalFnWrapper):
            kind = type(function).__name__
            raise TypeError(
                f'eval_fns[{number}] must be an EvalFnWrapper, not {kind}: use load_eval_fns(["module:function"]) for a'
                " path, or EvalFnWrapper(fn, name) for a function"
            )
    twice = [name for name, count in Counter(function.name for function in eval_fns).items() if count > 1]
    if twice:
        raise EvalFnError(
            f"Duplicate eval function name: {twice[0]!r}; the names identify scores in results, so rename one"
        )
    return tuple(eval_fns)


def client_of(name: str, client: LLM) -> LLM:
    """Check that the caller's model client has a method `chat_completions`, and return the client.

    Raises:
        TypeError: the value is not a model client.
    """
    if isinstance(client, type) or not callable(getattr(client, "chat_completions", None)):
        raise TypeError(f"{name} must be a client with chat_completions, such as ExternalLLMClient, not {client!r}")
    return client


def listed(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Convert the caller's rows to a list.

    Raises:
        TypeError: the value is not an iterable of rows.
    """
    if isinstance(rows, str | bytes | Mapping) or not hasattr(rows, "__iter__"):
        given = cast(object, rows)
        hint = "; pass the result of its read()" if hasattr(given, "read") else ""
        raise TypeError(f"rows must be a list of rows, not {type(given).__name__}{hint}")
    if hasattr(rows, "iterrows"):  # iterating over a table yields column names
        raise TypeError(f'rows must be a list of rows, not {type(rows).__name__}; pass its to_dict("records")')
    return list(rows)


def folder_of(name: str, given: object) -> str | None:
    """Convert the caller's folder to a string.

    Raises:
        TypeError: the value is neither a string nor a path.
    """
    if given is None:
        return None
    found: object = os.fspath(cast("os.PathLike[str]", given)) if isinstance(given, str | os.PathLike) else None
    if not isinstance(found, str):
        raise TypeError(f"{name} must be a path, not {type(cast(object, given)).__name__}")
    return found


def only(ended: Ended[Any]) -> Any:
    """Return the only result of an evaluation with one rollout.

    Raises:
        SystemicProviderError: the endpoint is unusable, so there is no result.
    """
    if not ended.results:
        raise SystemicProviderError(
            ended.stop_reason or "the run was stopped before it had a result", ended.wall_ms, ended.tokens
        )
    [result] = ended.results
    return result


def stop_reason(ended: Sequence[Ended[Any]]) -> str | None:
    """Return the reasons why the models' runs were stopped early, as one string; None if no run was stopped."""
    reasons = [(each.side.tag, each.stop_reason) for each in ended if each.stop_reason is not None]
    if not reasons:
        return None
    return "; ".join(f"{tag}: {reason}" if tag else reason for tag, reason in reasons)


def reporter(
    on_progress: Callable[[int, int, Any], object], total: int, convert: Callable[[FinishedRollout], object]
) -> Any:
    """Return a listener that calls a caller's callback for each finished rollout. Exceptions of the callback are
    logged.

    Args:
        on_progress: The caller's callback.
        total: Number of rollouts.
        convert: Function that converts a finished rollout to the result that is passed to the callback.

    Raises:
        TypeError: the callback is not a function, or is async and would not be awaited.
    """
    if not callable(cast(object, on_progress)):
        raise TypeError(f"on_progress must be a function, not {type(on_progress).__name__}")
    if inspect.iscoroutinefunction(on_progress):
        raise TypeError(_NOT_AWAITED)

    def listen(outcome: FinishedRollout) -> None:
        try:
            returned = on_progress(outcome.done, total, convert(outcome))
            if inspect.iscoroutine(returned):
                cast("Coroutine[object, object, object]", returned).close()
                raise TypeError(_NOT_AWAITED)
        except (Exception, asyncio.CancelledError):
            logger.exception("on_progress raised an exception; the evaluation continues")

    return listen
