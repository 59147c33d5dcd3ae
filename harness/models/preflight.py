"""Test request before a run, which checks that the endpoint accepts the model and the key. The endpoint's client sends
the request. This module decides from the result whether the endpoint works, and adds advice to the error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from harness.core.errors import ModelError, SystemicError
from harness.core.messages import Message
from harness.core.types import Client, ModelCall
from harness.settings.endpoint_selection import is_reference

logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Timeout of the test request in seconds. If an endpoint that can be reached does not answer within this time, it may
be loading its model, so the run starts nevertheless. If no connection is possible, the client gives up earlier."""

_ADVICE = {
    "auth": "Authentication failed. Check your API key is valid ({api_key}). Details: {details}",
    "not_found": "The endpoint has no such model or path. Check {model} and {api_base_url}. Details: {details}",
    "bad_response": "The endpoint does not answer as an OpenAI-compatible API. Check {api_base_url}. "
    "Details: {details}",
    "connection": "Cannot connect to API endpoint. Check your {api_base_url} or network. Details: {details}",
}
_ELSE = "The endpoint cannot be used. Check {api_base_url}, {api_key} and {model}. Details: {details}"


async def preflight(
    client: Client,
    model: str,
    headers: Mapping[str, str] | None = None,
    *,
    patience: float = PATIENCE,
) -> None:
    """Request one token from `model`, and raise an error if the endpoint cannot work.

    An endpoint works even if it answers with a rate limit, a server error or a rejection of this particular request
    (many models reject `max_tokens`). It does not work if it rejects the key, does not know the model or path, or does
    not reply like an API. Reference models are not tested, since they answer only for known examples.

    Args:
        client: Client of the endpoint, or of the model's replicas.
        model: Model name in the request.
        headers: Headers of the request.
        patience: Timeout in seconds.

    Raises:
        SystemicError: no request can succeed; the message contains advice.
    """
    if is_reference(model):
        return
    try:
        await ask_once(client, model, headers, patience=patience)
    except SystemicError as error:
        text = Message(_ADVICE.get(error.reason, _ELSE), details=error)
        raise SystemicError(text, status=error.status, retryable=error.retryable, reason=error.reason) from error
    except TimeoutError:
        logger.warning("%s has not answered a short request within %g s; the run starts nevertheless", model, patience)


async def ask_once(
    client: Client, model: str, headers: Mapping[str, str] | None = None, *, patience: float = PATIENCE
) -> ModelError | None:
    """Send one short message, and request one token.

    Args:
        client: Client of the endpoint, or of the model's replicas.
        model: Model name in the request.
        headers: Headers of the request.
        patience: Timeout in seconds.

    Returns:
        None if the model replied; otherwise the error that the endpoint returned.

    Raises:
        SystemicError: no request can succeed.
        TimeoutError: no answer was received in time, although the endpoint may be reachable.
    """
    prompt = [{"role": "user", "content": "hi"}]
    call = ModelCall(model, prompt, None, {"max_tokens": 1}, headers or {}, "preflight", urgent=True, quick=True)
    try:
        async with asyncio.timeout(patience):
            await client.request(call)
    except SystemicError:
        raise
    except ModelError as error:
        return error
    return None


async def preflight_all(models: Sequence[tuple[Client, str]]) -> list[SystemicError | None]:
    """Run `preflight` for several models concurrently.

    Args:
        models: For each model, the client and the model name in the request.

    Returns:
        For each model, the error or None, in the same order.
    """

    async def verdict(client: Client, model: str) -> SystemicError | None:
        try:
            await preflight(client, model)
        except SystemicError as error:
            return error
        return None

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(verdict(*each)) for each in models]
    return [task.result() for task in asked]
