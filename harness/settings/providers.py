"""Model providers: parse `provider/model`, and find the provider's base URL and key variable. Contains the table of
OpenAI-compatible providers and the list of those reached through litellm, but no keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from harness.core.errors import ConfigError, MissingApiKey
from harness.core.loopback import LITELLM_SCHEME, is_loopback_url, litellm_provider, plugin_provider
from harness.core.messages import Message, Name
from harness.core.plugins import PROVIDERS as PROVIDER_GROUP
from harness.core.plugins import load_plugins
from harness.settings import checks
from harness.settings.endpoint_selection import REFERENCE_PREFIX, is_reference, same_host
from harness.settings.layers import LayerValue
from harness.settings.wording import nearest, shown

SHARED_KEY_VAR = "LITELLM_API_KEY"
"""Environment variable used for any provider whose own key variable is not set."""

LITERAL_KEY_VAR = "BENCH_API_KEY"
"""Variable name that is recorded for a key that was passed as a value, since keys are recorded by name only."""

BASELINE_KEY_VAR = "BENCH_BASELINE_API_KEY"
"""Variable name that is recorded for the key of the baseline if it was passed as a value."""

INSTALL_LITELLM = "pip install 'bench-harness[litellm]'"

BARE_NAMES_GO_TO = "openai"


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """A provider of models: its address and its keys."""

    url: str
    """Base URL of the provider."""
    key_vars: tuple[str, ...] = ()
    """Environment variables that may contain the key, in order of precedence; empty if the provider needs no key."""
    base_vars: tuple[str, ...] = ()
    """Environment variables that override the base URL, in order of precedence."""
    suffix: str = ""
    """Suffix of the base URL that is added to the values of `base_vars`, which lack it by convention."""
    port: int | None = None
    """Default port of an address without one."""
    create: Callable[..., Any] | None = None
    """Creates the `harness.models.provider.Provider` of a `harness.models.target.RequestTarget`, which it gets with the
    keywords `timeout` and `connect_timeout` (seconds). None for the OpenAI wire format."""


PROVIDERS: Mapping[str, ProviderEntry] = {
    "openai": ProviderEntry("https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE")),
    "anthropic": ProviderEntry(
        "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), "/v1"
    ),
    "gemini": ProviderEntry(
        "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "groq": ProviderEntry("https://api.groq.com/openai/v1", ("GROQ_API_KEY",), ("GROQ_API_BASE",)),
    "mistral": ProviderEntry("https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), ("MISTRAL_API_BASE",), "/v1"),
    "cohere": ProviderEntry("https://api.cohere.ai/compatibility/v1", ("COHERE_API_KEY",)),
    "together_ai": ProviderEntry(
        "https://api.together.ai/v1",
        ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
        ("TOGETHER_AI_API_BASE",),
    ),
    "fireworks_ai": ProviderEntry(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
        ("FIREWORKS_API_BASE",),
    ),
    "deepseek": ProviderEntry("https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_API_BASE",)),
    "xai": ProviderEntry("https://api.x.ai/v1", ("XAI_API_KEY",), ("XAI_API_BASE",)),
    "openrouter": ProviderEntry("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), ("OPENROUTER_API_BASE",)),
    "perplexity": ProviderEntry(
        "https://api.perplexity.ai", ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"), ("PERPLEXITY_API_BASE",)
    ),
    "deepinfra": ProviderEntry("https://api.deepinfra.com/v1/openai", ("DEEPINFRA_API_KEY",), ("DEEPINFRA_API_BASE",)),
    "cerebras": ProviderEntry("https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), ("CEREBRAS_API_BASE",)),
    "ai21": ProviderEntry("https://api.ai21.com/studio/v1", ("AI21_API_KEY",), ("AI21_API_BASE",)),
    "sambanova": ProviderEntry("https://api.sambanova.ai/v1", ("SAMBANOVA_API_KEY",), ("SAMBANOVA_API_BASE",)),
    "nvidia_nim": ProviderEntry(
        "https://integrate.api.nvidia.com/v1", ("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY"), ("NVIDIA_NIM_API_BASE",)
    ),
    "github": ProviderEntry(
        "https://models.github.ai/inference", ("GITHUB_API_KEY", "GITHUB_TOKEN"), ("GITHUB_API_BASE",)
    ),
    "ollama": ProviderEntry("http://localhost:11434/v1", (), ("OLLAMA_API_BASE", "OLLAMA_HOST"), "/v1", 11434),
    "lm_studio": ProviderEntry("http://localhost:1234/v1", (), ("LM_STUDIO_API_BASE",)),
}
"""Called directly, without litellm. docs/reference/providers.md repeats the table; a test compares both."""

LITELLM_KEY_VARS: Mapping[str, str] = {"replicate": "REPLICATE_API_KEY"}
"""Litellm providers whose key is checked here, to report a missing one early. litellm itself finds the credentials of
other providers, which often need several variables."""

LITELLM_ADDRESSES: Mapping[str, str] = {
    "custom_openai": "",
    "hosted_vllm": "HOSTED_VLLM_API_BASE",
    "litellm_proxy": "LITELLM_PROXY_API_BASE",
    "lm_studio": "LM_STUDIO_API_BASE",
    "openai_like": "",
    "xinference": "XINFERENCE_API_BASE",
}
"""Litellm providers without an address of their own, with the variable that litellm reads it from ("" if none). Without
an address, litellm would send the request and the key to OpenAI."""

LITELLM_PROVIDERS = frozenset({
    "ai21_chat", "aiml", "amazon_nova", "anthropic_text", "azure", "azure_ai", "azure_text", "baseten", "bedrock",
    "bytez", "chutes", "clarifai", "cloudflare", "codestral", "cohere_chat", "cometapi", "compactifai",
    "dashscope", "databricks", "datarobot", "docker_model_runner", "empower", "featherless_ai", "friendliai",
    "galadriel", "gigachat", "gradient_ai", "heroku", "hosted_vllm", "huggingface", "hyperbolic", "lambda_ai",
    "lemonade", "litellm_proxy", "llamafile", "maritalk", "meta_llama", "minimax", "moonshot", "morph", "nano-gpt",
    "nebius", "nlp_cloud", "novita", "nscale", "oci", "ollama_chat", "ovhcloud", "poe", "predibase", "publicai",
    "replicate", "sagemaker", "sagemaker_chat", "sap", "snowflake", "synthetic", "v0", "vercel_ai_gateway",
    "vertex_ai", "volcengine", "wandb", "watsonx", "watsonx_text", "xinference", "zai",
})  # fmt: skip
"""Chat providers that litellm supports and the table lacks. `--base-url litellm://NAME` reaches any other.
`github_copilot` is excluded, because it waits for an interactive login."""


@dataclass(frozen=True, slots=True)
class Route:
    """Address, model name and key for the requests to a model."""

    model: str
    """Model name in requests."""
    url: str
    """Base URL; `litellm://<provider>` for litellm; empty for the embedded reference server."""
    key_var: str | None
    """Environment variable with the key; None sends no key, or lets litellm search for one."""
    provider: str
    """Name of the provider; "" if a base URL was given."""
    moved_by: str = ""
    """Environment variable that overrode the provider's base URL; "" if none did."""


