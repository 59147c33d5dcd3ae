"""The environment `agent-eval`: rows, an agent that plays them, and eval functions that score it. Converts rows to
examples and requests; `run` plays a rollout, `outcome` classifies its end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from harness.agents.dataset import REQUIRED, DatasetReader, checked
from harness.agents.dataset_files import FileRows, open_rows
from harness.agents.eval_functions import EvalFnWrapper, load_with_files
from harness.agents.loading import load_agent
from harness.agents.loop import AgentLike
from harness.agents.mcp_folder import load_mcp
from harness.agents.options import MODES, AgentOptions, Mode
from harness.agents.outcome import failure_of
from harness.agents.run import AgentRun
from harness.agents.schemas import RolloutRequest
from harness.agents.scoring import EvalRubric
from harness.core.errors import ConfigError, DatasetParseError, DatasetValidationError
from harness.core.keys import hash_files
from harness.core.records import Example, Row
from harness.core.state import State, own
from harness.core.types import JsonDict, Message, Messages
from harness.envs.environment import Environment

SERVER_URL = "http://local-rollout.local"
"""Placeholder for a training server's address in a request; an evaluation has no such server."""

MAX_TOKENS_TOTAL = 4096

PRIMARY = "primary"
"""The tag of the evaluated model when there is a baseline. Its run identities do not contain the tag, so that adding a
baseline does not invalidate an earlier run."""

_MANY_FILES = 20
"""Number of source files above which the fingerprint has one hash of all files instead of one per file."""


