"""`BenchRunner`: the older interface of `EvalRunner`, for one model. The results have the types of `results` under
their documented older names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from harness.agents.clients import ClientFactory
from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.loading import LoadedAgent
from harness.agents.loop import LLM, AgentLike
from harness.agents.options import Mode
from harness.agents.results import BenchEvalSummary, BenchResult, BenchRowResult, BenchRunResult
from harness.agents.runner import EvalRunner

__all__ = ["BenchEvalSummary", "BenchResult", "BenchRowResult", "BenchRunResult", "BenchRunner"]


class BenchRunner(EvalRunner):
    """Runner that evaluates an agent with one model. Request ids begin with `bench` instead of `eval`.

    Args:
        agent_loop: The agent. All arguments are as in `EvalRunner`.
        llm_client: The model.
        eval_fns: Eval functions that score each run.
        debug: Write a trace of each run.
        debug_dir: Folder of the traces.
        llm_client_factory: Function that makes the clients of concurrent runs.
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
