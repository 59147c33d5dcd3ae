"""From a model to the settings of its run: hosts, names, key variables, bounds, prices, `--set`, and what a run's file
says of it all."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.multi.models import read_models
from harness.multi.settings import resolve_models, without_rows
from harness.settings.endpoints import Registry, load_registry
from harness.settings.resolved_run import ResolvedRun
from harness.settings.resolver import Resolution, resolve

KEYS = {f"{name}_API_KEY": f"key-{name.lower()}" for name in ("OPENAI", "ANTHROPIC", "GEMINI", "OPENROUTER", "GROQ")}


def runs_of(*models: Any, registry: Registry | None = None, sets: tuple[str, ...] = (), **flags: object) -> Resolution:
    given = {"env_args": {"tasks": "tasks.json"}, **flags}
    return resolve_models(read_models(list(models)), given, sets, registry=registry or Registry(), environ=KEYS)


def way(run: ResolvedRun) -> tuple[str, str, str | None]:
    [endpoint] = run.endpoints
    return (endpoint.model, endpoint.url, endpoint.key_var)


@for_each_row(
    ("model", "expected"),
    [
        ({"id": "fast", "provider": "openai", "modelId": "gpt-4.1-mini"},
         ("gpt-4.1-mini", "https://api.openai.com/v1", "OPENAI_API_KEY")),
        ({"id": "gpt-4.1-mini", "provider": "openai"},
         ("gpt-4.1-mini", "https://api.openai.com/v1", "OPENAI_API_KEY")),
        ({"id": "deep", "provider": "anthropic", "modelId": "claude-3-7-sonnet"},
         ("claude-3-7-sonnet", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY")),
        ({"provider": "gemini", "modelId": "gemini-2.5-pro"},
         ("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY")),
        ({"provider": "openrouter", "modelId": "meta/llama-4"},
         ("meta/llama-4", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY")),
        ({"provider": "ollama", "modelId": "qwen3"}, ("qwen3", "http://localhost:11434/v1", None)),
        ({"provider": "openai", "modelId": "gpt-x", "apiKeyVar": "GROQ_API_KEY"},
         ("gpt-x", "https://api.openai.com/v1", "GROQ_API_KEY")),
        ({"provider": "litellm", "modelId": "bedrock/claude"}, ("claude", "litellm://bedrock", None)),
        ({"provider": "litellm", "modelId": "gpt-x"}, ("gpt-x", "litellm://openai", None)),
        ({"provider": "openai", "modelId": "served", "baseUrl": "http://localhost:9/v1/"},
         ("served", "http://localhost:9/v1", None)),
        ("groq/llama", ("llama", "https://api.groq.com/openai/v1", "GROQ_API_KEY")),
        ("gpt-5-mini", ("gpt-5-mini", "https://api.openai.com/v1", "OPENAI_API_KEY")),
        ("reference/oracle", ("reference/oracle", "", None)),
        ({"id": "best", "provider": "reference", "modelId": "noisy?accuracy=0.5"},
         ("reference/noisy?accuracy=0.5", "", None)),
        ({"id": "best", "provider": "reference", "modelId": "reference/null"}, ("reference/null", "", None)),
        ({"id": "reference/echo", "baseUrl": "http://localhost:9/v1"},
         ("reference/echo", "http://localhost:9/v1", None)),
    ],
)  # fmt: skip
def test_where_a_model_is_asked(model: Any, expected: tuple[str, str, str | None]) -> None:
    found = runs_of(model)
    assert way(found.runs[0]) == expected
    assert found.runs[0].endpoints[0].key == ""


def test_literal_keys_are_with_their_endpoints_and_in_no_text() -> None:
    found = runs_of(
        {"id": "a", "provider": "openai", "apiKey": "first-key-1"},
        {"id": "b", "baseUrl": "http://localhost:9/v1", "apiKey": "second-key-2"},
        {"id": "c", "baseUrl": "http://localhost:8/v1", "apiKeyVar": "BENCH_API_KEY"},
        {"id": "d", "provider": "openai"},
    )
    assert [(way(run)[2], run.endpoints[0].key) for run in found.runs] == [
        ("BENCH_API_KEY", "first-key-1"), ("BENCH_API_KEY", "second-key-2"), ("BENCH_API_KEY", ""),
        ("OPENAI_API_KEY", ""),
    ]  # fmt: skip
    said = [run.to_toml() + str(run.described()) + repr(run.endpoints) for run in found.runs]
    assert [text for text in said if "first-key" in text or "second-key" in text] == []


REGISTRY = """
[[endpoint]]
endpoint_id = "house"
model = "big"
url = "http://one.example/v1"
key = "HOUSE_KEY"
rpm = 60
max_concurrent = 2
headers = { X-Team = "blue" }
price = { input = 1.0, output = 2.0 }

