"""Model calls of classic environments: through the rollout's own model, or through a client of the author's with the
openai package's methods."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.errors import EnvironmentFault, HarnessError
from harness.core.state import State
from harness.core.types import JsonDict, ModelResponse, Prompt
from harness.plugins.classic import faults
from harness.plugins.classic.messages import tools_of
from harness.plugins.classic.records import plain
from harness.plugins.classic.responses import Response, as_response


async def ask(
    state: State,
    prompt: Prompt,
    *,
    tools: Sequence[JsonDict],
    sampling_args: Mapping[str, Any] | None,
    client: Any = None,
    model: str | None = None,
) -> ModelResponse | Response:
    """Call the rollout's model, or `client` if given.

    Raises:
        ModelError: the call failed.
        EnvironmentFault: `model` is not the run's model, and no client for it is given.
    """
    chat = state.chat
    own: Any = dict(state).get("client")  # only if already created; reading it from the state would create one
    if chat is None or (client is not None and client is not own):
        chosen: Any = own if client is None else client
        return await _through(chosen, state, prompt, tools, sampling_args, model or state["model"])
    if model is not None and model not in (chat.model, state["model"]):
        raise EnvironmentFault(
            f"the environment asked for the model {model!r}, and the run's is {chat.model!r}; "
            "for another one it must pass a client"
        )
    args: JsonDict = {**(state["sampling_args"] or {}), **(sampling_args or {})}
    return await chat(prompt, tools=list(tools) or None, sampling_args=args)


async def _through(
    client: Any,
    state: State,
    prompt: Prompt,
    tools: Sequence[JsonDict],
    sampling_args: Mapping[str, Any] | None,
    model: str,
) -> Response:
    merged: JsonDict = {**(state["sampling_args"] or {}), **(sampling_args or {})}
    args = {name: value for name, value in merged.items() if value is not None}
    try:
        if hasattr(client, "get_response"):  # a client class of generation C
            typed = tools_of(list(tools), "C") or None
            reply = client.get_response(prompt=prompt, model=model, tools=typed, sampling_args=args, state=state)
        elif isinstance(prompt, str):
            reply = client.completions.create(model=model, prompt=prompt, **args)
        else:
            offered: JsonDict = {"tools": list(tools)} if tools else {}
            reply = client.chat.completions.create(model=model, messages=plain(prompt), **offered, **args)
        return as_response(await reply if inspect.isawaitable(reply) else reply)
    except HarnessError:
        raise
    except Exception as error:  # any exception of the author's client is a failed model call
        from harness.plugins.classic.openai_client import original

        inner = original(error)
        if isinstance(inner, HarnessError):
            raise inner from error
        raise faults.ModelError(f"{type(error).__name__}: {error}") from error
