"""`EvalRunner`: an agent over rows, scored by eval functions, with one model or against a baseline. Owns the documented
arguments and what is checked of them; the work is the engine's (`engine`), the numbers are made in `summaries`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from harness.agents.clients import ClientFactory, display_name
from harness.agents.collect import collect, to_run
from harness.agents.engine import Ended, FinishedRollout, evaluate
from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.loading import LoadedAgent
from harness.agents.loop import LLM, AgentLike
from harness.agents.options import Mode
from harness.agents.results import BASELINE, PRIMARY, EvalResult, EvalRunResult, ModelOutcomes
from harness.agents.summaries import build_result
from harness.agents.work import EvaluatedModel, Work
from harness.core.errors import EvalFnError, SystemicProviderError
from harness.store.recorded import Recorded

logger = logging.getLogger(__name__)

OnProgress = Callable[[int, int, EvalRunResult], object]
"""`(current, total, result)`: called after every run, in the order in which they end, failed ones included."""

_NOT_AWAITED = "on_progress must be a plain function: it is called, not awaited"

DEBUG_DIR = "./local_debug"
"""Where traces go if `debug` is on and no folder is named."""


class EvalRunner:
    """Evaluates an agent. Holds no connection and no event loop: one runner may be used again, and several at once.

    Args:
        agent_loop: The agent, or what `load_agent` and `load_mcp` return.
        llm_client: The model. Any object with `chat_completions` will do; it is used by one run at a time.
        eval_fns: Score each run.
        debug: Write a trace of each run.
        debug_dir: Where to; `./local_debug` by default. Naming it turns traces on.
        llm_client_factory: Makes the clients of concurrent runs, at most one for each that is under way; they are
            closed in the end. Not needed for an `ExternalLLMClient`, which any number of runs may share.
        baseline_llm_client: A second model, which does everything that the first one does.
        baseline_llm_client_factory: The same for the baseline.

    Raises:
        TypeError: one of these is not what it must be.
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
        """Where traces go; None for nowhere."""
        self.llm_client_factory = llm_client_factory
        self.baseline_llm_client = baseline_llm_client
        self.baseline_llm_client_factory = baseline_llm_client_factory
        if baseline_llm_client is not None:
            client_of("baseline_llm_client", baseline_llm_client)
        elif baseline_llm_client_factory is not None:
            raise TypeError("baseline_llm_client_factory makes clients like baseline_llm_client: give that, too")
        factories = {
            "llm_client_factory": llm_client_factory,
            "baseline_llm_client_factory": baseline_llm_client_factory,
        }
        for name, factory in factories.items():
            if factory is not None and not callable(cast(object, factory)):
                raise TypeError(f"{name} must be a function that makes a client, not {factory!r}")

    @property
    def has_baseline(self) -> bool:
        """Whether every run is made by a second model, too."""
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
        """Run the agent once on a row and score it.

        Args:
            row: With the columns of `DatasetRow`.
            row_index: Its number in the dataset; the agent and error messages are told.
            run_index: Which run of the row this is; the agent is told, and the result says it.
            max_turns: Told to the agent.
            completion_params: Sampling arguments: of every call that does not say otherwise, and in the request.
            runner: Another runner, whose model is asked instead of this one's.
            model_tag: `baseline` asks the baseline; what it is goes into the result.

        Raises:
            SystemicProviderError: the endpoint is unusable.
            DatasetValidationError: the row lacks something.
            ValueError: a number is out of range, or there is no baseline.
            TypeError: an argument is of the wrong kind.
        """
        if runner is not None and not isinstance(cast(object, runner), EvalRunner):
            raise TypeError(f"runner must be an EvalRunner, not {type(runner).__name__}")
        side = (runner or self)._side(model_tag)
        work = Work(
            self._loaded,
            [row],
            self.eval_fns,
            self._mode,
            max_turns=max_turns,
            completion_params=completion_params,
            first_row=row_index,
            first_run=run_index,
            debug_dir=self.debug_dir,
        )
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
    ) -> EvalResult:
        """Run the agent on every row and score it.

        Args:
            rows: Each with the columns of `DatasetRow`.
            n_runs: Runs of each row, by each model.
            max_turns: Told to the agent.
            completion_params: Sampling arguments: of every call that does not say otherwise, and in the request.
            pass_threshold: A score of at least this passes.
            on_progress: Told of every run that has ended. What it raises is logged and costs nothing.
            start_index: Number of the first row in the dataset.
            batch_size: Runs that are under way at once, of both models together; the next one starts when one ends.
            output_dir: Keep a run folder for each model below this one; by default nothing is kept.
            resume: Go on with the newest run folder of the same evaluation there, if there is one.
            retry_failed: With `resume`, make failed runs again, and score again what has no score.
            private: With `output_dir`: let nobody else on this machine read what is kept.

        Returns:
            The result. If an endpoint proves unusable, what was done until then, with `stopped_early` set.

        Raises:
            DatasetValidationError: a row lacks something; nothing has been asked.
            ResumeRefused: the recorded evaluation is another one.
            ValueError: a number is out of range.
        """
        work = Work(
            self._loaded, listed(rows), self.eval_fns, self._mode, n_runs, max_turns, completion_params, pass_threshold,
            batch_size, start_index, debug_dir=self.debug_dir, output_dir=folder_of("output_dir", output_dir),
            resume=resume, retry_failed=retry_failed, private=private,
        )  # fmt: skip
        return await self._evaluate(work, on_progress)

    async def _evaluate(self, work: Work, on_progress: OnProgress | None) -> EvalResult:
        sides = self._sides()
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

    def _sides(self) -> list[EvaluatedModel]:
        return [self._side(PRIMARY), self._side(BASELINE)] if self.has_baseline else [self._side(None)]

    def _side(self, tag: str | None) -> EvaluatedModel:
        if tag != BASELINE:
            return EvaluatedModel(self.llm_client, tag, self.llm_client_factory)
        if self.baseline_llm_client is None:
            raise ValueError("model_tag='baseline': the runner has no baseline_llm_client")
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


