"""Whom a model's name leads to: the table of providers with an OpenAI-compatible API, their key variables, and which
names litellm serves. Owns the reading of `provider/model`; sends nothing and holds no key, only names of variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit

from harness.core.errors import ConfigError
from harness.core.loopback import LITELLM_SCHEME, is_loopback_url, litellm_provider
from harness.settings import checks
from harness.settings.layers import LayerValue
from harness.settings.serving import REFERENCE_PREFIX, is_reference, same_host
from harness.settings.wording import nearest, shown

SHARED_KEY_VAR = "LITELLM_API_KEY"
"""Holds the key of any provider whose own variable is not set."""

LITERAL_KEY_VAR = "BENCH_API_KEY"
"""What a key that was given as a value goes by, since settings and run folders name variables only."""

BASELINE_KEY_VAR = "BENCH_BASELINE_API_KEY"
"""The same for the baseline: two models may have two keys."""

INSTALL_LITELLM = "pip install 'bench-harness[litellm]'"

BARE_NAMES_GO_TO = "openai"


@dataclass(frozen=True, slots=True)
class Provider:
    """Where one provider answers in the OpenAI wire format."""

    url: str
    """Base URL."""
    key_vars: tuple[str, ...] = ()
    """Variables that may hold the key, in the order in which they are read; a provider without any takes no key."""
    base_vars: tuple[str, ...] = ()
    """Variables that move the base URL, in the order in which they are read."""
    suffix: str = ""
    """What those leave out of the base URL by their own convention."""
    port: int | None = None
    """The port of an address without one."""


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE")),
    "anthropic": Provider(
        "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), "/v1"
    ),
    "gemini": Provider("https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "groq": Provider("https://api.groq.com/openai/v1", ("GROQ_API_KEY",), ("GROQ_API_BASE",)),
    "mistral": Provider("https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), ("MISTRAL_API_BASE",), "/v1"),
    "cohere": Provider("https://api.cohere.ai/compatibility/v1", ("COHERE_API_KEY",)),
    "together_ai": Provider(
        "https://api.together.ai/v1",
        ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
        ("TOGETHER_AI_API_BASE",),
    ),
    "fireworks_ai": Provider(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
        ("FIREWORKS_API_BASE",),
    ),
    "deepseek": Provider("https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_API_BASE",)),
    "xai": Provider("https://api.x.ai/v1", ("XAI_API_KEY",), ("XAI_API_BASE",)),
    "openrouter": Provider("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), ("OPENROUTER_API_BASE",)),
    "perplexity": Provider(
        "https://api.perplexity.ai", ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"), ("PERPLEXITY_API_BASE",)
    ),
    "deepinfra": Provider("https://api.deepinfra.com/v1/openai", ("DEEPINFRA_API_KEY",), ("DEEPINFRA_API_BASE",)),
    "cerebras": Provider("https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), ("CEREBRAS_API_BASE",)),
    "ai21": Provider("https://api.ai21.com/studio/v1", ("AI21_API_KEY",), ("AI21_API_BASE",)),
    "sambanova": Provider("https://api.sambanova.ai/v1", ("SAMBANOVA_API_KEY",), ("SAMBANOVA_API_BASE",)),
    "nvidia_nim": Provider(
        "https://integrate.api.nvidia.com/v1", ("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY"), ("NVIDIA_NIM_API_BASE",)
    ),
    "github": Provider("https://models.github.ai/inference", ("GITHUB_API_KEY", "GITHUB_TOKEN"), ("GITHUB_API_BASE",)),
    "ollama": Provider("http://localhost:11434/v1", (), ("OLLAMA_API_BASE", "OLLAMA_HOST"), "/v1", 11434),
    "lm_studio": Provider("http://localhost:1234/v1", (), ("LM_STUDIO_API_BASE",)),
}
"""Asked directly, without litellm. docs/guides/models.md repeats the table, and a test compares the two."""

LITELLM_KEY_VARS: Mapping[str, str] = {"replicate": "REPLICATE_API_KEY"}
"""Providers behind litellm whose key is looked up here, so that a missing one is said before anything is loaded. The
others' credentials are litellm's to find: many are more than one variable."""

LITELLM_ADDRESSES: Mapping[str, str] = {
    "custom_openai": "",
    "hosted_vllm": "HOSTED_VLLM_API_BASE",
    "litellm_proxy": "LITELLM_PROXY_API_BASE",
    "lm_studio": "LM_STUDIO_API_BASE",
    "openai_like": "",
    "xinference": "XINFERENCE_API_BASE",
}
"""Providers that are wherever their user put them, with the variable that tells litellm where (empty: none does).
Without it litellm asks OpenAI, with the key that was meant for another."""

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
"""Chat providers that litellm serves and the table does not. `--base-url litellm://NAME` reaches any other one. Without
`github_copilot`, which asks whoever sits at the terminal to log in, and waits."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a model is asked, by which name, and with which key."""

    model: str
    """The name that is sent."""
    url: str
    """Base URL; `litellm://<provider>` when litellm asks; empty for the embedded reference server."""
    key_var: str | None
    """Variable that holds the key; None sends none, or behind litellm leaves the search to it."""
    provider: str
    """The provider's name; empty when a base URL was given."""
    moved_by: str = ""
    """The variable that moved the provider's base URL, if one did."""


