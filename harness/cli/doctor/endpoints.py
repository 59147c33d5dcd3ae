"""Checks of endpoints and their API keys. Findings name the variables of keys, but never contain a key, a part of it or
its length. Each model at an endpoint gets one cheap request, sent by the same client as in runs."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from urllib.parse import urlsplit

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.core.errors import ConfigError, HarnessError, ModelError, SystemicError
from harness.core.loopback import is_loopback_url, litellm_provider
from harness.models.chat import ChatClient
from harness.models.failures import without_advice
from harness.models.health import Health, HealthPolicy
from harness.models.limits import Limiter
from harness.models.pool import target_of
from harness.models.preflight import ask_once
from harness.models.retry import RetryPolicy
from harness.reference.policies import UNKNOWN_PROMPT, parse_model
from harness.settings.endpoint_selection import is_reference
from harness.settings.endpoints import Endpoint
from harness.settings.providers import PROVIDERS, require_provider
from harness.usercode.threads import offload

_QUOTES = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_PLACEHOLDER = re.compile(r"<.*>|\.{3}|x{3,}|(?:your|my)[-_ ].*|.*[-_ ]here|change-?me|todo", re.IGNORECASE)

_HTTP = {"http", "https"}

_MORE_TRIES = 2
"""Retries after a broken connection: one failure may be chance, repeated failures mean that no API is there."""

_TRY_AGAIN = RetryPolicy(base=0.2)

_HALF_SHOWN = re.compile(r"[^\s\"']*\*{2,}[^\s\"']*")
"""Pattern of a partly masked key in a provider's error message: beginning, asterisks, end."""


@dataclass(frozen=True, slots=True)
class EndpointQuery:
    """A query to one model at one endpoint."""

    endpoint: Endpoint
    whom: str
    """Alias, or names of the runs that use the model, for messages."""
    is_asked: bool = True
    """Whether the user named the model, or a run that uses it."""

    @property
    def host(self) -> str:
        """Name of the endpoint, for messages."""
        provider = litellm_provider(self.endpoint.url)
        return f"{provider} (litellm)" if provider is not None else urlsplit(self.endpoint.url).netloc

    @property
    def is_embedded(self) -> bool:
        """Whether the embedded reference server serves this model."""
        return not self.endpoint.url

    @property
    def name(self) -> str:
        """Name of the query in findings."""
        return self.endpoint.model if self.is_embedded else f"{self.endpoint.model} at {self.host}"

    @property
    def request(self) -> str:
        """Describe the request, for the user."""
        return f"one message and one token to {self.host} for {self.endpoint.model}"


def key_defect(value: str) -> str:
    """Describe the visible defect of an API key, such as `contains a space or tab`; "" if there is no defect."""
    text = value.strip()
    tests = (
        ("begins or ends with a quotation mark", bool(text) and (text[0] in _QUOTES or text[-1] in _QUOTES)),
        ("contains a line break", "\n" in text or "\r" in text),
        ("contains a space or tab", bool(re.search(r"\s", text)) and not text.lower().startswith("bearer ")),
        ("begins with the word Bearer, which is sent anyway", text.lower().startswith("bearer ")),
        ("contains a character that is not ASCII", not text.isascii()),
        ("contains a control character", not text.isprintable()),
        ("begins with a variable's name and =", bool(re.match(r"(?:export\s+)?[A-Z][A-Z0-9_]*_KEY\s*=", text))),
        ("is a placeholder, not a key", bool(_PLACEHOLDER.fullmatch(text))),
    )
    return next((words for words, holds in tests if holds), "")


def check_keys(
    asked: Sequence[EndpointQuery], environ: Mapping[str, str], overruled: Collection[str] = ()
) -> list[Diagnosis]:
    """Check that each API key is set and well-formed.

    Args:
        asked: Queries of the endpoints that may need a key.
        environ: Environment variables.
        overruled: Variables whose value in `.env` differs from the environment's.
    """
    uses: dict[str, list[EndpointQuery]] = {}
    for each in asked:
        if each.endpoint.key_var:
            uses.setdefault(each.endpoint.key_var, []).append(each)
    found = [_check_key(name, queries, environ) for name, queries in uses.items()]
    for name in sorted(set(overruled) & uses.keys()):
        says = "the environment and .env have different values; the one in the environment is used"
        found.append(note("keys", name, says, f"unset {name} to use the value in .env"))
    known = {name for provider in PROVIDERS.values() for name in provider.key_vars}
    others = [name for name in sorted(known - uses.keys()) if environ.get(name, "").strip()]
    found += [ok("keys", "others", f"also set: {', '.join(others)}")] if others else []
    for name in others:
        if odd := key_defect(environ[name]):
            fix = f"set {name} to the key alone, without anything around it"
            found.append(note("keys", name, f"set, but malformed: it {odd}; no model here uses this key", fix))
    return found


