"""Registries and flat suites as verifiers 0.1.14 has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ConfigError
from harness.settings.resolver import missing_keys, resolve

Write = Callable[[str, str], Path]

REGISTRY = """
[[endpoint]]
endpoint_id = "haiku"
model = "claude-haiku-4-5"
url = "https://api.anthropic.com"
key = "ANTHROPIC_API_KEY"
type = "anthropic_messages"

[[endpoint]]
endpoint_id = "reasoner"
model = "deepseek-reasoner"
api_base_url = "https://api.deepseek.com/v1"
api_key_var = "DEEPSEEK_API_KEY"
api_client_type = "openai_chat_completions"
extra_headers = {X-A = "1"}
"""


def test_a_registry_is_read_and_a_type_is_refused_only_where_it_is_used(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", REGISTRY)
    [run] = resolve("toy-env", {"model": "reasoner"}).runs
    model = run.settings.model
    assert (model.model, model.api_base_url, model.api_key_var, model.extra_headers) == (
        "deepseek-reasoner", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", {"X-A": "1"},
    )  # fmt: skip
    with pytest.raises(
        ConfigError, match=r'endpoint\[0\].type = "anthropic_messages": the only supported endpoint type is "openai_'
    ):
        resolve("toy-env", {"model": "haiku"})
    [run] = resolve("toy-env", {"model": "haiku", "api_base_url": "https://gateway.example/v1"}).runs
    assert run.settings.model.model == "claude-haiku-4-5"
    write("configs/endpoints.toml", REGISTRY.replace("api_client_type", 'type = "x"\napi_client_type'))
    with pytest.raises(ConfigError, match=r"api_client_type: means the same as configs/endpoints\.toml: endpoint"):
        resolve("toy-env", {})


def settings(write: Write, text: str, **flags: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    write("suite.toml", text)
    resolution = resolve("suite.toml", flags)
    described = resolution.runs[-1].described()
    return {path: line["value"] for path, line in described.items()}, resolution.notices


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("max_tokens = 7\n[[eval]]\nid = 'toy-env'", "model.sampling_args", {"max_tokens": 7}),
        ("[[eval]]\nid = 'toy-env'\ntemperature = 1", "model.sampling_args", {"temperature": 1}),
        (
            "max_tokens = 7\n[[eval]]\nid = 'toy-env'\nmax_tokens = 8\nsampling_args = {temperature = 0.5}",
            "model.sampling_args", {"max_tokens": 8, "temperature": 0.5},
        ),
        (
            "[[eval]]\nid = 'toy-env'\nmax_tokens = 8\nsampling_args = {max_tokens = 9}",
            "model.sampling_args", {"max_tokens": 9},
        ),
        (
            "max_tokens = 5\n[[ablation]]\nid = 'toy-env'\n[ablation.sweep]\ntemperature = [0.0, 1.0]",
            "model.sampling_args", {"max_tokens": 5, "temperature": 1.0},
        ),
        (
            "headers = {X-A = '0', X-B = '2'}\n[[eval]]\nid = 'toy-env'\nheader = ['X-A: 1']",
            "model.extra_headers", {"X-A": "1", "X-B": "2"},
        ),
        ("headers = ['X-A: 1', 'X-B: a:b']\nid = 'toy-env'", "model.extra_headers", {"X-A": "1", "X-B": "a:b"}),
        ("provider = 'openai'\n[[eval]]\nid = 'toy-env'", "model.api_base_url", "https://api.openai.com/v1"),
        ("provider = 'openai'\n[[eval]]\nid = 'toy-env'", "model.api_key_var", "OPENAI_API_KEY"),
        ("provider = 'prime'\n[[eval]]\nid = 'toy-env'", "model.api_key_var", "PRIME_API_KEY"),
        ("[[eval]]\nid = 'toy-env'\nprovider = 'vllm'", "model.api_base_url", "http://localhost:8000/v1"),
        ("provider = 'vllm'\napi_base_url = 'http://h/v1'\nid = 'toy-env'", "model.api_base_url", "http://h/v1"),
        ("provider = 'openai'\n[[eval]]\nid = 'toy-env'\nmodel = 'reasoner'", "model.api_key_var", "DEEPSEEK_API_KEY"),
        ("env_dir_path = 'environments'\n[[eval]]\nid = 'toy-env'", "save.output_dir", "environments/toy_env/outputs"),
        ("env_dir_path = 'nowhere'\n[[eval]]\nid = 'toy-env'", "save.output_dir", "outputs"),
        ("[[eval]]\nid = 'toy-env'\nendpoint_id = 'mine'\nendpoints_path = 'own.toml'", "model.model", "of-mine"),
        ("api_client_type = 'openai_chat_completions'\n[[eval]]\nid = 'toy-env'", "env.num_examples", 5),
    ],
)  # fmt: skip
def test_keys_with_a_meaning_are_settings(here: Path, write: Write, text: str, path: str, value: object) -> None:
    write("configs/endpoints.toml", REGISTRY)
    write("own.toml", '[[endpoint]]\nendpoint_id = "mine"\nmodel = "of-mine"\nurl = "http://localhost:1/v1"\n')
    (here / "environments" / "toy_env").mkdir(parents=True)
    assert settings(write, text)[0][path] == value


def test_a_flag_that_such_a_key_beats_is_told(here: Path, write: Write) -> None:
    _, notices = settings(write, "max_tokens = 7\n[[eval]]\nid = 'toy-env'", max_tokens=9)
    assert notices[0].startswith("-t 9 has no effect on toy-env: suite.toml sets max_tokens = 7; use --set")


def test_keys_without_a_meaning_are_noted(here: Path, write: Write) -> None:
    keys = ("verbose = true", "resume = true", "independent_scoring = true", "num_workers = 4", "disable_tui = true",
            "disable_env_server = true", "header_from_state = ['X: y']", "headers_from_state = {X = 'y'}")  # fmt: skip
    _, notices = settings(write, "\n".join(keys) + "\n[[eval]]\nid = 'toy-env'\nverbose = true\nresume = false")
    assert notices[0] == "suite.toml: verbose has no effect: use the command's option of this name"
    assert len(notices) == len(keys) + 1 and notices[-1].startswith("suite.toml: eval[0].verbose has no effect")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_tokens = 'many'", r'suite.toml: max_tokens = "many": must be an integer'),
        ("temperature = true", "temperature = true: must be a number"),
        ("provider = 'opnai'", 'unknown provider; did you mean "openai"'),
        ("header = [1]", "must be a list of 'Name: Value' strings"),
        ("header = ['no colon']", "must be 'Name: Value'"),
        (
            "api_client_type = 'anthropic_messages'",
            'api_client_type = "anthropic_messages": the only supported endpoint type is',
        ),
        ("env_dir_path = 3", "env_dir_path = 3: must be a path"),
    ],
)
def test_wrong_values_are_refused(here: Path, write: Write, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(write, f"{text}\n[[eval]]\nid = 'toy-env'")


@pytest.mark.slow
def test_defaults_for_another_program_never_stop_a_suite(here: Path, write: Write) -> None:
    table = "num_examples = 7\nshiny = true\nmodel = 'm'\nrollouts_per_example = 'two'\n"
    write("pkg/pyproject.toml", f"[project]\nname = 'pkg-env'\n[tool.verifiers.eval]\n{table}")
    write("pkg/pkg_env.py", "def load_environment(): ...\n")
    resolution = resolve("./pkg/pkg_env.py", {"model": "reference/oracle"})
    assert resolution.runs[0].settings.env.num_examples == 7
    assert [notice.partition(": ")[2].partition(" ")[0].rstrip(":") for notice in resolution.notices] == [
        "tool.verifiers.eval.shiny", "tool.verifiers.eval.model", "tool.verifiers.eval.rollouts_per_example",
    ]  # fmt: skip
    assert all(notice.endswith("this key is ignored") for notice in resolution.notices)
    missing_keys(resolution, {})
    write("pkg/pyproject.toml", f"[project]\nname = 'pkg-env'\n[tool.harness.eval]\n{table}")
    with pytest.raises(ConfigError, match="shiny"):
        resolve("./pkg/pkg_env.py", {})