class LazyRows(Protocol):
    """A list of rows, or a sequence that makes each row on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


class AgentEnv(Environment):
    """An evaluation of one agent.

    Args:
        rows: Each with the columns of `DatasetRow`; validated when read.
        agent: Plays them. All rollouts share it.
        eval_fns: Score each run; without any, the reward is the one that the agent reports.
        options: Options of the evaluation.

    Raises:
        EnvironmentFault: two eval functions share a name, or one has the name of a result column.
    """

    neutral_args: ClassVar[frozenset[str]] = frozenset({"debug_dir"})

    def __init__(
        self,
        rows: LazyRows,
        agent: AgentLike,
        eval_fns: Sequence[EvalFnWrapper] = (),
        *,
        options: AgentOptions | None = None,
    ) -> None:
        self._rows = rows
        self._agent = agent
        self._options = options or AgentOptions()
        self.eval_fns = tuple(eval_fns)
        super().__init__(dataset=self._table_rows, rubric=EvalRubric(self.eval_fns))
        self.set_max_turns(self._options.max_turns)
        self.source_files = self._options.files

    @property
    def agent(self) -> AgentLike:
        """The evaluated agent."""
        return self._agent

    @property
    def options(self) -> AgentOptions:
        """The options of the evaluation."""
        return self._options

    @property
    def fingerprint(self) -> JsonDict:
        """Hashes of the dataset and the code."""
        return self._options.fingerprint

    def set_max_turns(self, max_turns: int) -> None:
        """Change the maximum number of model calls, which the agent sees in its request.

        Raises:
            ConfigError: `max_turns` is less than 1.
        """
        self.max_turns = _at_least(1, "max_turns", max_turns)

    def settable(self) -> set[str]:
        """The settings that have an effect here: prompts are in the rows, and tools belong to the agent."""
        return {"max_turns", "sampling_args"}

    # Rows

    @property
    def row_count(self) -> int:
        """The number of rows to evaluate on."""
        return len(self._rows)

    def row(self, index: int) -> Row:
        """One row: its prompts as messages, the ground truth as the answer, every other column in `info`.

        Raises:
            IndexError: there is no such row.
            DatasetParseError: the row cannot be parsed.
            DatasetValidationError: a required column is missing or invalid; names the row and the column.
        """
        if not 0 <= index < len(self._rows):
            raise IndexError(f"there are {len(self._rows)} rows, so no row {index}")
        number = self._options.first_row + index
        try:
            row = cast("Mapping[str, Any]", checked(self._rows[index], number))
        except (DatasetParseError, DatasetValidationError) as error:
            if not self._options.dataset:
                raise
            raise type(error)(f"{error} (in {self._options.dataset})") from error
        prompt = [
            {"role": "system", "content": row["system_prompt"]},
            {"role": "user", "content": row["user_prompt"]},
        ]
        info = {name: value for name, value in row.items() if name not in REQUIRED}
        return Row(number, prompt, row["ground_truth"], info=info)

    def _table_rows(self) -> list[JsonDict]:
        """All rows as one table, for readers of the dataset."""
        rows = (self.row(index) for index in range(self.row_count))
        return [{"example_id": r.example_id, "prompt": r.prompt, "answer": r.answer, "info": r.info} for r in rows]

    def _tools(self, state: State) -> list[JsonDict]:
        """No tools: the agent has its own, and a dataset column called `tool_defs` is data."""
        return []

    # A rollout

    def request_of(self, state: State) -> RolloutRequest:
        """The agent's request for one run.

        Raises:
            pydantic.ValidationError: the row does not fit into a request: its other columns hold more than 1 MiB.
        """
        options = self._options
        row, run = state["example_id"], options.first_run + state["rollout_index"]
        is_other = options.model_tag not in (None, PRIMARY)
        name = f"{options.mode}-{row}"
        if options.mode != "test" or run:
            name += f"-run-{run}"
        metadata: JsonDict = {"ground_truth": state["answer"], "row_index": row, **own(state["info"])}
        metadata |= {"execution_mode": options.mode, "run_index": run}
        metadata |= {"test_mode": True} if options.mode == "test" else {}
        metadata |= {"model_tag": options.model_tag} if is_other else {}
        return RolloutRequest(
            rollout_id=f"{name}-{options.model_tag}" if is_other else name,
            server_url=SERVER_URL,
            messages=state["prompt"],  # copied by pydantic
            completion_params=own(state["sampling_args"]),
            max_turns=self.max_turns,
            max_tokens_total=MAX_TOKENS_TOTAL,
            metadata=metadata,
        )

    async def play(self, state: State) -> None:
        """Play one rollout with the agent.

        Raises:
            AgentFailed: the agent raised, reported an error, or returned no valid result.
            ModelError: the agent did not handle a failed model call, or hid that the endpoint is unusable.
        """
        state.transcript, state.start = list(state["prompt"]), len(state["prompt"])
        run = AgentRun(self._agent, state, partial(self.get_model_response, state), self._options)
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
        """The ground truth as a text reply, which is correct for every agent that ends with a text reply."""
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
) -> AgentEnv:
    """Build an agent evaluation from files.

    Args:
        dataset: A .json, .jsonl, .parquet or .csv file of rows.
        agent: The agent, `module:attribute`. Give either `agent` or `mcp`.
        mcp: A folder of MCP tools, which a standard agent uses.
        eval_fns: Eval functions, each `module:function`.
        max_turns: Model calls that the agent should make at most.
        offset: Rows to skip at the beginning.
        mode: The kind of evaluation in request ids: `eval`, `bench` or `test`.
        model_tag: `baseline` for the other model of a comparison.
        debug_dir: Folder for one trace file per rollout.

    Raises:
        ConfigError: an argument is invalid.
        AgentLoadError: there is no such agent, or no such folder of tools.
        DatasetParseError: there is no such file, or it does not have its format.
        DatasetValidationError: there are no rows.
        EvalFnError: an eval function cannot be loaded.
    """
    if (agent is None) == (mcp is None):
        words = "are mutually exclusive" if agent is not None else "are both missing; name one of them"
        raise ConfigError(f"agent and mcp {words}")
    if mode not in MODES:
        raise ConfigError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    first = _at_least(0, "offset", offset)
    loaded = load_agent(agent) if agent is not None else load_mcp(cast(str, mcp))
    rows = _rows_of(dataset, first)
    functions, sources = load_with_files([eval_fns] if isinstance(eval_fns, str) else eval_fns)
    hashes = {"agent_source": source_hashes(loaded.files), "eval_fns_source": source_hashes(sources)}
    files = tuple(dict.fromkeys((*loaded.files, *sources)))
    options = AgentOptions(
        first_row=offset, max_turns=max_turns, mode=mode, model_tag=model_tag, debug_dir=debug_dir, files=files,
        dataset=dataset, fingerprint={"dataset_content": rows.sha256, **hashes},
    )  # fmt: skip
    return AgentEnv(rows, loaded.agent, functions, options=options)


def source_hashes(files: Sequence[Path]) -> JsonDict | str:
    """Hashes that identify source code: one per file, so that an error can name the changed file; one hash of all if

    there are more than 20 files.

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
        total = f"the first {offset} of it are left out" if offset else "it is empty"
        raise DatasetValidationError(f"No rows to evaluate in {dataset}: {total}")
    return rows


def _at_least(least: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be an integer, {least} or more, not {value!r}")
    return value
