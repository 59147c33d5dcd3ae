"""`AsyncOpenAI` clients on top of our own model clients: author code written against the openai SDK calls the model
through a `Chat`, and so with the run's limits, retries, health checks and accounting. Translates requests and
replies; opens no socket, holds no key and does no retries.

Author code sees the SDK's exceptions for failed calls (`RateLimitError`, `APITimeoutError`, …). They contain our
client's error, which `original` returns. Some errors concern more than the call, and author code must not suppress
them: `Faults` keeps those for the caller of that code.

Not supported: request headers, and the SDK's own timeout and retries (the run's `request_timeout` and `request_retries`
apply).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import orjson

from harness.core.errors import ContextLengthError, EnvironmentFault, HarnessError, ModelError, SystemicError
from harness.core.types import Chat, JsonDict, Message, Prompt, Usage
from harness.envs.dataset import without_gaps
from harness.models.wire import CHAT_PATH, COMPLETIONS_PATH
from harness.plugins.classic.responses import response_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI

BASE_URL = "http://bench.invalid/v1"
"""The client's `base_url` for author code. The host name can never be resolved (RFC 6761)."""

_KEY = "bench.error"
"""Key in a reply's `extensions` that holds our error."""

_STATUS = {"rate_limit": 429, "bad_request": 400, "context_length": 400, "auth": 401, "not_found": 404}
"""HTTP status of errors without one, by reason; 502 for other reasons."""

_TOO_LONG = "This model's maximum context length is exceeded (context length, prompt_too_long)."
"""Classic code recognizes such an error by its text, which differs by release; this text matches all releases."""

_LIMITS = ("max_tokens", "max_completion_tokens")


class Faults:
    """Errors that must reach the engine, even if author code suppresses all exceptions of its model calls."""

    def __init__(self) -> None:
        self.error: HarnessError | None = None
        """The first `SystemicError`, or error of a request for something that is not supported here."""

    def add(self, error: HarnessError) -> None:
        """Record `error` if it is of such a kind."""
        if self.error is None and isinstance(error, SystemicError | EnvironmentFault):
            self.error = error

    def check(self) -> None:
        """Raise the recorded error.

        Raises:
            SystemicError: the endpoint is unusable.
            EnvironmentFault: the code requested another model, a stream, or another unsupported feature.
        """
        if self.error is not None:
            raise self.error


def async_openai(
    chat: Chat,
    *,
    names: Collection[str] = (),
    sampling_args: Mapping[str, Any] | None = None,
    faults: Faults | None = None,
) -> AsyncOpenAI:
    """An `AsyncOpenAI` whose chat completions and completions are calls of `chat`. Cheap enough to create per rollout.

    Args:
        chat: The model; a call's sampling arguments override its own.
        names: Accepted model names besides `chat.model`.
        sampling_args: The run's own, if the author's code receives them; a call then replaces them. Arguments that it
            omits are omitted, except the token limit; a renamed one gets its name back.
        faults: Records errors that author code must not suppress.

    Raises:
        EnvironmentFault: the openai package is not installed.
    """
    openai, http = _sdk()
    answerer = _Answerer(chat, {chat.model, *names}, dict(sampling_args or {}), faults or Faults(), http)
    return openai.AsyncOpenAI(
        api_key="none",
        base_url=BASE_URL,
        organization="",
        project="",
        max_retries=0,
        # Without trust_env=False each client would read certificates and proxies: 10 ms instead of 20 µs.
        http_client=http.AsyncClient(
            base_url=BASE_URL, transport=http.MockTransport(answerer.answer), trust_env=False, timeout=None
        ),
    )


