"""Handle the HTTP requests of the reference server. Uses aiohttp's low-level server, since a router and middlewares
would double the CPU time per request."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import orjson
from aiohttp import web

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.types import ROLLOUT_HEADER, JsonDict, Message, Messages, Prompt
from harness.reference.fault_sources import ObservedRequest
from harness.reference.header import RolloutHeader, parse_header
from harness.reference.policies import NAMES, UNKNOWN_PROMPT, is_reference, message_text, parse_model
from harness.reference.tokens import CHAT_TEMPLATE, END, decode, encode, logprobs, tokens_of

if TYPE_CHECKING:
    from harness.reference.server import ReferenceServer

BACKLOG = 4096
"""Maximum number of connections that wait to be accepted. With the usual 128, a burst of 256 clients loses a second to
TCP connection retries."""

SHUTDOWN_TIMEOUT = 0.5
"""Seconds that open requests have to end when the server stops."""

BODY_CAP = 64 * 1024 * 1024

MODEL_LENGTH = 32768
"""Maximum number of tokens of a context, as `/tokenize` reports it; not enforced."""

FIXED_TEXT = (
    "To answer this, it helps to separate what is given from what is asked. The given quantities fix everything that "
    "follows, so the first step is to write them down in one place and in the same units. The second step is to find "
    "the one relation that connects them with the unknown; most mistakes are made here, by taking the first relation "
    "that comes to mind. The third step is to carry the calculation through without rounding, and to round once, at "
    "the end. Finally the result has to be checked against the question: does it have the right sign, the right size "
    "and the right unit, and would a small change of the input move it in the expected direction? Following these "
    "steps gives a value that agrees with a rough estimate made beforehand, so there is good reason to trust it. "
    "The final answer is 42."
)
"""The server's reply for models that have no reference policy: about 200 tokens by `count_tokens`."""


