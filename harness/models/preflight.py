"""One real request before a run: does the endpoint answer for this model and key? Owns what counts as an answer, and
what to check when there is none; the request itself is the client's, as every other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from harness.core.errors import ModelError, SystemicError
from harness.core.types import Client, ModelCall
from harness.settings.serving import is_reference

logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds. An endpoint that takes the request and is silent for longer may be loading its model: it is reachable, and
the run's own time limits take over. One that takes no connection is given up by the client before that."""

_MESSAGES = [{"role": "user", "content": "hi"}]

_ADVICE = {
    "auth": "Authentication failed. Check your API key is valid ({dash}api-key). Details: ",
    "not_found": "The endpoint has no such model or path. Check {dash}model and {dash}base-url. Details: ",
    "bad_response": "The endpoint does not answer as an OpenAI-compatible API. Check {dash}base-url. Details: ",
    "connection": "Cannot connect to API endpoint. Check your {dash}base-url or network. Details: ",
}
_ELSE = "The endpoint cannot be used. Check {dash}base-url, {dash}api-key and {dash}model. Details: "


async def preflight(
    client: Client,
    model: str,
    headers: Mapping[str, str] | None = None,
    *,
    baseline: bool = False,
    patience: float = PATIENCE,
) -> None:
    """Ask `model` for one token, within seconds whatever happens.

    Any answer but a refused key, an unknown model or path, and what is none of an API's shows that the endpoint works:
    a rate limit, a server error, a refusal of this very request (many models refuse `max_tokens`). Reference policies
    are not asked: they answer only for examples that they know.

    Args:
        client: Of the endpoint, or of the model's replicas.
        model: The name that is sent.
        headers: Sent with the request.
        baseline: The message is to name the baseline's options.
        patience: Seconds to wait for an answer.

    Raises:
        SystemicError: no request can succeed; says what to check.
    """
    if is_reference(model):
        return
    try:
        await ask_once(client, model, headers, patience=patience)
    except SystemicError as error:
        dash = "--baseline-" if baseline else "--"
        text = _ADVICE.get(error.reason, _ELSE).format(dash=dash)
        raise SystemicError(
            f"{text}{error}", status=error.status, retryable=error.retryable, reason=error.reason
        ) from error
    except TimeoutError:
        logger.warning("%s has not answered one short request within %g s; waiting as long as runs do", model, patience)


async def ask_once(
    client: Client, model: str, headers: Mapping[str, str] | None = None, *, patience: float = PATIENCE
) -> ModelError | None:
    """The request itself: one short message, one token asked for.

    Args:
        client: Of the endpoint, or of the model's replicas.
        model: The name that is sent.
        headers: Sent with the request.
        patience: Seconds to wait for an answer.

    Returns:
        None when the model replied; else what the endpoint answered instead.

    Raises:
        SystemicError: no request can succeed.
        TimeoutError: no answer came, though the endpoint may be there.
    """
    call = ModelCall(model, _MESSAGES, None, {"max_tokens": 1}, headers or {}, "preflight", urgent=True, quick=True)
    try:
        async with asyncio.timeout(patience):
            await client.request(call)
    except SystemicError:
        raise
    except ModelError as error:
        return error
    return None


async def preflight_all(models: Sequence[tuple[Client, str, bool]]) -> list[SystemicError | None]:
    """`preflight` for all at once.

    Args:
        models: Each with its client, the name that is sent, and whether it is the baseline.

    Returns:
        What is wrong with each, in their order.
    """

    async def verdict(client: Client, model: str, baseline: bool) -> SystemicError | None:
        try:
            await preflight(client, model, baseline=baseline)
        except SystemicError as error:
            return error
        return None

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(verdict(*each)) for each in models]
    return [task.result() for task in asked]
