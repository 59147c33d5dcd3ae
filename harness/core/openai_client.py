"""`AsyncOpenAI` clients that call the model or judge of a run: code written for the openai SDK then uses the run's
limits, retries, budget, health checks and journal. Translates requests and replies between the SDK and bench's model
client (`Chat`). It does not open connections, hold API keys or retry.

The calling code gets the SDK's exceptions for failed calls (`RateLimitError`, `APITimeoutError`, …). They contain the
original error of bench, which `original` returns. Some errors concern the whole run, and code of the classic API must
not suppress them: `Faults` records them for the engine.

Not supported: streamed replies, several choices, request headers, and the SDK's own timeout and retries (the run's
`request_timeout` and `request_retries` apply).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import orjson

from harness.core.errors import (
    BudgetSpent,
    ContextLengthError,
    EnvironmentFault,
    HarnessError,
    LimitReached,
    ModelError,
    SystemicError,
)
from harness.core.types import Chat, JsonDict, Message, ModelResponse, Prompt, Usage, without_gaps

if TYPE_CHECKING:
    from openai import AsyncOpenAI

BASE_URL = "http://bench.invalid/v1"
"""Value of the client's attribute `base_url`, as author code sees it. The host name can never be resolved (RFC
6761)."""

CHAT_PATH = "/chat/completions"
COMPLETIONS_PATH = "/completions"

_KEY = "bench.error"
"""Key in the `extensions` of an HTTP response, under which the original error of bench is stored."""

_STATUS = {"rate_limit": 429, "bad_request": 400, "context_length": 400, "auth": 401, "not_found": 404}
"""HTTP status that author code sees for an error that has none, by the error's reason; 502 for other reasons."""

_TOO_LONG = "This model's maximum context length is exceeded (context length, prompt_too_long)."
"""Error message for a prompt that is too long. Code for the classic `verifiers` API recognizes the error by its text;
this message has the text that all releases look for."""

_LIMITS = ("max_tokens", "max_completion_tokens")


class Faults:
    """Errors that must reach the engine, even if author code suppresses all exceptions of its model calls."""

    def __init__(self) -> None:
        self.error: HarnessError | None = None
        """The first recorded error: a `SystemicError`, or the error of a request for an unsupported feature."""

    def add(self, error: HarnessError) -> None:
        """Record `error` if author code must not suppress it."""
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
    names: Collection[str] | None = (),
    sampling_args: Mapping[str, Any] | None = None,
    inherits: bool = True,
    faults: Faults | None = None,
) -> AsyncOpenAI:
    """Create an `AsyncOpenAI` client whose chat completions and completions call `chat`. The first client imports the
    openai package, which takes 0.5 s; each further one takes about 0.1 ms.

    Args:
        chat: The model; sampling arguments of a call override those of the model.
        names: Accepted model names besides `chat.model`. None accepts every name and passes it on as the sampling
            argument `model`.
        sampling_args: Sampling arguments of `chat`. They are needed for token limits, which have two names
            (`max_tokens`, `max_completion_tokens`), so that only one of them is sent.
        inherits: Whether a call inherits those of `sampling_args` that it omits. False for code that receives them and
            passes them on itself; only the token limit is then inherited.
        faults: Records errors that the calling code must not suppress.

    Raises:
        EnvironmentFault: the openai package cannot be imported.
    """
    openai, http = _sdk()
    accepted = None if names is None else {chat.model, *names}
    answerer = _Answerer(chat, accepted, dict(sampling_args or {}), inherits, faults or Faults(), http)
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


def original(error: BaseException | None, *, contexts: bool = True) -> HarnessError | None:
    """Return the original error of bench that an exception, or one of its causes, contains; None if there is none.

    Args:
        error: The exception.
        contexts: Whether an exception that was raised while another one was handled counts as caused by it.
    """
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
        error = error.__cause__ or (error.__context__ if contexts else None)
    return None


@cache
def _sdk() -> tuple[ModuleType, ModuleType]:
    """Import the openai package and the HTTP library that it uses: httpx, or httpx2 from version 3.0."""
    try:
        import openai
    except ImportError as error:
        raise EnvironmentFault(
            "model calls need the openai package, which cannot be imported; install it: pip install openai"
        ) from error
    import importlib

    for name in ("chat.completions", "completions"):  # which the SDK imports when they are first used
        importlib.import_module(f"openai.resources.{name}")
    base = next(kind for kind in openai.DefaultAsyncHttpxClient.__mro__ if kind.__name__ == "AsyncClient")
    return openai, importlib.import_module(base.__module__.split(".")[0])