def loaded(agent: object) -> LoadedAgent:
    """The agent that a caller gives, in one shape.

    Raises:
        TypeError: it is none.
    """
    if isinstance(agent, LoadedAgent):
        return agent
    if isinstance(agent, type):
        raise TypeError(f"agent_loop must be an agent, not its class: {agent.__name__}()")
    missing = [name for name in ("get_tools", "run") if not callable(getattr(agent, name, None))]
    if missing:
        raise TypeError(f"agent_loop must be an agent; {type(agent).__name__} lacks {' and '.join(missing)}")
    known = cast(AgentLike, agent)
    if not isinstance(cast(object, getattr(agent, "name", None)), str):
        raise TypeError(f"agent_loop: {type(agent).__name__} has no name")
    return LoadedAgent(known, known.name, ())


def _functions(eval_fns: Sequence[EvalFnWrapper]) -> tuple[EvalFnWrapper, ...]:
    for number, function in enumerate(eval_fns):
        if not isinstance(cast(object, function), EvalFnWrapper):
            kind = type(function).__name__
            raise TypeError(
                f'eval_fns[{number}] must be an EvalFnWrapper, not {kind}: load_eval_fns(["module:function"]) makes '
                "them by path, EvalFnWrapper(fn, name) out of a function"
            )
    twice = [name for name, count in Counter(function.name for function in eval_fns).items() if count > 1]
    if twice:
        raise EvalFnError(
            f"Duplicate eval function name: {twice[0]!r}; results have one column a function, so rename one"
        )
    return tuple(eval_fns)


def client_of(name: str, client: LLM) -> LLM:
    """The client that a caller gives.

    Raises:
        TypeError: it is none.
    """
    if isinstance(client, type) or not callable(getattr(client, "chat_completions", None)):
        raise TypeError(f"{name} must be an ExternalLLMClient or have its chat_completions, not {client!r}")
    return client


def listed(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows, counted.

    Raises:
        TypeError: it is no list of rows.
    """
    if isinstance(rows, str | bytes | Mapping) or not hasattr(rows, "__iter__"):
        given = cast(object, rows)
        hint = "; its read() gives them" if hasattr(given, "read") else ""
        raise TypeError(f"rows must be a list of rows, not {type(given).__name__}{hint}")
    if hasattr(rows, "iterrows"):  # iterates over the names of its columns
        raise TypeError(f'rows must be a list of rows, not {type(rows).__name__}; its to_dict("records") gives them')
    return list(rows)


def folder_of(name: str, given: object) -> str | None:
    """A folder that a caller names, as text or as a path.

    Raises:
        TypeError: it is neither.
    """
    if given is None:
        return None
    found: object = os.fspath(cast("os.PathLike[str]", given)) if isinstance(given, str | os.PathLike) else None
    if not isinstance(found, str):
        raise TypeError(f"{name} must be a path, not {type(cast(object, given)).__name__}")
    return found


def only(ended: Ended[Any]) -> Any:
    """The only result of an evaluation of one rollout.

    Raises:
        SystemicProviderError: there is none, because the endpoint is unusable.
    """
    if not ended.results:
        raise SystemicProviderError(ended.stop_reason or "the run was stopped", ended.wall_ms, ended.tokens)
    [result] = ended.results
    return result


def stop_reason(ended: Sequence[Ended[Any]]) -> str | None:
    """Why an evaluation ended before its last rollout; None if it did not."""
    reasons = [(each.side.tag, each.stop_reason) for each in ended if each.stop_reason is not None]
    if not reasons:
        return None
    return "; ".join(f"{tag}: {reason}" if tag else reason for tag, reason in reasons)


def reporter(tell: Callable[[int, int, Any], object], total: int, made: Callable[[FinishedRollout], object]) -> Any:
    """A listener that tells a caller's callback of each outcome, and keeps what that raises to itself.

    Args:
        tell: The caller's.
        total: Rollouts in all.
        made: What the caller calls a result.

    Raises:
        TypeError: it is no function, or async, so that calling it would do nothing.
    """
    if not callable(cast(object, tell)):
        raise TypeError(f"on_progress must be a function, not {type(tell).__name__}")
    if inspect.iscoroutinefunction(tell):
        raise TypeError(_NOT_AWAITED)

    def listen(outcome: FinishedRollout) -> None:
        try:
            told = tell(outcome.done, total, made(outcome))
            if inspect.iscoroutine(told):
                cast("Coroutine[object, object, object]", told).close()
                raise TypeError(_NOT_AWAITED)
        except (Exception, asyncio.CancelledError):
            logger.exception("on_progress raised; the evaluation goes on")

    return listen