def _check_key(name: str, queries: Sequence[EndpointQuery], environ: Mapping[str, str]) -> Diagnosis:
    value, whom = environ.get(name, ""), ", ".join(dict.fromkeys(each.host for each in queries))
    if not value.strip():
        state = "not set" if name not in environ else "set, but empty"
        if all(is_loopback_url(each.endpoint.url) for each in queries):
            return ok("keys", name, f"{state}; {whom} is on this machine, and may not need a key")
        finding = problem if any(each.is_asked for each in queries) else note
        fix = f"export {name}, or put it into .env; or name another variable with -k, or another model with -m"
        return finding("keys", name, f"{state}; it would be sent to {whom}", fix)
    if odd := key_defect(value):
        says = f"set, but malformed: it {odd}; it would be sent to {whom}"
        return problem("keys", name, says, f"set {name} to the key alone, without anything around it")
    return ok("keys", name, f"set; sent to {whom}")


def unaskable(asked: EndpointQuery, environ: Mapping[str, str]) -> Diagnosis | None:
    """Return the finding for a model to which no request can be sent, because bench serves it itself, its key is
    missing or malformed, or litellm is not installed. None if a request can be sent."""
    endpoint, name = asked.endpoint, asked.name
    if is_reference(endpoint.model) and asked.is_embedded:
        return _embedded(name)
    key = environ.get(endpoint.key_var or "", "")
    if endpoint.key_var and not key.strip() and not is_loopback_url(endpoint.url):
        return note("endpoints", name, f"no request sent: {endpoint.key_var} is not set, see keys")
    if key_defect(key):
        return note("endpoints", name, f"no request sent: {endpoint.key_var} is malformed, see keys")
    if litellm_provider(endpoint.url) is not None:
        try:
            require_provider(endpoint.url)
        except ConfigError as error:
            return problem("endpoints", name, f"no request sent: {error}", "pip install 'bench-harness[litellm]'")
    return None


def _embedded(name: str) -> Diagnosis:
    """Check that bench can serve a reference model itself."""
    try:
        parse_model(name)
    except ConfigError as error:
        return problem("endpoints", name, str(error), "give an existing model with -m, such as reference/oracle")
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return ok("endpoints", name, "is served by bench itself: no endpoint and no key")
    except OSError as error:
        says = f"is served by bench itself, which cannot listen on 127.0.0.1: {error.strerror or error}"
        return problem("endpoints", name, says, "allow this process to listen on the loopback interface")


async def ask_all(asked: Sequence[EndpointQuery], environ: Mapping[str, str], seconds: float) -> list[Diagnosis]:
    """Send one request to every model concurrently.

    Args:
        asked: Queries for which `unaskable` returned None.
        environ: Environment variables with the API keys.
        seconds: Timeout of each request.

    Returns:
        One finding per query, in the same order.
    """
    # Its import takes seconds, which would use up the other requests' timeout.
    broken = await _broken_litellm([provider for each in asked if (provider := litellm_provider(each.endpoint.url))])
    if asked:  # aiohttp's import takes much of a second, which a short timeout for a dead host lacks
        await offload.run(import_module, "harness.models.transport")
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(_ask(each, environ, seconds, broken)) for each in asked]
    return [task.result() for task in asking]


async def _broken_litellm(providers: Sequence[str]) -> str:
    """Return the reason why the installed litellm cannot be imported; "" if it can be, or is not needed."""
    if not providers:
        return ""
    from harness.models import litellm

    try:
        await offload.run(litellm.load, providers[0])
    except Exception as error:  # a partly installed package can raise anything
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"
    return ""


