"""The environment `agent-eval`: an agent, the rows of a dataset, and eval functions that score each rollout. Converts
rows to examples and to the agent's requests. The modules `run` and `outcome` execute the rollouts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from harness.agents.dataset import DatasetReader, checked, row_of
from harness.agents.dataset_files import FileRows, open_rows
from harness.agents.eval_functions import EvalFnWrapper, load_with_files
from harness.agents.loading import load_agent
from harness.agents.loop import AgentLike
from harness.agents.mcp_folder import load_mcp
from harness.agents.outcome import failure_of
from harness.agents.results import PRIMARY
from harness.agents.run import MODES, AgentOptions, AgentRun, Mode
from harness.agents.schemas import RolloutRequest
from harness.agents.scoring import EvalRubric
from harness.core.errors import ConfigError, DatasetParseError, DatasetValidationError
from harness.core.keys import hash_files
from harness.core.records import Example, Row
from harness.core.state import State, own
from harness.core.types import JsonDict, Message, Messages
from harness.envs.environment import Environment

SERVER_URL = "http://local-rollout.local"
"""Placeholder in requests for the address of a training server, which an evaluation does not have."""

_MANY_FILES = 20
"""With more source files than this, the fingerprint has a single hash of all files instead of one hash per file."""


class AgentEnv(Environment):
    """Environment that evaluates one agent.

    Args:
        rows: Rows with the columns of `DatasetRow`. A row is validated when it is read.
        agent: The agent. All rollouts share it.
        eval_fns: Eval functions that score each run. Without them, the agent must report a reward.
        options: Options of the evaluation.

    Raises:
        EnvironmentFault: two eval functions share a name, or one has the name of a result column.
    """

    neutral_args: ClassVar[frozenset[str]] = frozenset({"debug_dir", "has_baseline"})

    def __init__(
        self,
        rows: Sequence[object],
        agent: AgentLike,
        eval_fns: Sequence[EvalFnWrapper] = (),
        *,
        options: AgentOptions | None = None,
    ) -> None:
        self._rows = rows
        self.agent = agent
        self.options = options or AgentOptions()
        self.eval_fns = tuple(eval_fns)
        super().__init__(dataset=self._table_rows, rubric=EvalRubric(self.eval_fns))
        self.set_max_turns(self.options.max_turns)
        self.source_files = self.options.files

    @property
    def fingerprint(self) -> JsonDict:
        """Hashes of the dataset and the code, used to recognize changes on resume."""
        return self.options.fingerprint

    def set_max_turns(self, max_turns: int) -> None:
        """Set the maximum number of model calls, which the agent gets in its request.

        Raises:
            ConfigError: `max_turns` is less than 1.
        """
        self.max_turns = _at_least(1, "max_turns", max_turns)

    def settable(self) -> set[str]:
        """Return the names of the settings that have an effect in this environment. Settings for prompts and tools have
        none, since the prompts are in the rows and the tools are the agent's."""
        return {"max_turns", "sampling_args"}

    # Rows

    @property
    def row_count(self) -> int:
        """Number of rows to evaluate."""
        return len(self._rows)

    def row(self, index: int) -> Row:
        """Return one row of the dataset: its prompts as messages, the ground truth as the answer, all other columns in
        `info`.

        Raises:
            IndexError: there is no row with this index.
            DatasetParseError: the row cannot be parsed.
            DatasetValidationError: a required column is missing or invalid. The message names the row and the column.
        """
        if not 0 <= index < len(self._rows):
            raise IndexError(f"row {index} does not exist; the dataset has {len(self._rows)} rows, numbered from 0")
        number = self.options.first_row + index
        try:
            row = cast("Mapping[str, Any]", checked(self._rows[index], number))
        except (DatasetParseError, DatasetValidationError) as error:
            if not self.options.dataset:
                raise
            raise type(error)(f"{error} (in {self.options.dataset})") from error
        return row_of(row, number)

    def _table_rows(self) -> list[JsonDict]:
        """Return all rows as one table, for readers of the dataset."""
        rows = (self.row(index) for index in range(self.row_count))
        return [{"example_id": r.example_id, "prompt": r.prompt, "answer": r.answer, "info": r.info} for r in rows]

    def _tools(self, state: State) -> list[JsonDict]:
        """Return no tools, since the agent offers its own. A dataset column named `tool_defs` is ordinary data here."""
        return []

    # A rollout

    def request_of(self, state: State) -> RolloutRequest:
        """Build the request that the agent gets for one rollout.

        Raises:
            pydantic.ValidationError: the row's additional columns exceed 1 MiB, the limit of a request.
        """
        options = self.options
        tag = options.model_tag
        row, run = state["example_id"], options.first_run + state["rollout_index"]
        name = f"{options.mode}-{row}"
        if options.mode != "test" or run:
            name += f"-run-{run}"
        metadata: JsonDict = {"ground_truth": state["answer"], "row_index": row, **own(state["info"])}
        metadata |= {"execution_mode": options.mode, "run_index": run}
        metadata |= {"test_mode": True} if options.mode == "test" else {}
        metadata |= {"model_tag": tag} if tag not in (None, PRIMARY) else {}  # as documented
        return RolloutRequest(
            rollout_id=name if tag is None else f"{name}-{tag}",
            server_url=SERVER_URL,
            messages=state["prompt"],  # copied by pydantic
            completion_params=own(state["sampling_args"]),
            max_turns=self.max_turns,
            max_tokens_total=4096,
            metadata=metadata,
        )

    async def play(self, state: State) -> None:
        """Run the agent for one rollout.

        Raises:
            AgentFailed: the agent raised an exception, reported an error, or did not return a valid result.
            ModelError: the agent did not handle the error of a model call, or the endpoint is unusable.
        """
        state.transcript, state.start = list(state["prompt"]), len(state["prompt"])
        run = AgentRun(self.agent, state, partial(self.get_model_response, state), self.options)
        try:
            await run.play(self.request_of(state))
        except BaseException as error:
            failure = failure_of(error, run.llm)
            run.end("rollout_failed", {"error": f"{type(failure).__name__}: {failure}"})
            try:
                if failure is error:
                    raise
                raise failure
            finally:
                del failure  # its traceback refers to this frame: break the cycle, to free the rollout's state
        run.end("rollout_completed", {"finish_reason": state["stop_condition"]})

    # Reference policies

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return the ground truth, which is the correct reply for agents that answer in plain text."""
        return example.answer


def load_environment(  # noqa: PLR0913 - its parameters are the keys of an evaluation's table
    dataset: str,
    agent: str | None = None,
    mcp: str | None = None,
    eval_fns: Sequence[str] | str = (),
    max_turns: int = 10,
    offset: int = 0,
    mode: Mode = "eval",
    model_tag: str | None = None,
    debug_dir: str | None = None,
    has_baseline: bool = False,
) -> AgentEnv:
    """Build the environment of an agent evaluation from files.

    Args:
        dataset: A .json, .jsonl, .parquet or .csv file of rows.
        agent: The agent as `module:attribute`. Pass either `agent` or `mcp`.
        mcp: A folder of MCP tools. A built-in agent offers them to the model.
        eval_fns: Eval functions, each as `module:function`.
        max_turns: Maximum number of model calls, passed to the agent in its request.
        offset: Number of rows to skip at the beginning.
        mode: Kind of evaluation, for request ids: `eval`, `bench` or `test`.
        model_tag: `baseline` for the second model of a comparison.
        debug_dir: Folder for one trace file per rollout.
        has_baseline: Whether this is the first model of a comparison, whose request ids end in `-primary`.

    Raises:
        ConfigError: an argument is invalid.
        AgentLoadError: the agent or the folder of tools cannot be loaded.
        DatasetParseError: the dataset file does not exist, or is not in the format that its extension names.
        DatasetValidationError: the dataset has no rows.
        EvalFnError: an eval function cannot be loaded.
    """
    if (agent is None) == (mcp is None):
        if agent is not None:
            raise ConfigError("agent and mcp are mutually exclusive; remove one")
        raise ConfigError("agent and mcp are both missing; pass one of them")
    if mode not in MODES:
        raise ConfigError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    first = _at_least(0, "offset", offset)
    loaded = load_agent(agent) if agent is not None else load_mcp(cast(str, mcp))
    rows = _rows_of(dataset, first)
    functions, sources = load_with_files([eval_fns] if isinstance(eval_fns, str) else eval_fns)
    hashes = {"agent_source": source_hashes(loaded.files), "eval_fns_source": source_hashes(sources)}
    files = tuple(dict.fromkeys((*loaded.files, *sources)))
    options = AgentOptions(
        first_row=offset, max_turns=max_turns, mode=mode, model_tag=model_tag or (PRIMARY if has_baseline else None),
        debug_dir=debug_dir, files=files, dataset=dataset, fingerprint={"dataset_content": rows.sha256, **hashes},
    )  # fmt: skip
    return AgentEnv(rows, loaded.agent, functions, options=options)


def source_hashes(files: Sequence[Path]) -> JsonDict | str:
    """Return a hash of each source file, by file name, so that an error can name the changed file.

    For more than 20 files, return a single hash of all files.

    Args:
        files: Existing files.
    """
    if len(files) > _MANY_FILES:
        return hash_files(files)
    paths = [file.resolve() for file in files]
    root = os.path.commonpath([path.parent for path in paths]) if paths else ""
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)}


def _rows_of(dataset: str, offset: int) -> FileRows:
    try:
        path = DatasetReader(dataset).file_path
    except FileNotFoundError as error:
        raise DatasetParseError(str(error)) from error
    rows = open_rows(path, offset)
    if not rows:
        why = f"the first {offset} rows are skipped" if offset else "the file is empty"
        raise DatasetValidationError(f"No rows to evaluate in {dataset}: {why}")
    return rows


def _at_least(least: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be an integer of at least {least}, not {value!r}")
    return value
