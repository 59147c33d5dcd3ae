"""One cheap request for each model at each endpoint, side by side. Owns what the answers mean for people; the request
is `clients.preflight`'s, sent by the client that runs use."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.clients.chat import ChatClient, Exchange
from harness.clients.health import Health, HealthPolicy
from harness.clients.limits import Limiter
from harness.clients.pool import target_of
from harness.clients.preflight import ask_once
from harness.config.endpoints import Endpoint
from harness.config.providers import require_litellm
from harness.config.serving import is_reference
from harness.doctor.clock import Told
from harness.doctor.credentials import oddity
from harness.doctor.findings import Finding, note, ok, problem
from harness.doctor.packages import is_known_bad
from harness.errors import ConfigError, HarnessError, ModelError, SystemicError
from harness.loopback import is_loopback_url, litellm_provider
from harness.offload import offload

if TYPE_CHECKING:
    from harness.clients.transport import Reply

_HTTP = {"http", "https"}

_HALF_SHOWN = re.compile(r"[^\s\"']*\*{2,}[^\s\"']*")
"""How providers repeat a key that they refuse: its beginning and its end, with asterisks between."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One model at one endpoint."""

    endpoint: Endpoint
    whom: str
    """Who would ask it: an alias, or names of runs; for people."""
    is_asked: bool = True
    """Whether the user named it, or what needs it."""

    @property
    def host(self) -> str:
        """The endpoint, as people know it."""
        provider = litellm_provider(self.endpoint.url)
        return f"{provider} (litellm)" if provider is not None else urlsplit(self.endpoint.url).netloc

    @property
    def is_embedded(self) -> bool:
        """Whether the embedded reference server plays it."""
        return not self.endpoint.url

    @property
    def name(self) -> str:
        """As findings call it."""
        return self.endpoint.model if self.is_embedded else f"{self.endpoint.model} at {self.host}"

    @property
    def request(self) -> str:
        """What is sent, for people."""
        return f"one message and one token to {self.host} for {self.endpoint.model}"


@dataclass(slots=True)
class _Ear:
    """An exchange that keeps the dates of replies."""

    exchange: Exchange
    who: str
    told: list[Told]

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None) -> Reply:
        """See `Exchange`."""
        sent = time.time()
        reply = await self.exchange.post(path, body, headers)
        if date := reply.headers.get("Date"):
            self.told.append(Told(self.who, date, sent, time.time()))
        return reply

    async def probe(self, seconds: float) -> bool:
        """See `Exchange`."""
        return await self.exchange.probe(seconds)

    async def close(self) -> None:
        """See `Exchange`."""
        await self.exchange.close()


class _Listener(ChatClient):
    """A client that listens for dates."""

    told: list[Told]

    def _exchange(self, connect_timeout: float) -> Exchange:
        return _Ear(super()._exchange(connect_timeout), self.target.label, self.told)


@dataclass(slots=True)
class Answers:
    """What came of all requests."""

    findings: list[Finding] = field(default_factory=list[Finding])
    told: list[Told] = field(default_factory=list[Told])


def unaskable(asked: Asked, environ: Mapping[str, str]) -> Finding | None:
    """What is to be said of a model that is not asked, since there is nothing to ask or it would be no use."""
    endpoint, name = asked.endpoint, asked.name
    if is_reference(endpoint.model) and asked.is_embedded:
        return _embedded(name)
    key = environ.get(endpoint.key_var or "", "")
    if endpoint.key_var and not key.strip() and not is_loopback_url(endpoint.url):
        return note("endpoints", name, f"not asked: {endpoint.key_var} is not set, see keys")
    if oddity(key):
        return note("endpoints", name, f"not asked: {endpoint.key_var} is odd, see keys")
    if litellm_provider(endpoint.url) is not None:
        if is_known_bad("litellm"):
            return note("endpoints", name, "not asked: the litellm that is installed carries malware, see packages")
        try:
            require_litellm(endpoint.url)
        except ConfigError as error:
            return problem("endpoints", name, f"not asked: {error}", "pip install 'bench-harness[litellm]'")
    return None