def route(
    model: str,
    base_url: str | None,
    *,
    environ: Mapping[str, str],
    key_var: str | None = None,
    has_key: bool = False,
) -> Route:
    """Resolve a model name to an address, a model name for requests and a key variable.

    With a base URL, the name is sent unchanged, and only an explicitly given key is sent, since a key in an environment
    variable belongs to its provider. Without a base URL, `provider/model` names the provider; a name without `/` is one
    of OpenAI's.

    Args:
        model: Model name as typed.
        base_url: Base URL as typed; None or "" for none.
        environ: Environment variables with keys and base URLs.
        key_var: Environment variable that the user named for the key.
        has_key: Whether the key itself was given. Its variable is then `key_var` or, if None, `LITERAL_KEY_VAR`.

    Raises:
        ConfigError: the name is empty, the provider unknown, its key missing, or the base URL invalid.
    """
    model = model.strip()
    if not model:
        raise ConfigError("Model cannot be empty.", remedy="Pass a value with {model}.")
    given = key_var or (LITERAL_KEY_VAR if has_key else None)
    if base_url:
        url = _base_url(base_url, Name("api_base_url"))
        _require_given(given, url, environ, has_key)
        return Route(model, url, given, litellm_provider(url) or "")
    if is_reference(model):
        return Route(model, "", None, REFERENCE_PREFIX.rstrip("/"))
    provider, slash, name = model.partition("/")
    if not slash:
        provider, name = BARE_NAMES_GO_TO, model
    known = provider_entry(provider)
    if not name or (known is None and provider not in LITELLM_PROVIDERS and provider not in LITELLM_ADDRESSES):
        raise _unknown(model, provider, name)
    url, moved_by = (f"{LITELLM_SCHEME}://{provider}", "") if known is None else _address(known, environ)
    if known is not None and known.create is not None:
        url = f"{provider}+{url}"
    if known is None:
        require_address(provider, environ)
    _require_given(given, url, environ, has_key)
    found = given or _provider_key(provider, url, environ)
    return Route(name, url, found, provider, moved_by)