def route(
    model: str,
    base_url: str | None,
    *,
    environ: Mapping[str, str],
    key_var: str | None = None,
    has_key: bool = False,
    baseline: bool = False,
) -> Route:
    """Say where `model` is asked.

    With a base URL the name is sent as it is, and no key but one that was given: a key in the environment belongs to
    its provider, not to whoever listens there. Without one, `provider/model` names the provider, and a name without a
    `/` is one of OpenAI's.

    Args:
        model: As it was typed.
        base_url: As it was typed; None or "" for none.
        environ: Where key and base URL variables are looked up.
        key_var: Variable that was named to hold the key.
        has_key: The key itself was given; it goes by `key_var`, or by `LITERAL_KEY_VAR` (`BASELINE_KEY_VAR`).
        baseline: The messages are to name the baseline's options.

    Raises:
        ConfigError: the name is empty, the provider unknown, its key missing, or a base URL none.
    """
    dash = "--baseline-" if baseline else "--"
    model = model.strip()
    if not model:
        raise ConfigError(f"Model cannot be empty. Pass a value with {dash}model.")
    given = key_var or ((BASELINE_KEY_VAR if baseline else LITERAL_KEY_VAR) if has_key else None)
    if base_url:
        url = _base_url(base_url, f"{dash}base-url")
        _require_given(given, url, environ, has_key, dash)
        return Route(model, url, given, litellm_provider(url) or "")
    if is_reference(model):
        return Route(model, "", None, REFERENCE_PREFIX.rstrip("/"))
    provider, slash, name = model.partition("/")
    if not slash:
        provider, name = BARE_NAMES_GO_TO, model
    if not name or not any(provider in known for known in (PROVIDERS, LITELLM_PROVIDERS, LITELLM_ADDRESSES)):
        raise ConfigError(_unknown(model, provider, name, dash))
    known = PROVIDERS.get(provider)
    url, moved_by = (f"{LITELLM_SCHEME}://{provider}", "") if known is None else _address(known, environ)
    if known is None:
        require_address(provider, environ)
    _require_given(given, url, environ, has_key, dash)
    found = given or _provider_key(provider, url, environ, f"{dash}api-key")
    return Route(name, url, found, provider, moved_by)


def key_owner(key_var: str) -> str | None:
    """The provider whose key `key_var` holds by its own convention; None for any other variable."""
    return next((name for name, provider in PROVIDERS.items() if key_var in provider.key_vars), None)


def refuse_default_host(who: str, url: LayerValue, key: LayerValue, named: Mapping[str, str], remedy: str) -> None:
    """Refuse to ask at the default host only because no layer names a url, where that was hardly meant: some layer
    names another host, or the key is that of a known provider.

    Args:
        who: The model that would be asked, and what of.
        url: Where it would be asked.
        key: The variable with the key that would be sent.
        named: Every url that a layer names, with its source; see `serving.Served`.
        remedy: How to name its url.

    Raises:
        ConfigError: names the layer with the other host or the key, and what to do.
    """
    if url.origin.layer != "builtin" or not url.value or any(same_host(str(url.value), each) for each in named):
        return
    told = f"{who} would be asked at {url.value}, the default, because no layer names its url, "
    for other, source in named.items():
        raise ConfigError(f"{told}while {source} names {urlsplit(other).netloc}; {remedy}, also if it is {url.value}")
    if owner := key_owner(str(key.value or "")):
        raise ConfigError(
            f"{told}with {key.value}, the key of {owner} ({key.origin.source}); {remedy}, also if it is {url.value}"
        )