class Refusal(Exception):
    """An error response of the server, raised as an exception."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Listener:
    """A listening socket with its request handler."""

    def __init__(self, server: ReferenceServer) -> None:
        self._server = server
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Start listening and return the actual port.

        Raises:
            OSError: the address is in use or not on this machine.
        """
        # With handler_cancellation a disconnected client frees its slot at once, as at a real provider.
        runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=SHUTDOWN_TIMEOUT
        )
        await runner.setup()
        site = web.TCPSite(runner, host, port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        return cast("int", runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening and abort open requests."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if request.method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            return await self._complete(request, is_chat=path == "/v1/chat/completions")
        if request.method == "GET" and path == "/v1/models":
            return await self._injected(request, ObservedRequest(path=path), _models) or _json(_models())
        if request.method == "GET" and path == "/stats":
            return _json(self._stats("rollouts" in request.query))
        if request.method == "GET" and path in ("/faults", "/v1/faults"):
            return _json(self._server.fault_report())
        if path in _TOKENIZER:
            return await _tokenizer(request)
        return _error(404, f"this server does not support {request.method} {path}; try /v1/models", "unknown_path")

    async def _complete(self, request: web.BaseRequest, *, is_chat: bool) -> web.StreamResponse:
        server = self._server
        stats = server.stats
        stats.requests += 1
        stats.in_flight += 1
        if stats.in_flight > stats.peak_in_flight:
            stats.peak_in_flight = stats.in_flight
        try:
            raw = await _body(request)
            rollout = parse_header(request.headers.get(ROLLOUT_HEADER))
            if server.count_rollouts and rollout is not None:
                stats.count(rollout.rollout_key)
            if server.faults is not None:
                asked = ObservedRequest(stats.requests, request.path, raw, rollout)
                answer = partial(self._answer, raw, rollout, is_chat=is_chat)
                injected = await self._injected(request, asked, answer)
                if injected is not None:
                    return injected
            body = self._answer(raw, rollout, is_chat=is_chat)
            try:
                return _json(body)
            except TypeError as error:  # an environment's message may contain any value
                words = f"the environment's reply cannot be sent as JSON: {error}"
                raise Refusal(400, words, "environment_error") from error
        except Refusal as refusal:
            return _error(refusal.status, str(refusal), refusal.code)
        finally:
            stats.in_flight -= 1

    async def _injected(
        self, request: web.BaseRequest, asked: ObservedRequest, answer: Callable[[], JsonDict]
    ) -> web.StreamResponse | None:
        """Inject the fault of this request; return None if it has none."""
        server = self._server
        if server.faults is None:
            return None
        fault = server.faults.next(asked)
        server.note(asked, fault.label)
        return await fault.send(request, asked, answer)

    def _answer(self, raw: bytes, rollout: RolloutHeader | None, *, is_chat: bool) -> JsonDict:
        body = _parse(raw)
        model: object = body.get("model")
        prompt: object = body.get("messages" if is_chat else "prompt")
        if not is_chat and isinstance(model, str) and (not isinstance(prompt, str) or "echo" in body):
            return self._prompts(body, model, prompt, rollout)
        if not isinstance(model, str) or not isinstance(prompt, list if is_chat else str):
            raise Refusal(
                400,
                "model must be a string, messages must be a list of messages, prompt must be a string",
                "invalid_body",
            )
        asked = cast("Prompt", prompt)
        message = self._reply(model, asked, rollout)
        return _completion(body, model, asked, message, self._server.stats.requests)

    def _prompts(self, body: JsonDict, model: str, prompt: object, rollout: RolloutHeader | None) -> JsonDict:
        """Answer a completion request with token ids, several prompts or `echo`: one choice for each prompt."""
        whole: JsonDict = {}
        for index, tokens in enumerate(_prompts_of(prompt)):
            text = "".join(tokens)
            # With log-probabilities of the prompt, one more token is enough: no client reads more.
            scores = bool(body.get("echo")) and isinstance(body.get("logprobs"), int)
            message: Message = {"role": "assistant", "content": "."}
            answer = _completion(
                {} if scores else body, model, text, message if scores else self._reply(model, text, rollout),
                self._server.stats.requests,
            )  # fmt: skip
            choice = answer["choices"][0]
            choice["index"] = index
            if scores:
                tokens = tokens if body.get("max_tokens") == 0 else [*tokens, END]
                choice |= {"text": "".join(tokens), "finish_reason": "length", "logprobs": logprobs(model, tokens)}
            elif body.get("echo"):
                choice["text"] = text + choice["text"]
            if whole:
                whole["choices"].append(choice)
                for name, number in answer["usage"].items():
                    whole["usage"][name] += number
            else:
                whole = answer
        return whole

    def _reply(self, model: str, prompt: Prompt, rollout: RolloutHeader | None) -> Message:
        server = self._server
        try:
            policy = parse_model(model) if is_reference(model) else server.policy
        except ConfigError as error:
            raise Refusal(404, str(error), "model_not_found") from error
        if policy is None:
            return {"role": "assistant", "content": FIXED_TEXT}
        messages: Messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not policy.needs_player:
            return policy.reply(None, None, messages, "")
        found = server.find(rollout, prompt)
        if found is None:
            words = f"{model} needs the answers of an environment: start the server with an environment, or start a run"
            if server.has_players:
                words = f"{model}: {UNKNOWN_PROMPT}; start the server with the environment of these requests"
            raise Refusal(404, words, "no_player")
        player, example = found
        # Without a rollout key use the example's; then all rollouts of the example get the same random draw.
        key = rollout.rollout_key if rollout is not None else example.key
        try:
            return policy.reply(player, example, messages, key)
        except NotImplementedError as error:
            words = str(error) or "the environment has no reference policy (reference_reply)"
            raise Refusal(404, words, "no_reference_policy") from error
        except EnvironmentFault as error:
            raise Refusal(400, str(error), "environment_error") from error
        except Exception as error:  # an error in environment code fails this request, not the server
            words = f"the environment's reference policy raised {type(error).__name__}: {error}"
            raise Refusal(400, words, "environment_error") from error

    def _stats(self, with_rollouts: bool) -> JsonDict:
        stats = self._server.stats
        shown: JsonDict = {
            "requests": stats.requests,
            "in_flight": stats.in_flight,
            "peak_in_flight": stats.peak_in_flight,
        }
        if stats.faults:
            shown["faults"] = dict(stats.faults)
        return {**shown, "rollouts": dict(stats.rollouts)} if with_rollouts else shown


def count_tokens(text: str) -> int:
    """Estimate tokens as a quarter of the characters, rounded up; the same on every machine."""
    return (len(text) + 3) // 4


def _completion(body: JsonDict, model: str, prompt: Prompt, message: Message, number: int) -> JsonDict:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    content: object = message.get("content")
    tokens = 0
    if isinstance(content, str):
        tokens = count_tokens(content)
        limit: object = body.get("max_completion_tokens", body.get("max_tokens"))
        if isinstance(limit, int) and tokens > limit:
            tokens, finish = limit, "length"
            message = {**message, "content": content[: limit * 4]}
    is_chat = not isinstance(prompt, str)
    texts = [prompt] if isinstance(prompt, str) else [message_text(each) for each in prompt]
    prompt_tokens = sum(map(count_tokens, texts))
    choice: JsonDict = {"index": 0, "finish_reason": finish}
    if is_chat:
        choice["message"] = {"role": "assistant", **message}
    else:
        choice["text"] = message_text(message)
    return {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{number}",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens},
    }


def _prompts_of(prompt: object) -> list[list[str]]:
    """Return the tokens of each prompt in the field `prompt`: a text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return [tokens_of(prompt)]
    each = cast("list[object]", prompt) if isinstance(prompt, list) else []
    if each and isinstance(each[0], int):
        each = [each]
    try:
        found = [tokens_of(one) if isinstance(one, str) else decode(cast("list[object]", one)) for one in each]
    except (TypeError, ValueError) as error:
        raise Refusal(400, f"prompt: {error}", "invalid_body") from error
    if not found:
        raise Refusal(400, "prompt must be a string, a list of token ids, or a list of these", "invalid_body")
    return found


_TOKENIZER = ("/tokenize", "/detokenize", "/tokenizer_info")
"""Paths of the tokenizer, as vLLM has them."""


async def _tokenizer(request: web.BaseRequest) -> web.StreamResponse:
    """Answer a request about tokens: those of a text, the text of tokens, or the name of the last token."""
    if request.path == "/tokenizer_info":
        return _json({"bos_token": None, "eos_token": END, "chat_template": CHAT_TEMPLATE})
    try:
        body = _parse(await _body(request))
        if request.path == "/detokenize":
            return _json({"prompt": "".join(decode(body["tokens"]))})
        ids = encode(body["prompt"])
    except Refusal as refusal:
        return _error(refusal.status, str(refusal), refusal.code)
    except (KeyError, TypeError, ValueError) as error:
        wanted = "tokens: a list of token ids" if request.path == "/detokenize" else "prompt: a string"
        return _error(400, f"{request.path} needs {wanted} ({error!r})", "invalid_body")
    return _json({"count": len(ids), "max_model_len": MODEL_LENGTH, "tokens": ids})


def _parse(raw: bytes) -> JsonDict:
    try:
        body: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the request body is not JSON: {error}", "invalid_json") from error
    if not isinstance(body, dict):
        raise Refusal(400, "the request body is not a JSON object", "invalid_json")
    return cast("JsonDict", body)


def _models() -> JsonDict:
    names = [f"reference/{name}" for name in NAMES]
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "bench"} for name in names]}


def _json(value: JsonDict, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")


async def _body(request: web.BaseRequest) -> bytes:
    """Read the request body, up to a size limit; compressed or chunked bodies may have any size."""
    too_large = Refusal(413, f"the request body is larger than {BODY_CAP} bytes", "too_large")
    if (request.content_length or 0) > BODY_CAP:
        raise too_large
    raw = bytearray()
    async for piece in request.content.iter_any():
        raw += piece
        if len(raw) > BODY_CAP:
            raise too_large
    return bytes(raw)


def _error(status: int, message: str, code: str) -> web.Response:
    return _json({"error": {"message": message, "type": "reference_server", "code": code}}, status)