def key_owner(key_var: str) -> str | None:
    """Return the provider that uses the key variable `key_var`; None if no known provider uses it."""
    return next((name for name, provider in PROVIDERS.items() if key_var in provider.key_vars), None)


def refuse_default_host(who: str, url: LayerValue, key: LayerValue, named: Mapping[str, str], remedy: str) -> None:
    """Raise an error if a model would probably use the default host by mistake.

    This is the case if no layer sets the model's URL, and a layer sets another host or the key of a known provider.

    Args:
        who: The model and its run, for the message.
        url: Base URL of the model, with origin.
        key: Environment variable of the key, with origin.
        named: URLs that the user's settings give, with the source of each.
        remedy: Advice on setting the URL: the template of a message.

    Raises:
        ConfigError: the message names the layer with the other host or the key, and the remedy.
    """
    if url.origin.layer != "builtin" or not url.value or any(same_host(str(url.value), each) for each in named):
        return
    again = f"{remedy}, even if it is {{url}}"
    start = f"{who} would be sent to {url.value}, the default endpoint, because no setting gives its URL"
    for other, source in named.items():
        raise ConfigError(
            f"{start}; but {source} sets another host, {urlsplit(other).netloc}", remedy=again, url=url.value
        )
    if owner := key_owner(str(key.value or "")):
        raise ConfigError(
            f"{start}, with {key.value} ({key.origin.source}), an API key of {owner}", remedy=again, url=url.value
        )


def provider_entry(name: str) -> ProviderEntry | None:
    """Return the provider with this name, from the table or an installed plugin; None if no provider has this name."""
    known = PROVIDERS.get(name)
    if known is None and name not in LITELLM_PROVIDERS:
        known = load_plugins(PROVIDER_GROUP, ProviderEntry, name=name).get(name)
    return known


def require_provider(url: str) -> None:
    """Raise an error if a URL needs litellm or the provider plugin of another package and this is not installed.

    Raises:
        ConfigError: the message says what to install.
    """
    provider, plugin = litellm_provider(url), plugin_provider(url)
    if provider is not None and find_spec("litellm") is None:
        raise ConfigError(missing_litellm(provider))
    if plugin and ((entry := provider_entry(plugin)) is None or entry.create is None):
        raise ConfigError(
            f"{url.partition('?')[0]}: the provider {plugin!r} is not installed: install the package that declares it "
            "(entry-point group bench.providers), or remove its name from the URL"
        )


def require_address(provider: str, environ: Mapping[str, str]) -> None:
    """Raise an error if a litellm provider needs an address but none is set.

    Raises:
        ConfigError: the message explains how to set the address.
    """
    variable = LITELLM_ADDRESSES.get(provider)
    if variable is not None and not environ.get(variable, "").strip():
        rest = f", or set {variable}" if variable else ""
        raise ConfigError(
            f"{provider!r} has no default address: give your server's address as base URL, and the model's "
            "name as it is "
            f"served there{rest}"
        )