[[endpoint]]
endpoint_id = "house"
model = "big"
url = "http://two.example/v1"
max_concurrent = 3
price = { input = 1.0, output = 2.0 }
"""


@pytest.fixture
def registry(workplace: Path) -> Registry:
    (workplace / "endpoints.toml").write_text(REGISTRY)
    return load_registry(workplace / "endpoints.toml", workplace)


def test_an_alias_brings_its_replicas_bounds_and_prices(registry: Registry) -> None:
    [run] = runs_of("house", registry=registry, max_concurrent=9).runs
    assert [(e.url, e.key_var, e.max_concurrent, e.rpm, e.price) for e in run.endpoints] == [
        ("http://one.example/v1", "HOUSE_KEY", 2, 60, {"input": 1.0, "output": 2.0}),
        ("http://two.example/v1", None, 3, None, {"input": 1.0, "output": 2.0}),
    ]
    assert run.settings.model.max_concurrent == 5
    assert run.settings.env.name == "house"


def test_what_a_model_says_lies_over_its_alias(registry: Registry) -> None:
    model = {"id": "mine", "modelId": "house", "rpm": 5, "headers": {"X-More": "1"}, "price": {"input": 3, "output": 4},
             "apiKeyVar": "OTHER_KEY", "maxConcurrent": 1}  # fmt: skip
    [run] = runs_of(model, registry=registry).runs
    assert [(e.key_var, e.rpm, e.max_concurrent, e.price) for e in run.endpoints] == [
        ("OTHER_KEY", 5, 1, {"input": 3.0, "output": 4.0})
    ] * 2
    assert dict(run.endpoints[0].headers) == {"X-Team": "blue", "X-More": "1"}
    assert run.settings.env.name == "mine"


def test_a_provider_or_an_address_says_that_a_name_is_no_alias(registry: Registry) -> None:
    found = runs_of({"id": "house", "provider": "openai"}, {"id": "house", "baseUrl": "http://x.example/v1"},
                    registry=registry)  # fmt: skip
    assert [way(run)[:2] for run in found.runs] == [
        ("house", "https://api.openai.com/v1"), ("house", "http://x.example/v1"),
    ]  # fmt: skip


def test_tasks_under_way_and_the_bound_of_an_endpoint() -> None:
    at = {"baseUrl": "http://localhost:9/v1"}
    found = runs_of({"id": "a", **at}, {"id": "b", **at, "maxConcurrent": 3}, {"id": "c", **at, "maxConcurrent": 90},
                    {"id": "reference/null", "maxConcurrent": 2}, max_concurrent=8)  # fmt: skip
    assert [run.settings.model.max_concurrent_generation for run in found.runs] == [8, 3, 8, 2]
    assert [run.endpoints[0].max_concurrent for run in found.runs] == [None, 3, 90, 2]
    assert runs_of("reference/null").runs[0].settings.model.max_concurrent == 1


def test_sampling_arguments_of_a_model_win_over_those_of_all() -> None:
    models = [{"id": "reference/null", "temperature": 0.1, "samplingArgs": {"top_p": 0.2}}, "reference/echo"]
    found = runs_of(*models, sampling_args=["temperature=0.7", '{"stop": ["x"]}'], max_tokens=5)
    assert [run.settings.model.sampling_args for run in found.runs] == [
        {"temperature": 0.1, "stop": ["x"], "max_tokens": 5, "top_p": 0.2},
        {"temperature": 0.7, "stop": ["x"], "max_tokens": 5},
    ]
    found = runs_of(*models, sampling_args={"temperature": 0.9})
    assert [run.settings.model.sampling_args["temperature"] for run in found.runs] == [0.1, 0.9]


def test_a_hook_is_told_the_models_id() -> None:
    args = {"tasks": "t.json", "score_output": "m:f"}
    found = runs_of({"id": "a", "modelId": "reference/null"}, "reference/echo", env_args=args)
    assert [run.settings.env.env_args.get("model_id") for run in found.runs] == ["a", "reference/echo"]
    assert "model_id" not in runs_of("reference/null").runs[0].settings.env.env_args


def test_a_run_of_tasks_of_a_program_names_no_file() -> None:
    [run] = map(without_rows, runs_of("reference/null", env_args={"tasks": "x", "match_mode": "exact"}).runs)
    assert run.settings.env.env_args == {"match_mode": "exact"}
    assert "env.env_args.tasks" not in run.origins
    assert run.env_id == "tasks"
    assert "of a Python program" in run.to_toml()


def test_the_file_of_a_run_repeats_it(workplace: Path) -> None:
    model = {"id": "fast", "provider": "openai", "modelId": "gpt-x", "rpm": 7, "price": {"input": 1, "output": 2},
             "temperature": 0.5, "maxConcurrent": 2}  # fmt: skip
    [run] = runs_of(model, max_concurrent=6).runs
    (workplace / "config.toml").write_text(run.to_toml())
    [again] = resolve(str(workplace / "config.toml"), {}).runs
    assert again.settings == run.settings
    assert [(e.url, e.key_var, e.model, e.rpm, e.price) for e in again.endpoints] == [
        (e.url, e.key_var, e.model, e.rpm, e.price) for e in run.endpoints
    ]
    assert again.endpoints[0].price == {"input": 1.0, "output": 2.0}
    assert tomllib.loads(run.to_toml())["eval"][0]["env"]["name"] == "fast"


def test_set_is_for_all_models_or_for_one() -> None:
    sets = ("model.request_timeout=5", "b:model.request_timeout=9")
    found = runs_of({"id": "a", "modelId": "reference/null"}, {"id": "b", "modelId": "reference/null"}, sets=sets)
    assert [run.settings.model.request_timeout for run in found.runs] == [5.0, 9.0]


@for_each_row(
    ("text", "words"),
    [
        ("c:model.rpm=1", r"^--set c:model\.rpm=1: there is no run named 'c'; "),
        ("model.model=x", "set the name, address and key of a model in its definition"),
        ("api_base_url=http://x/v1", "set the name, address and key of a model in its definition"),
        ("env.env_args.tasks=x", "use the options for tasks and scoring instead"),
        ("name=x", "set the name, address and key"),
    ],
)
def test_set_of_what_is_said_elsewhere(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        runs_of({"id": "a", "modelId": "reference/null"}, "reference/echo", sets=(text,))


@for_each_row(
    ("model", "words"),
    [
        ({"id": "m", "baseUrl": "localhost:9"}, r"^models\[0\] \(m\): baseUrl = .*must be an http or https URL"),
        ({"id": "m", "provider": "openai", "apiKeyVar": "NONE"},
         r"^models\[0\] \(m\): apiKeyVar NONE: the environment variable is not set; .*or pass apiKey$"),
        ({"id": "m", "provider": "mistral"}, "Missing API key for provider 'mistral'"),
        ({"id": "m", "provider": "zzz"},
         "unknown provider 'zzz'; for a server of your own, give its address as baseUrl"),
        ({"id": "m", "provider": "litellm", "modelId": "hosted_vllm/x"}, "'hosted_vllm' has no default address"),
        ({"id": "reference/null", "rpm": 0}, r"^models\[0\]: rpm = 0: must be greater than 0$"),
        ({"id": "reference/null", "price": {"inputs": 1}}, r"price: unknown key 'inputs'; did you mean \"input\"\?$"),
        ({"id": "reference/null", "price": {"input": -1}}, r"price: input = -1: must be a finite number, 0 or more"),
        ({"id": "reference/null", "samplingArgs": {"x": float("nan")}}, "samplingArgs: must be JSON values"),
        ({"id": "reference/null", "headers": {"a b": "c"}}, "which is not a valid HTTP header name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_model(model: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        runs_of(model)


def test_origins_are_told_in_the_words_of_whoever_asks() -> None:
    models = read_models([{"id": "fast", "provider": "openai", "modelId": "gpt-x"}], "models.toml: model")
    told = {"model.max_concurrent": "--task-concurrency"}
    flags = {"env_args": {"tasks": "t.json"}, "max_concurrent": 3}
    [run] = resolve_models(models, flags, registry=Registry(), labels=told, environ=KEYS).runs
    assert {
        path: run.origins[path].source for path in ("model.model", "model.api_base_url", "model.max_concurrent")
    } == {
        "model.model": "models.toml: model[0] (fast)",
        "model.api_base_url": "provider openai",
        "model.max_concurrent": "--task-concurrency",
    }