class _Answerer:
    """Answers the HTTP requests of an openai client by calling the rollout's model; does not open a connection."""

    def __init__(
        self,
        chat: Chat,
        names: Collection[str] | None,
        sampling_args: JsonDict,
        inherits: bool,
        faults: Faults,
        http: ModuleType,
    ) -> None:
        self._chat = chat
        self._names = names
        self._run_args = sampling_args
        self._inherits = inherits
        self._faults = faults
        self._http = http
        self._base = str(http.URL(BASE_URL).path)

    async def answer(self, request: Any) -> Any:
        """Answer one HTTP request of the openai client with a response of the HTTP library."""
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
        reply = _reply(response, is_text=path == COMPLETIONS_PATH, model=self._chat.model)
        return self._http.Response(200, headers=_HEADERS, content=orjson.dumps(reply))

    def _prompt(self, path: str, body: JsonDict) -> Prompt:
        """Return the prompt of a request. Remove it and other fields that are not sampling arguments from `body`."""
        if self._names is not None and (model := body.pop("model", None)) not in self._names:
            raise EnvironmentFault(
                f"the model {model!r} was requested, but the client of this run serves only {self._chat.model!r}; "
                "pass that name, for example state['model'], or use a judge for another model"
            )
        if body.pop("stream", None):
            raise EnvironmentFault("a streamed reply was requested, which is not supported; remove stream=True")
        body.pop("stream_options", None)
        if body.get("n") == 1:
            del body["n"]
        if path == CHAT_PATH:
            return _checked_messages(body.pop("messages", None))
        prompt: object = body.pop("prompt", None)
        if isinstance(prompt, list) and len(cast("list[object]", prompt)) == 1:
            prompt = cast("list[object]", prompt)[0]
        if not isinstance(prompt, str):
            raise EnvironmentFault(
                "completions.create: the prompt is a list of tokens or of several strings; pass one string"
            )
        return prompt

    def _over(self, body: JsonDict) -> JsonDict:
        """Return the sampling arguments that override those of the run. Only one of the two names of the token limit is
        sent."""
        omitted = () if self._inherits else self._run_args.keys() - body.keys() - set(_LIMITS)
        over: JsonDict = {**dict.fromkeys(omitted), **body}
        for here, other in (_LIMITS, _LIMITS[::-1]):
            if here not in body or other in body or self._run_args.get(other) is None:
                continue
            if body[here] == self._run_args[other]:
                del over[here]  # the run sets the same limit under another name
            else:
                over[other] = None
            break
        return over

    def _failed(self, request: Any, error: HarnessError) -> Any:
        """Convert an error to an HTTP error response, for which the openai SDK raises the right exception."""
        reason = error.reason if isinstance(error, ModelError) else ""
        status = error.status if isinstance(error, ModelError) else 501
        if status is None and reason == "timeout":
            raise self._http.ReadTimeout(str(error), request=request) from error
        if status is None and reason == "connection":
            raise self._http.ConnectError(str(error), request=request) from error
        if isinstance(error, BudgetSpent | LimitReached):
            status = 403
        elif status is None or status < 400:
            status = _STATUS.get(reason, 502)
        too_long = isinstance(error, ContextLengthError)
        words = f"{error} {_TOO_LONG}" if too_long else str(error)
        fields = {"message": words, "type": reason or "unsupported", "param": None, "code": reason or "unsupported"}
        if too_long:
            status, fields["code"] = 400, "context_length_exceeded"
        return self._http.Response(
            status,
            # The SDK would retry some statuses if author code allows it, but bench's client has already retried.
            headers={**_HEADERS, "x-should-retry": "false"},
            content=orjson.dumps({"error": fields}),
            extensions={_KEY: error},
        )


_HEADERS = {"content-type": "application/json"}


def _body(request: Any, path: str) -> JsonDict:
    if request.method != "POST" or path not in (CHAT_PATH, COMPLETIONS_PATH):
        raise EnvironmentFault(
            f"{request.method} {path} was requested, but the client of a run supports only chat.completions.create and "
            "completions.create"
        )
    body: object = orjson.loads(request.content)
    if not isinstance(body, dict):
        raise EnvironmentFault(f"the body of a request to {path} is not a JSON object")
    return cast(JsonDict, body)


def _checked_messages(messages: object) -> list[Message]:
    if not isinstance(messages, list):
        raise EnvironmentFault(f"messages must be a list, not {type(messages).__name__}")
    # Null fields of typed messages are removed, since endpoints refuse `"tool_calls": null`.
    return [
        without_gaps(cast(Message, message)) if isinstance(message, dict) else cast(Message, message)
        for message in cast("list[object]", messages)
    ]


def _reply(response: ModelResponse, *, is_text: bool, model: str) -> JsonDict:
    """Convert a reply to the OpenAI wire format.

    Args:
        response: The reply.
        is_text: Whether it is a text completion.
        model: The requested model, to be named if the reply names no model.
    """
    said: JsonDict = {"text": response.message.get("content") or ""}
    if not is_text:
        said = {"message": {**response.message, "role": "assistant"}}
    return {
        "id": response.id or f"chatcmpl-{uuid.uuid4().hex}",
        "object": "text_completion" if is_text else "chat.completion",
        "created": int(time.time()),
        "model": response.model or model,
        "choices": [{"index": 0, "finish_reason": response.finish_reason, **said}],
        "usage": _usage(response.usage),
    }


def _usage(usage: Usage) -> JsonDict | None:
    """Convert token usage to the OpenAI wire format; None if the endpoint reported none, which differs from zero."""
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