def _embedded(name: str) -> Finding:
    """Whether bench can serve a reference model itself."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return ok("endpoints", name, "is played by bench itself: no endpoint and no key")
    except OSError as error:
        says = f"is played by bench itself, which cannot listen on 127.0.0.1: {error.strerror or error}"
        return problem("endpoints", name, says, "allow this process to listen on the loopback interface")


async def ask_all(asked: Sequence[Asked], environ: Mapping[str, str], seconds: float) -> Answers:
    """Ask every model once, at the same time.

    Args:
        asked: Each of which `unaskable` had nothing to say.
        environ: Where keys are looked up.
        seconds: How long each may take.

    Returns:
        One finding for each, in their order, and the dates of their replies.
    """
    answers = Answers()
    through_litellm = next((provider for each in asked if (provider := litellm_provider(each.endpoint.url))), None)
    if through_litellm is not None:
        from harness.clients import litellm

        # Its import takes seconds, in which the others' time would run out.
        await offload.run(litellm.load, through_litellm)
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(_ask(each, environ, seconds, answers.told)) for each in asked]
    answers.findings += [task.result() for task in asking]
    return answers


async def _ask(asked: Asked, environ: Mapping[str, str], seconds: float, told: list[Told]) -> Finding:
    begun = time.monotonic()
    client: _Listener | None = None
    try:
        target = target_of(asked.endpoint, environ)
        policy = HealthPolicy(refusals=1, connect_deadline=0.8 * seconds)
        client = _Listener(
            target, Limiter(1.0), request_timeout=2.0 * seconds, request_retries=0, health=Health(target.label, policy)
        )
        client.told = told
        refused = await ask_once(client, asked.endpoint.model, patience=seconds)
    except SystemicError as error:
        return problem("endpoints", asked.name, _words(error, client), _advice(asked, error))
    except HarnessError as error:  # a URL, header or proxy that cannot be used
        if "proxy" in str(error):
            return note("endpoints", asked.name, "not asked: its proxy cannot be used, see network")
        return problem("endpoints", asked.name, str(error), f"correct the settings of {asked.whom}")
    except TimeoutError:
        says = f"takes the request, and has not answered within {seconds:g} s: it may be loading the model"
        return note("endpoints", asked.name, says, "try again later, or with a larger --timeout")
    finally:
        if client is not None:
            await client.close()
    if refused is not None:
        fix = "runs wait and try again; if it stays so, lower --max-concurrent or see the provider's status page"
        return note("endpoints", asked.name, f"is there, but answered: {_words(refused, client)}", fix)
    return ok("endpoints", asked.name, f"replied in {time.monotonic() - begun:.2f} s{_secrecy(asked)}")


def _words(error: ModelError, client: ChatClient | None) -> str:
    """What a client says went wrong, without what its finding says as well."""
    label = f"{client.target.label}: " if client is not None else ""
    return _HALF_SHOWN.sub("[redacted]", str(error).removeprefix(label).partition(", and it has never answered")[0])


def _secrecy(asked: Asked) -> str:
    url = asked.endpoint.url
    is_open = urlsplit(url).scheme == "http" and not is_loopback_url(url)
    return "; its address is http, so that prompts and keys travel in clear text" if is_open else ""


def _advice(asked: Asked, error: SystemicError) -> str:
    """What to do about an endpoint that cannot be used."""
    endpoint, words = asked.endpoint, str(error)
    if error.reason == "auth":
        if not endpoint.key_var:
            return 'name the variable that holds the key: -k NAME, or key = "NAME" in the registry'
        return f"set {endpoint.key_var} to a key that {asked.host} takes and that has credit, or name another with -k"
    if error.reason == "not_found":
        models = (
            f"{endpoint.url.partition('?')[0].rstrip('/')}/models" if urlsplit(endpoint.url).scheme in _HTTP else ""
        )
        where = f"; {models} usually lists what there is" if models else ""
        return f"check the model's name (-m) and the base URL (-b, it usually ends in /v1){where}"
    if error.reason == "bad_response":
        return "check the base URL (-b): that of an OpenAI-compatible API usually ends in /v1"
    if "CERTIFICATE" in words:
        return "trust its certificate: export SSL_CERT_FILE=FILE with that of your network; see also the clock"
    if "SSL" in words or "WRONG_VERSION_NUMBER" in words:
        return "check http against https in the base URL (-b)"
    if "resolved" in words:
        return "check the host's name in the base URL (-b), and the connection to the network"
    if "proxy" in words:
        return "check HTTPS_PROXY and HTTP_PROXY, or add the host to NO_PROXY"
    if is_loopback_url(endpoint.url):
        return "start the server, or name where it listens with -b"
    return "check the base URL (-b), the network, and whether a proxy or firewall stands between"
