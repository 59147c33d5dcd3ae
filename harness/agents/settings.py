"""Conversion of the arguments of the Python API to the settings of a run: a `ResolvedRun`, its environment and its
model endpoint. Also computes hashes of the agent's code, which are compared when a run is resumed."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from harness.agents.call_arguments import EvaluatedModel, Work
from harness.agents.client import ExternalLLMClient
from harness.agents.clients import AgentWithClients, InstancePool, display_name, is_ours
from harness.agents.environment import AgentEnv, source_hashes
from harness.agents.loop import AgentLike
from harness.agents.results import PRIMARY
from harness.core.errors import EnvironmentFault, EvalFnError
from harness.core.types import JsonDict
from harness.engine.load_environments import Loader
from harness.settings.built_in import AGENT_EVAL, BUILT_INS
from harness.settings.endpoints import Endpoint
from harness.settings.layers import KeyPath, Origin, flatten, merge
from harness.settings.paths import local_modules
from harness.settings.resolved_run import ResolvedRun
from harness.settings.resolver import settings_of
from harness.settings.schema import BY_FLAT_NAME
from harness.settings.sections import builtins
from harness.settings.values import check

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).resolve().parent.parent
"""Folder of the package `harness`. Agents that it defines, such as the one for MCP tools, are not hashed, so that a
newer version can resume their runs."""


def resolved_run(work: Work, evaluated: EvaluatedModel, loader: Loader, shared: list[InstancePool]) -> ResolvedRun:
    """Build the settings of one model's run from the arguments of the Python API.

    Args:
        work: The requested evaluation.
        evaluated: The model of the run.
        loader: The loader, to which the run's environment is added.
        shared: Pools of the clients that the caller passed for earlier models; this model's pool is appended.

    Raises:
        ConfigError: an argument is invalid, or the model cannot be used.
    """
    kind = type(work.agent.agent)
    args: JsonDict = {  # part of the run's name and identity, which a resume compares
        "agent": f"{kind.__module__}:{kind.__name__}",
        "eval_fns": [fn.name for fn in work.eval_fns],
        "max_turns": work.options.max_turns,
        "mode": work.options.mode,
        "offset": work.options.first_row,
        **({"model_tag": evaluated.tag} if evaluated.is_baseline else {}),
    }
    name = BUILT_INS[AGENT_EVAL].name_of(args) + (f"[{evaluated.tag}]" if evaluated.is_baseline else "")
    endpoint, bound, agent = _client(work, evaluated, shared)
    environment = _environment(work, evaluated, agent)
    given: dict[str, tuple[object, str]] = {
        "env_id": (AGENT_EVAL, "built-in"),
        "name": (name, "agent_loop"),
        "env_args": (args, "the runner's arguments"),
        "num_examples": (-1, "rows"),
        "rollouts_per_example": (work.n_runs, "n_runs"),
        "pass_threshold": (work.pass_threshold, "pass_threshold"),
        "model": (endpoint.model, "llm_client"),
        "api_base_url": (endpoint.url, "llm_client"),
        "api_key_var": (endpoint.key_var or "", "llm_client"),
        "sampling_args": (dict(work.completion_params or {}), "completion_params"),
        "save_results": (work.output_dir is not None, "output_dir"),
        "output_dir": (work.output_dir or "outputs", "output_dir"),
        **({"private": (True, "private")} if work.private else {}),
        "max_concurrent": (bound, "batch_size"),
        "max_concurrent_generation": (bound, "batch_size"),
        "max_concurrent_scoring": (bound, "batch_size"),
        **{key: (value, f"settings: {key}") for key, value in work.settings.items()},
    }
    layer: dict[KeyPath, Any] = {}
    for key, (value, source) in given.items():
        if setting := BY_FLAT_NAME.get(key):  # the other settings are limits of the budget
            checked = check(setting, value, source) if value != "" else value  # "": the embedded server
            layer.update(flatten(setting.path, checked, lambda _, source=source: Origin("cli", source)))
    run = ResolvedRun(*settings_of(merge(builtins(), layer)), (endpoint,), found=BUILT_INS[AGENT_EVAL].found)
    loader.give(run, environment)
    return run


def _client(work: Work, evaluated: EvaluatedModel, shared: list[InstancePool]) -> tuple[Endpoint, int, AgentLike]:
    """Return the model's endpoint, its maximum number of concurrent rollouts, and the agent."""
    agent, bound = work.agent.agent, min(work.in_flight, work.rollouts)
    factory = evaluated.factory if work.batch_size > 1 else None
    if factory is None and is_ours(evaluated.client):
        return cast(ExternalLLMClient, evaluated.client).endpoint(), bound, agent
    known = next((each for each in shared if factory is None and each.has_only(evaluated.client)), None)
    pool = known or InstancePool(evaluated.tag or PRIMARY, evaluated.client, factory)  # models may share a pool
    shared.append(pool)
    if factory is None and bound > 1:
        logger.warning(
            "%s: a client serves one rollout at a time, so batch_size=%d has no effect; pass llm_client_factory",
            type(evaluated.client).__name__, work.batch_size,
        )  # fmt: skip
    endpoint = Endpoint(pool.url, None, display_name(evaluated.client), client=pool)
    return endpoint, bound if factory else 1, AgentWithClients(agent, pool)


def _environment(work: Work, evaluated: EvaluatedModel, agent: AgentLike) -> AgentEnv:
    kind, functions = type(work.agent.agent), {function.name: function.fn for function in work.eval_fns}
    agent_files = tuple(dict.fromkeys([*work.agent.files, *code_files([kind])]))
    eval_files = tuple(dict.fromkeys(code_files(functions.values())))
    typed = {name: _digest(code) for name, code in {"agent": kind, **functions}.items() if _is_main(code)}
    options = replace(
        work.options,
        model_tag=evaluated.tag,
        files=tuple(dict.fromkeys((*agent_files, *eval_files))),
        fingerprint={
            "agent_source": source_hashes(agent_files),
            "eval_fns_source": source_hashes(eval_files),
            "code": typed,
        },
    )
    try:
        return AgentEnv(work.rows, agent, work.eval_fns, options=options)
    except EnvironmentFault as error:  # an eval function has the name of a result column
        raise EvalFnError(str(error)) from error


def _is_main(code: object) -> bool:
    return getattr(inspect.unwrap(cast(Any, code)), "__module__", None) == "__main__"


def _digest(code: object) -> str | None:
    """Hash the source of one class or function that a script or notebook defines. The rest of the file is not hashed,
    since it may change. Returns None if the source is unavailable."""
    try:
        return hashlib.sha256(inspect.getsource(inspect.unwrap(cast(Any, code))).encode()).hexdigest()
    except (OSError, TypeError):
        return None


def code_digests(codes: Iterable[object]) -> dict[str, str | None]:
    """Return hashes, by name, of the source of those classes and functions that a script or notebook defines."""
    return {str(getattr(code, "__name__", code)): _digest(code) for code in codes if _is_main(code)}


def code_files(codes: Iterable[object]) -> list[Path]:
    """Return the source files of classes and functions, and of the modules in the same folder that these import."""
    files: list[Path] = []
    for code in codes:
        with contextlib.suppress(OSError, TypeError):
            file = Path(inspect.getfile(inspect.unwrap(cast(Any, code)))).resolve()
            if file.is_file() and not _is_main(code) and not file.is_relative_to(_PACKAGE):
                files += local_modules(file)
    return files