def original(error: BaseException | None) -> HarnessError | None:
    """Our error behind an exception from author code, or among its causes; None if it has none."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, HarnessError):
            return error
        extensions: object = getattr(getattr(error, "response", None), "extensions", None)
        if isinstance(extensions, dict):
            inside = cast("dict[str, object]", extensions).get(_KEY)
            if isinstance(inside, HarnessError):
                return inside
        error = error.__cause__ or error.__context__
    return None


@cache
def _sdk() -> tuple[ModuleType, ModuleType]:
    """The openai package, and the HTTP library that this version uses (httpx, from 3.0 httpx2)."""
    try:
        import openai
    except ImportError as error:
        raise EnvironmentFault(
            "this environment talks to its model through the openai package, which is not installed: "
            "pip install 'bench-harness[classic]'"
        ) from error
    import importlib

    base = next(kind for kind in openai.DefaultAsyncHttpxClient.__mro__ if kind.__name__ == "AsyncClient")
    return openai, importlib.import_module(base.__module__.split(".")[0])


class _Answerer:
    """Answers HTTP requests by calls of our client; no connection is opened."""

    def __init__(
        self, chat: Chat, names: Collection[str], sampling_args: JsonDict, faults: Faults, http: ModuleType
    ) -> None:
        self._chat = chat
        self._names = names
        self._run_args = sampling_args
        self._faults = faults
        self._http = http
        self._base = str(http.URL(BASE_URL).path)

    async def answer(self, request: Any) -> Any:
        """Answer one request; name and types are those of the HTTP library."""
        try:
            path = str(request.url.path).removeprefix(self._base)
            body = _body(request, path)
            prompt = self._prompt(path, body)
            response = await self._chat(
                prompt, tools=body.pop("tools", None) or None, sampling_args=self._over(body) or None
            )
        except HarnessError as error:
            self._faults.add(error)
            return self._failed(request, error)
        reply = response_of(response, is_text=path == COMPLETIONS_PATH, model=self._chat.model).model_dump()
        reply.update(id=reply["id"] or f"chatcmpl-{uuid.uuid4().hex}", usage=_usage(response.usage))
        return self._http.Response(200, headers=_HEADERS, content=orjson.dumps(reply))

    def _prompt(self, path: str, body: JsonDict) -> Prompt:
        """The request's prompt; removes it and other fields that are not sampling arguments from `body`."""
        model = body.pop("model", None)
        if model not in self._names:
            raise EnvironmentFault(
                f"the environment asks for the model {model!r} through the client of this run, whose model is "
                f"{self._chat.model!r}; let it use state['model'], or a judge for another one"
            )
        if body.pop("stream", None):
            raise EnvironmentFault("the environment asks for a streamed reply (stream=True), which is not read here")
        body.pop("stream_options", None)
        if body.get("n") == 1:
            del body["n"]
        if path == CHAT_PATH:
            return _checked_messages(body.pop("messages", None))
        prompt: object = body.pop("prompt", None)
        if isinstance(prompt, list) and len(cast("list[object]", prompt)) == 1:
            prompt = cast("list[object]", prompt)[0]
        if not isinstance(prompt, str):
            raise EnvironmentFault("the environment asks for a completion of tokens or of several texts; give one text")
        return prompt

    def _over(self, body: JsonDict) -> JsonDict:
        """Sampling arguments that override the run's. Only one of the two names of the token limit is sent."""
        over: JsonDict = {name: None for name in self._run_args if name not in body and name not in _LIMITS}
        over.update(body)
        for here, other in (_LIMITS, _LIMITS[::-1]):
            if here not in body or other in body or self._run_args.get(other) is None:
                continue
            if body[here] == self._run_args[other]:
                del over[here]  # the run's own value under another name
            else:
                over[other] = None
            break
        return over

    def _failed(self, request: Any, error: HarnessError) -> Any:
        """An HTTP error response from which the SDK makes the right exception."""
        reason = error.reason if isinstance(error, ModelError) else ""
        status = error.status if isinstance(error, ModelError) else 501
        if status is None and reason == "timeout":
            raise self._http.ReadTimeout(str(error), request=request) from error
        if status is None and reason == "connection":
            raise self._http.ConnectError(str(error), request=request) from error
        if status is None or status < 400:
            status = _STATUS.get(reason, 502)
        too_long = isinstance(error, ContextLengthError)
        words = f"{error} {_TOO_LONG}" if too_long else str(error)
        fields = {"message": words, "type": reason or "unsupported", "param": None, "code": reason or "unsupported"}
        if too_long:
            status, fields["code"] = 400, "context_length_exceeded"
        return self._http.Response(
            status,
            # The SDK retries some statuses if author code allows it; our client has already retried.
            headers={**_HEADERS, "x-should-retry": "false"},
            content=orjson.dumps({"error": fields}),
            extensions={_KEY: error},
        )


_HEADERS = {"content-type": "application/json"}


def _body(request: Any, path: str) -> JsonDict:
    if request.method != "POST" or path not in (CHAT_PATH, COMPLETIONS_PATH):
        raise EnvironmentFault(
            f"the environment asks for {request.method} {path}: the model of a run answers chat.completions.create and "
            "completions.create, nothing else"
        )
    body: object = orjson.loads(request.content)
    if not isinstance(body, dict):
        raise EnvironmentFault(f"the environment posts something other than a JSON object to {path}")
    return cast(JsonDict, body)


def _checked_messages(messages: object) -> list[Message]:
    if not isinstance(messages, list):
        raise EnvironmentFault(f"messages must be a list, not {type(messages).__name__}")
    # Null fields of typed messages are left out: endpoints refuse `"tool_calls": null`.
    return [
        without_gaps(cast(Message, message)) if isinstance(message, dict) else cast(Message, message)
        for message in cast("list[object]", messages)
    ]


def _usage(usage: Usage) -> JsonDict | None:
    """Token usage in the wire's form; None if the endpoint reported none, which differs from zero."""
    if not usage.requests or usage.unreported:
        return None
    fields: JsonDict = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    return fields if usage.cost is None else {**fields, "cost": usage.cost}