def require_litellm(url: str) -> None:
    """Refuse a URL that needs litellm where it is not installed.

    Raises:
        ConfigError: says what to install.
    """
    provider = litellm_provider(url)
    if provider is not None and find_spec("litellm") is None:
        raise ConfigError(missing_litellm(provider))


def require_address(provider: str, environ: Mapping[str, str]) -> None:
    """Refuse a provider behind litellm that is nowhere in particular.

    Raises:
        ConfigError: says how to give its address.
    """
    variable = LITELLM_ADDRESSES.get(provider)
    if variable is not None and not environ.get(variable, "").strip():
        rest = f", or set {variable}" if variable else ""
        raise ConfigError(
            f"{provider!r} has no address of its own: give your server's as base URL, with the model's name as it is "
            f"served there{rest}"
        )


def missing_litellm(provider: str) -> str:
    """What to say when `provider` needs litellm and it is not installed."""
    return (
        f"models of {provider!r} are asked through litellm, which is not installed: {INSTALL_LITELLM}, or give the "
        "address of an OpenAI-compatible endpoint as base URL"
    )


def unknown_provider(model: str, details: str) -> str:
    """What to say about a name that leads to no provider."""
    return (
        "Invalid LiteLLM model format. Use 'provider/model' (for example: openai/gpt-5-mini). "
        f"Received model={model!r}. Details: {details}"
    )


def _unknown(model: str, provider: str, name: str, dash: str) -> str:
    if "://" in model:
        return unknown_provider(model, f"an address is given with {dash}base-url, and only the name with {dash}model")
    if not name:
        return unknown_provider(model, f"there is no model's name after {provider!r}")
    found = nearest(provider, [*PROVIDERS, *sorted(LITELLM_PROVIDERS)])
    hint = (
        f"did you mean '{found}/{name}'?"
        if found
        else f"for a server of your own, give its address with {dash}base-url"
    )
    return unknown_provider(model, f"no provider is called {provider!r}; {hint}")


def _address(provider: Provider, environ: Mapping[str, str]) -> tuple[str, str]:
    """Base URL, and the variable that it comes from."""
    for name in provider.base_vars:
        text = environ.get(name, "").strip()
        if text:
            if provider.port is not None:
                text = _with_port(text, provider.port)
            url = _base_url(text, name)
            if litellm_provider(url) is not None:  # the key that goes along is this provider's
                raise ConfigError(f"{name} = {shown(text)}: must be an http or https URL")
            return (url if url.endswith(provider.suffix) else url + provider.suffix), name
    return provider.url, ""


def _with_port(text: str, port: int) -> str:
    """An address as `OLLAMA_HOST` may hold it (`0.0.0.0`, `:8080`, `host`, `host:port` or a URL), as one to call."""
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        own = parts.port
    except ValueError:
        return text  # refused, with its variable's name, by the check that follows
    host = parts.hostname or ""
    if host in ("", "0.0.0.0", "::"):  # what a server listens on; a client calls the machine itself
        host = "localhost"
    host = f"[{host}]" if ":" in host else host
    standard = {"http": port, "https": 443}.get(parts.scheme, port)
    return f"{parts.scheme}://{host}:{own or standard}{parts.path}"


def _base_url(text: str, source: str) -> str:
    try:
        return checks.url(text.strip())
    except ValueError as exc:
        raise ConfigError(f"{source} = {shown(text)}: {exc}") from None


def _require_given(given: str | None, url: str, environ: Mapping[str, str], has_key: bool, dash: str) -> None:
    """A variable that was named has to be set, except for a server on this machine, which may need none."""
    if given is None or has_key or is_loopback_url(url) or environ.get(given, "").strip():
        return
    try:
        checks.variable(given)
    except ValueError as exc:  # not repeated: it may be the key
        raise ConfigError(f"{dash}api-key-var: {exc}") from None
    raise ConfigError(
        f"{dash}api-key-var {given}: the environment variable is not set; export it, put it into .env, "
        f"or pass {dash}api-key"
    )


def _provider_key(provider: str, url: str, environ: Mapping[str, str], option: str) -> str | None:
    known = PROVIDERS.get(provider)
    names = known.key_vars if known is not None else tuple(filter(None, [LITELLM_KEY_VARS.get(provider)]))
    if not names:
        return None
    for name in (*names, SHARED_KEY_VAR):
        if environ.get(name, "").strip():
            return name
    if is_loopback_url(url):
        return None
    raise ConfigError(
        f"Missing API key for provider {provider!r}. Set {names[0]} or {SHARED_KEY_VAR}, or pass {option}."
    )