async def _ask(asked: EndpointQuery, environ: Mapping[str, str], seconds: float, broken_litellm: str) -> Diagnosis:
    if broken_litellm and litellm_provider(asked.endpoint.url) is not None:
        says = f"no request sent: litellm cannot be imported: {broken_litellm}"
        return problem("endpoints", asked.name, says, f"{sys.executable} -m pip install --force-reinstall litellm")
    begun = time.monotonic()
    client: ChatClient | None = None
    try:
        target = target_of(asked.endpoint, environ)
        policy = HealthPolicy(refusals=1, connect_deadline=0.8 * seconds)
        client = ChatClient(
            target, Limiter(1.0), request_timeout=2.0 * seconds, request_retries=_MORE_TRIES,
            health=Health(target.label, policy), policy=_TRY_AGAIN,
        )  # fmt: skip
        refused = await ask_once(client, asked.endpoint.model, patience=seconds)
    except SystemicError as error:
        if UNKNOWN_PROMPT in str(error):
            says = "replied that the request is not from an environment, as `bench serve --env` does"
            return ok("endpoints", asked.name, says)
        return problem("endpoints", asked.name, _error_text(error, client), _advice(asked, error))
    except HarnessError as error:  # an invalid URL, header or proxy
        if "proxy" in str(error):
            return note("endpoints", asked.name, "no request sent: its proxy cannot be used, see network")
        return problem("endpoints", asked.name, str(error), f"correct the settings of {asked.whom}")
    except TimeoutError:
        says = f"accepts connections, but has not answered within {seconds:g} s: it may be loading the model"
        return note("endpoints", asked.name, says, "try again later, or with a larger --timeout")
    except Exception as error:  # errors of libraries for unforeseen addresses
        says = f"the request failed: {type(error).__name__}: {error}"
        return problem("endpoints", asked.name, says, f"correct the settings of {asked.whom}")
    finally:
        if client is not None:
            await client.close()
    if refused is not None:
        says = f"is reachable, but answered with an error: {_error_text(refused, client)}"
        return note("endpoints", asked.name, says, _PASSING.get(without_advice(refused)[1], _PASSES))
    return ok("endpoints", asked.name, f"replied in {time.monotonic() - begun:.2f} s{_secrecy(asked)}")


def _error_text(error: ModelError, client: ChatClient | None) -> str:
    """Format a client's error: without advice, without parts that the finding repeats, and with keys redacted."""
    label = f"{client.target.label}: " if client is not None else ""
    words = without_advice(error)[0].removeprefix(label).partition(", and it has never answered")[0]
    return _HALF_SHOWN.sub("[redacted]", words)


def _secrecy(asked: EndpointQuery) -> str:
    url = asked.endpoint.url
    is_open = urlsplit(url).scheme == "http" and not is_loopback_url(url)
    return "; the address is http, so prompts and keys are sent unencrypted" if is_open else ""


_PASSES = "runs wait and retry; if the error persists, see the provider's status page"
_PASSING = {
    "rate_limit": "runs wait and retry; if the error persists, lower --max-concurrent",
    "bad_request": "it rejected this short test request; check whether it accepts those of a run: bench run ENV -n 1",
    "bad_response": "if the error persists, check the base URL (-b): that of an OpenAI-compatible API usually ends in "
    "/v1",
}
"""Advice by error reason, for errors that may not occur in a run."""


_SIGNS = (
    ("CERTIFICATE", "trust its certificate: export SSL_CERT_FILE=FILE with your network's; also check the clock"),
    ("SSL", "check the scheme (http or https) of the base URL (-b)"),
    ("WRONG_VERSION_NUMBER", "check the scheme (http or https) of the base URL (-b)"),
    ("resolved", "check the host's name in the base URL (-b), and the connection to the network"),
    ("proxy", "check HTTPS_PROXY and HTTP_PROXY, or add the host to NO_PROXY"),
    ("at every attempt", "check the scheme (http or https) of the base URL (-b), and which program listens there"),
)
"""Advice on failed connections by words in the error; the first match is used."""


def _advice(asked: EndpointQuery, error: SystemicError) -> str:
    """Return advice on repairing an unusable endpoint, according to its error."""
    endpoint, words = asked.endpoint, str(error)
    if error.reason == "auth":
        if not endpoint.key_var:
            return 'name the variable that holds the key: -k NAME, or key = "NAME" in the registry'
        return f"set {endpoint.key_var} to a key that {asked.host} accepts and that has credit, or name another with -k"
    if error.reason == "not_found":
        models = (
            f"{endpoint.url.partition('?')[0].rstrip('/')}/models" if urlsplit(endpoint.url).scheme in _HTTP else ""
        )
        where = f"; {models} usually lists the available models" if models else ""
        return f"check the model's name (-m) and the base URL (-b, it usually ends in /v1){where}"
    if error.reason == "bad_response":
        return "check the base URL (-b): that of an OpenAI-compatible API usually ends in /v1"
    if is_loopback_url(endpoint.url):
        otherwise = "start the server, or give its address with -b"
    else:
        otherwise = "check the base URL (-b), the network, and whether a proxy or firewall blocks the connection"
    return next((advice for sign, advice in _SIGNS if sign in words), otherwise)