def missing_litellm(provider: str) -> str:
    """Return the message for a `provider` that needs litellm if litellm is not installed."""
    return (
        f"models of {provider!r} need litellm, which is not installed: {INSTALL_LITELLM}, or give the "
        "address of an OpenAI-compatible endpoint as base URL"
    )


def unknown_provider(model: str, details: Message) -> ConfigError:
    """Return the error for a model name without a known provider.

    Args:
        model: The name as typed.
        details: The cause.
    """
    return ConfigError(
        "Invalid LiteLLM model format. Use 'provider/model' (for example: openai/gpt-5-mini). "
        f"Received model={model!r}.",
        remedy="Details: {details}",
        details=details,
    )


def _unknown(model: str, provider: str, name: str) -> ConfigError:
    found = nearest(provider, [*PROVIDERS, *sorted(LITELLM_PROVIDERS)])
    if "://" in model:
        details = "give an address with {api_base_url}, and only the model's name with {model}"
    elif not name:
        details = "the model's name after {provider!r} is missing"
    elif found:
        details = "unknown provider {provider!r}; did you mean {found!r}?"
    else:
        details = "unknown provider {provider!r}; for your own server, give its address with {api_base_url}"
    return unknown_provider(model, Message(details, provider=provider, found=f"{found}/{name}"))


def _address(provider: ProviderEntry, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the base URL of a provider, and the environment variable that overrides the default ("" if none does)."""
    for name in provider.base_vars:
        text = environ.get(name, "").strip()
        if text:
            if provider.port is not None:
                text = _with_port(text, provider.port)
            url = _base_url(text, name)
            if litellm_provider(url) is not None:  # the provider's key is sent there
                raise ConfigError(f"{name} = {shown(text)}: must be an http or https URL")
            return (url if url.endswith(provider.suffix) else url + provider.suffix), name
    return provider.url, ""


def _with_port(text: str, port: int) -> str:
    """Convert an address in the forms of `OLLAMA_HOST` (`0.0.0.0`, `:8080`, `host`, `host:port` or a URL) to a URL."""
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        own = parts.port
    except ValueError:
        return text  # rejected by the check that follows, with the variable's name
    host = parts.hostname or ""
    if host in ("", "0.0.0.0", "::"):  # addresses to listen on; a client connects to localhost
        host = "localhost"
    host = f"[{host}]" if ":" in host else host
    standard = {"http": port, "https": 443}.get(parts.scheme, port)
    return f"{parts.scheme}://{host}:{own or standard}{parts.path}"


def _base_url(text: str, source: str) -> str:
    try:
        return checks.url(text.strip())
    except ValueError as exc:
        wrong = Message("{source} = {text}: {problem}", source=source, text=shown(text), problem=exc)
        raise ConfigError(wrong) from None


def _require_given(given: str | None, url: str, environ: Mapping[str, str], has_key: bool) -> None:
    """Raise an error if a key variable named by the user is not set. A local server may need no key."""
    if given is None or has_key or is_loopback_url(url) or environ.get(given, "").strip():
        return
    try:
        checks.variable(given)
    except ValueError as exc:  # not shown: may be the key itself
        raise ConfigError(exc, setting="api_key_var") from None
    raise ConfigError(
        Message("{api_key_var} {given}: the environment variable is not set", given=given),
        remedy="export it, put it into .env, or pass {api_key}",
    )


def _provider_key(provider: str, url: str, environ: Mapping[str, str]) -> str | None:
    known = provider_entry(provider)
    names = known.key_vars if known is not None else tuple(filter(None, [LITELLM_KEY_VARS.get(provider)]))
    if not names:
        return None
    for name in (*names, SHARED_KEY_VAR):
        if environ.get(name, "").strip():
            return name
    if is_loopback_url(url):
        return None
    raise MissingApiKey(
        f"Missing API key for provider {provider!r}.",
        remedy="Set {name} or {shared}, or pass {api_key}.",
        name=names[0],
        shared=SHARED_KEY_VAR,
    )
