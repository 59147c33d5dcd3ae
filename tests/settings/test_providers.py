"""Where a model's name leads, and whose key goes with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tables import for_each_row

from harness.cli.labels import BASELINE, EVAL
from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback_url, litellm_provider
from harness.core.redact import redactor
from harness.settings.checks import url as check_url
from harness.settings.providers import (
    BASELINE_KEY_VAR,
    LITELLM_KEY_VARS,
    LITELLM_PROVIDERS,
    LITERAL_KEY_VAR,
    PROVIDERS,
    SHARED_KEY_VAR,
    Route,
    require_provider,
    route,
)
from harness.settings.resolver import missing_keys, resolve

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "providers.md"

AMBIENT = {"OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-ant", SHARED_KEY_VAR: "sk-shared"}


def refused(
    model: str, base_url: str | None = None, environ: Mapping[str, str] | None = None, *, baseline: bool = False
) -> str:
    with pytest.raises(ConfigError) as caught:
        route(model, base_url, environ=environ or {})
    return caught.value.text(BASELINE if baseline else EVAL)


@for_each_row("name", ["my-model", "my-org/my-llama", "openai/gpt-oss-20b", "litellm/x", "reference/oracle"])
def test_with_a_base_url_the_name_goes_out_as_it_is_and_no_key_of_the_environment_with_it(name: str) -> None:
    found = route(name, "https://vllm.example:8000/v1/", environ=AMBIENT)
    assert found == Route(name, "https://vllm.example:8000/v1", None, "")


def test_with_a_base_url_a_key_is_sent_that_was_given() -> None:
    url = "https://vllm.example/v1"
    assert route("m", url, environ={"MINE": "k"}, key_var="MINE").key_var == "MINE"
    assert route("m", url, environ={}, has_key=True).key_var == LITERAL_KEY_VAR == "BENCH_API_KEY"
    assert LITERAL_KEY_VAR != BASELINE_KEY_VAR
    assert route("m", url, environ={}, key_var="MINE", has_key=True).key_var == "MINE"


def test_a_variable_that_was_named_must_be_set_except_for_this_machine() -> None:
    with pytest.raises(ConfigError) as unset:
        route("m", "https://vllm.example/v1", environ={"MINE": " "}, key_var="MINE")
    words = r"^--api-key-var MINE: the environment variable is not set;.*--api-key$"
    assert re.match(words, unset.value.text(EVAL))
    with pytest.raises(ConfigError) as unset:
        route("openai/m", None, environ=AMBIENT, key_var="MINE")
    assert re.match(r"^--baseline-api-key-var MINE: .*--baseline-api-key$", unset.value.text(BASELINE))
    assert route("m", "http://127.0.0.1:8000/v1", environ={}, key_var="MINE").key_var == "MINE"


@for_each_row(
    ("text", "words"),
    [
        ("localhost:8000", r'^--base-url = "localhost:8000": must be an http or https URL'),
        ("https://me:pw@host/v1", r"^--base-url = .*must not contain a user or password"),
        ("litellm://", r"^--base-url = .*must be litellm:// followed by the name"),
        ("litellm://anthropic/v1", r"^--base-url = .*must be litellm:// followed by the name"),
        ("litellm://Anthropic", r"^--base-url = .*must be litellm:// followed by the name"),
        (
            "https://host/v1?api-version=1&key=canary-0123",
            r"^--base-url = .*must not contain a key, since run folders",
        ),
        (
            "https://host/v1?Subscription-Key=canary-0123",
            r"^--base-url = .*must not contain a key, since run folders",
        ),
        (
            "https://host/v1?access_token=canary-0123",
            r"^--base-url = .*must not contain a key, since run folders",
        ),
        ("https://host/v1/token/canary-0123", r"^--base-url = .*must not contain a key, since run folders record"),
        ("https://host/v1/api%4Bey%2Fcanary-0123", r"^--base-url = .*must not contain a key, since run folders record"),
        (
            "https://host/sk-canary0123canary0123/v1",
            r"^--base-url = .*must not contain a key, since run folders",
        ),
        (
            "https://host/aB3dE6gH9jK2mN5pQ8sT1vW4/v1",
            r"^--base-url = .*must not contain a key, since run folders",
        ),
        ("https://host/v1;key=canary-0123", r"^--base-url = .*must not contain ; or #"),
        ("https://host/v1#canary-0123", r"^--base-url = .*must not contain ; or #"),
    ],
)
def test_a_base_url_that_is_none_is_refused(text: str, words: str) -> None:
    assert re.search(words, refused("m", text))
    assert "canary" not in redactor.text(refused("m", text))


def test_a_base_url_may_hold_a_version() -> None:
    url = "https://host/openai/v1?api-version=2025-01-01&max_tokens=1"
    assert route("m", url, environ={}).url == url


def test_a_base_url_may_leave_the_address_to_litellm() -> None:
    assert route("claude-x", "litellm://anthropic", environ=AMBIENT) == Route(
        "claude-x", "litellm://anthropic", None, "anthropic"
    )
    assert route("claude-x", "litellm://anthropic/", environ={"MINE": "k"}, key_var="MINE").key_var == "MINE"


@for_each_row(
    ("model", "sent", "url", "key", "provider"),
    [
        ("gpt-5-mini", "gpt-5-mini", "https://api.openai.com/v1", "OPENAI_API_KEY", "openai"),
        (" openai/gpt-5-mini ", "gpt-5-mini", "https://api.openai.com/v1", "OPENAI_API_KEY", "openai"),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY",
         "anthropic"),
        ("openrouter/a/b:free", "a/b:free", "https://openrouter.ai/api/v1", SHARED_KEY_VAR, "openrouter"),
        ("ollama/llama3.2:3b", "llama3.2:3b", "http://localhost:11434/v1", None, "ollama"),
        ("bedrock/eu.amazon.nova", "eu.amazon.nova", "litellm://bedrock", None, "bedrock"),
        ("replicate/meta/llama", "meta/llama", "litellm://replicate", SHARED_KEY_VAR, "replicate"),
        ("reference/oracle", "reference/oracle", "", None, "reference"),
    ],
)  # fmt: skip
def test_without_a_base_url_the_name_says_where(
    model: str, sent: str, url: str, key: str | None, provider: str
) -> None:
    assert route(model, None, environ=AMBIENT) == Route(sent, url, key, provider)
    assert route(model, "", environ=AMBIENT).url == url


@for_each_row("provider", sorted(name for name, each in PROVIDERS.items() if each.key_vars))
def test_a_key_is_looked_for_where_the_provider_keeps_it_then_in_the_shared_variable(provider: str) -> None:
    names = PROVIDERS[provider].key_vars
    environ = {SHARED_KEY_VAR: "shared", "SOMEBODY_ELSES_API_KEY": "no"}
    assert route(f"{provider}/m", None, environ=environ).key_var == SHARED_KEY_VAR
    for name in reversed(names):
        environ[name] = "own"
        assert route(f"{provider}/m", None, environ=environ).key_var == name
    environ |= dict.fromkeys(names, " \n")  # what `export KEY="$(cat nothing)"` leaves
    assert route(f"{provider}/m", None, environ=environ).key_var == SHARED_KEY_VAR
    assert refused(f"{provider}/m") == (
        f"Missing API key for provider '{provider}'. Set {names[0]} or LITELLM_API_KEY, or pass --api-key."
    )


def test_the_documented_texts() -> None:
    assert refused("anthropic/claude-sonnet-4-5") == (
        "Missing API key for provider 'anthropic'. Set ANTHROPIC_API_KEY or LITELLM_API_KEY, or pass --api-key."
    )
    assert refused("gpt-4o", None, {}, baseline=True) == (
        "Missing API key for provider 'openai'. Set OPENAI_API_KEY or LITELLM_API_KEY, or pass --baseline-api-key."
    )
    assert refused("replicate/m").startswith("Missing API key for provider 'replicate'. Set REPLICATE_API_KEY or")
    assert refused(" ") == "Model cannot be empty. Pass a value with --model."
    assert refused("", "http://localhost:1/v1", baseline=True) == (
        "Model cannot be empty. Pass a value with --baseline-model."
    )
    start = "Invalid LiteLLM model format. Use 'provider/model' (for example: openai/gpt-5-mini). Received model="
    assert refused("foo/bar") == (
        f"{start}'foo/bar'. Details: unknown provider 'foo'; for your own server, give its address with --base-url"
    )
    assert refused("antropic/claude/x") == (
        f"{start}'antropic/claude/x'. Details: unknown provider 'antropic'; did you mean 'anthropic/claude/x'?"
    )
    assert refused("OpenAI/gpt").endswith("did you mean 'openai/gpt'?")
    assert refused("openai/") == f"{start}'openai/'. Details: the model's name after 'openai' is missing"


@for_each_row("model", ["http://localhost:8000/v1", "litellm://anthropic/claude-x", "https://api.x/v1/m"])
def test_an_address_is_no_models_name(model: str) -> None:
    details = "give an address with --base-url, and only the model's name with --model"
    assert refused(model, None, AMBIENT).endswith(f"Received model={model!r}. Details: {details}")


@for_each_row(
    ("provider", "variable"),
    [("hosted_vllm", "HOSTED_VLLM_API_BASE"), ("litellm_proxy", "LITELLM_PROXY_API_BASE"), ("custom_openai", "")],
)
def test_a_provider_without_an_address_is_not_taken_for_openai(provider: str, variable: str) -> None:
    words = (
        f"{provider!r} has no default address: give your server's address as base URL, and the model's name as it is "
    )
    rest = f", or set {variable}" if variable else ""
    assert refused(f"{provider}/m", None, AMBIENT) == f"{words}served there{rest}"
    assert refused(f"{provider}/m", None, {**AMBIENT, variable or "OTHER": " "}) == f"{words}served there{rest}"
    if variable:
        here = {**AMBIENT, variable: "http://localhost:8000/v1"}
        assert route(f"{provider}/m", None, environ=here) == Route("m", f"litellm://{provider}", None, provider)


def test_a_provider_that_asks_the_terminal_to_log_in_is_not_among_them() -> None:
    assert "unknown provider 'github_copilot'" in refused("github_copilot/gpt-4o")


def test_a_key_that_was_given_beats_the_environment() -> None:
    assert route("openai/m", None, environ=AMBIENT, has_key=True).key_var == LITERAL_KEY_VAR
    assert route("ollama/m", None, environ=AMBIENT, has_key=True).key_var == LITERAL_KEY_VAR
    assert route("bedrock/m", None, environ={"MINE": "k"}, key_var="MINE").key_var == "MINE"


@for_each_row(
    ("model", "variable", "value", "url"),
    [
        ("gpt-5-mini", "OPENAI_BASE_URL", "https://gateway.example/v1/", "https://gateway.example/v1"),
        ("openai/m", "OPENAI_API_BASE", "https://gateway.example/openai", "https://gateway.example/openai"),
        ("anthropic/m", "ANTHROPIC_BASE_URL", "https://gateway.example/anthropic", "https://gateway.example/anthropic/v1"),
        ("anthropic/m", "ANTHROPIC_API_BASE", "https://gateway.example/v1", "https://gateway.example/v1"),
        ("groq/m", "GROQ_API_BASE", "https://gateway.example/v1", "https://gateway.example/v1"),
        ("ollama/m", "OLLAMA_HOST", "0.0.0.0", "http://localhost:11434/v1"),
        ("ollama/m", "OLLAMA_HOST", ":9000", "http://localhost:9000/v1"),
        ("ollama/m", "OLLAMA_HOST", "gpu.example:9000", "http://gpu.example:9000/v1"),
        ("ollama/m", "OLLAMA_HOST", "[::1]:9000", "http://[::1]:9000/v1"),
        ("ollama/m", "OLLAMA_HOST", "https://ollama.example/", "https://ollama.example:443/v1"),
        ("ollama/m", "OLLAMA_API_BASE", "http://gpu.example:11434", "http://gpu.example:11434/v1"),
        ("lm_studio/m", "LM_STUDIO_API_BASE", "http://gpu.example:1234/v1", "http://gpu.example:1234/v1"),
    ],
)  # fmt: skip
def test_a_providers_own_variable_moves_it_and_its_key(model: str, variable: str, value: str, url: str) -> None:
    found = route(model, None, environ={**AMBIENT, variable: value})
    assert (found.url, found.moved_by) == (url, variable)
    assert found.key_var == route(model, None, environ=AMBIENT).key_var


def test_a_provider_is_moved_by_no_variable_of_another() -> None:
    moved = {"OPENAI_BASE_URL": "https://gateway.example/v1", "OPENAI_API_KEY": "k"}
    assert route("groq/m", None, environ={**moved, "GROQ_API_KEY": "g"}).url == "https://api.groq.com/openai/v1"
    first = {**moved, "OPENAI_API_BASE": "https://older.example/v1"}
    assert route("m", None, environ=first).url == "https://gateway.example/v1"
    assert route("m", "https://mine.example/v1", environ=moved) == Route("m", "https://mine.example/v1", None, "")
    assert route("reference/oracle", None, environ=moved).url == ""


def test_a_provider_that_was_moved_to_this_machine_needs_no_key() -> None:
    local = {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "ANTHROPIC_BASE_URL": "http://localhost:8000"}
    assert route("gpt-5-mini", None, environ=local).key_var is None
    assert route("anthropic/c", None, environ=local) == Route(
        "c", "http://localhost:8000/v1", None, "anthropic", "ANTHROPIC_BASE_URL"
    )
    moved = {"OPENAI_BASE_URL": "https://gateway.example/v1"}
    assert refused("m", None, moved).startswith("Missing API key for provider 'openai'")


def test_a_malformed_variable_is_named() -> None:
    assert refused("m", None, {"OPENAI_BASE_URL": "gateway"}).startswith('OPENAI_BASE_URL = "gateway": must be an http')
    swapped = {"OPENAI_BASE_URL": "litellm://anthropic", "OPENAI_API_KEY": "k"}
    assert refused("m", None, swapped) == 'OPENAI_BASE_URL = "litellm://anthropic": must be an http or https URL'
    assert refused("ollama/m", None, {"OLLAMA_HOST": "host:port"}).startswith('OLLAMA_HOST = "http://host:port": is no')


def test_the_table_is_sound() -> None:
    names: list[str] = []
    for name, provider in PROVIDERS.items():
        assert check_url(provider.url) == provider.url
        assert provider.url.endswith(provider.suffix)
        local = is_loopback_url(provider.url)
        assert local != bool(provider.key_vars), name
        assert urlsplit(provider.url).scheme == ("http" if local else "https")
        names += [*provider.key_vars, *provider.base_vars]
    assert len(names) == len(set(names))
    assert not LITELLM_PROVIDERS & {*PROVIDERS}
    assert set(LITELLM_KEY_VARS) <= LITELLM_PROVIDERS
    documented = {  # contracts § 1.4
        "openai", "anthropic", "groq", "mistral", "cohere", "together_ai", "fireworks_ai", "deepseek", "gemini", "xai",
        "openrouter", "perplexity", "replicate", "deepinfra", "cerebras", "ai21", "sambanova", "nvidia_nim", "github",
    }  # fmt: skip
    assert documented <= {*PROVIDERS, *LITELLM_KEY_VARS}


def test_the_guide_has_the_table() -> None:
    def code(names: tuple[str, ...]) -> str:
        return ", ".join(f"`{name}`" for name in names) or "none"

    rows = [
        f"| `{name}` | `{each.url}` | {code(each.key_vars)} | {code(each.base_vars)} |"
        for name, each in PROVIDERS.items()
    ]
    text = REFERENCE.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("| `") and "://" in line] == rows
    assert " ".join(f"`{name}`" for name in sorted(LITELLM_PROVIDERS)) in " ".join(text.split())


def test_a_url_of_litellm_is_no_host() -> None:
    assert litellm_provider("litellm://anthropic") == litellm_provider("litellm://anthropic/") == "anthropic"
    assert litellm_provider("https://litellm.example/v1") is None
    assert litellm_provider("") is None
    assert not is_loopback_url("litellm://localhost")
    assert is_loopback_url("http://localhost/v1")


def test_a_setting_may_name_a_provider_of_litellm_and_nothing_is_said_of_keys(here: Path) -> None:
    resolution = resolve("toy-env", {"model": "claude-x", "api_base_url": "litellm://anthropic"})
    [run] = resolution.runs
    assert resolution.notices == ()
    assert [(each.model, each.url, each.key_var) for each in run.endpoints] == [
        ("claude-x", "litellm://anthropic", None)
    ]
    assert 'api_base_url = "litellm://anthropic"' in run.to_toml()


def test_a_key_variable_is_needed_behind_litellm_as_elsewhere(here: Path) -> None:
    flags = {"model": "claude-x", "api_base_url": "litellm://anthropic", "api_key_var": "MINE"}
    resolution = resolve("toy-env", flags)
    missing_keys(resolution, {"MINE": "k"})
    with pytest.raises(ConfigError, match=r"^MINE is not set, but toy-env at litellm://anthropic needs this API key"):
        missing_keys(resolution, {})


def test_where_litellm_is_absent_one_line_says_what_to_install(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolution = resolve("toy-env", {"model": "claude-x", "api_base_url": "litellm://anthropic"})
    monkeypatch.setitem(sys.modules, "litellm", None)  # what the import system takes for "there is none"
    for check in (lambda: require_provider("litellm://anthropic"), lambda: missing_keys(resolution, {})):
        with pytest.raises(ConfigError) as caught:
            check()
        assert str(caught.value) == (
            "models of 'anthropic' need litellm, which is not installed: pip install "
            "'bench-harness[litellm]', or give the address of an OpenAI-compatible endpoint as base URL"
        )
    require_provider("https://api.example/v1")
