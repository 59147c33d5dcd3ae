from __future__ import annotations

from collections import Counter

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.settings.schema import BUILTIN_URL, BY_FLAT_NAME, BY_PATH, SETTINGS, SHORTCUTS, RunSettings, adapter
from harness.settings.values import check

CLOSED_LIST = {
    "env": {
        "env_id": (),
        "name": ("--name",),
        "env_args": ("-a",),
        "extra_env_kwargs": ("-x",),
        "num_examples": ("-n", 5),
        "example_ids": ("--example-ids", ()),
        "rollouts_per_example": ("-r", 3),
        "shuffle": ("--shuffle", False),
        "shuffle_seed": ("--shuffle-seed", 0),
        "interleave_scoring": ("-N", True),
        "state_columns": ("-C", ()),
        "timeout": ("--timeout", None),
        "scoring_timeout": ("--scoring-timeout", 300.0),
        "message_limit": ("--message-limit", None),
        "token_limit": ("--token-limit", None),
        "cost_limit": ("--cost-limit", None),
        "max_retries": ("--max-retries", 0),
        "max_failures": ("--max-failures", None),
        "pass_threshold": ("--pass-threshold", 1.0),
        "pass_k": ("--k", ()),
        "cluster_key": ("--cluster-key",),
        "until_ci": ("--until-ci", None),
        "gate": ("--gate", None),
        "margin": ("--margin", None),
        "isolate": ("--isolate", False),
        "workers": ("--workers", 0),
        "executor": ("--executor", None),
        "executor_args": ("--executor-args", {}),
        "worker_memory_mb": ("--worker-memory-mb", 4096),
        "worker_vars": ("--worker-vars", ()),
    },
    "model": {
        "model": ("-m", "openai/gpt-4.1-mini"),
        "api_base_url": ("-b", BUILTIN_URL),
        "api_key_var": ("-k", "PRIME_API_KEY"),
        "extra_headers": ("--header", {}),
        "sampling_args": ("-S", {}),
        "max_concurrent": ("-c", 32),
        "max_concurrent_generation": ("--max-concurrent-generation",),
        "max_concurrent_scoring": ("--max-concurrent-scoring",),
        "rpm": ("--rpm", None),
        "tpm": ("--tpm", None),
        "request_timeout": ("--request-timeout", 600.0),
        "request_retries": ("--request-retries", 6),
    },
    "save": {
        "save_results": ("-s", True),
        "save_every": ("-f", 100),
        "save_to_hf_hub": ("-H", False),
        "hf_hub_dataset_name": ("-D", None),
        "hf_public": ("--hf-public", False),
        "output_dir": ("-o", "outputs"),
        "private": ("--private", False),
    },
}


def test_the_table_is_the_closed_list() -> None:
    assert {(group, key) for group, keys in CLOSED_LIST.items() for key in keys} == set(BY_PATH)
    for group, keys in CLOSED_LIST.items():
        for key, (flag, *default) in ((key, spec) for key, spec in keys.items() if spec):
            setting = BY_PATH[group, key]
            assert flag in (*setting.door.flags, *setting.door.off)
            if default:
                assert setting.default == default[0]


def test_flat_aliases() -> None:
    aliases = {name: setting.key for name, setting in BY_FLAT_NAME.items() if name != setting.key}
    assert aliases == {
        "id": "env_id",
        "args": "env_args",
        "endpoint_id": "model",
        "sampling": "sampling_args",
        "url": "api_base_url",
        "key": "api_key_var",
        "headers": "extra_headers",
    }


def test_no_name_is_used_twice() -> None:
    flags = [flag for setting in SETTINGS for flag in (*setting.door.flags, *setting.door.off)]
    flags += [flag for shortcut in SHORTCUTS for flag in shortcut.flags]
    assert [flag for flag, count in Counter(flags).items() if count > 1] == []
    assert len({setting.key for setting in SETTINGS}) == len(SETTINGS)


def test_every_field_is_documented_under_itself() -> None:
    assert [setting.dotted for setting in SETTINGS if not setting.doc.endswith(".")] == []


def test_builtins_pass_their_own_checks() -> None:
    for setting in SETTINGS:
        if setting.default is not None:
            assert adapter(setting.path).validate_python(setting.default) == setting.default


@for_each_row(
    ("path", "value", "reason"),
    [
        ("env.num_examples", 0, "must be -1 (all of them) or at least 1"),
        ("env.num_examples", -5, "must be -1"),
        ("env.num_examples", "10", "must be an integer"),
        ("env.num_examples", True, "must be an integer"),
        ("env.num_examples", 1.0, "must be an integer"),
        ("env.rollouts_per_example", 0, "must be at least 1"),
        ("env.shuffle", 1, "must be true or false"),
        ("env.shuffle_seed", -1, "must be at least 0"),
        ("env.timeout", 0, "must be greater than 0"),
        ("env.timeout", "soon", 'must be a number, or "none"'),
        ("env.max_retries", -1, "must be at least 0"),
        ("env.pass_threshold", float("nan"), "must be a finite number"),
        ("env.state_columns", "a", "must be a list of strings"),
        ("env.state_columns", ["a", 1], "must be a list of strings (wrong[1])"),
        ("env.state_columns", ["reward"], "a column that every dataset already has"),
        ("env.state_columns", ["a", "a"], "contains a column twice"),
        ("env.example_ids", [1.5], "must be a list of strings (wrong[0])"),
        ("env.env_args", [1], "must be a table"),
        ("env.env_args", "text", "must be a table"),
        ("env.env_args", {"a": float("inf")}, "JSON cannot represent"),
        ("env.env_id", "", "must not be empty"),
        ("env.env_id", "./a\x1b.py", "must not contain control characters"),
        ("env.env_id", "a.b", "must be an environment's name"),
        ("model.model", "", "must not be empty"),
        ("model.model", 5, "must be a string"),
        ("model.max_concurrent", 0, "must be -1 (unlimited) or at least 1"),
        ("model.max_concurrent_scoring", 0, "must be -1 (unlimited)"),
        ("model.rpm", 0, "must be greater than 0"),
        ("model.rpm", 10**400, "must be less than 9223372036854775808"),
        ("model.rpm", 1.5, "must be an integer"),
        ("model.api_base_url", "localhost:8000", "must be an http or https URL"),
        ("model.api_base_url", "http://", "must be an http or https URL"),
        ("model.api_base_url", "http://h:99999/", "is not a valid URL"),
        ("model.api_base_url", "https://me:secret@host/v1", "must not contain a user or password"),
        ("model.api_key_var", "sk-abc", "must be the name of an environment variable"),
        ("model.extra_headers", {"A B": "1"}, "not a valid HTTP header name"),
        ("model.extra_headers", {"A": "1\r\nB: 2"}, "control character"),
        ("model.extra_headers", {"A": "1", "a": "2"}, "which are the same header"),
        ("model.extra_headers", {"A": 1}, "must be a table of strings"),
        ("save.save_every", 0, "must be -1 (only at the end) or at least 1"),
        ("save.hf_hub_dataset_name", "a/b/c", "must be the name of a Hub repository"),
        ("save.hf_hub_dataset_name", "a--b", "must be the name of a Hub repository"),
    ],
)
def test_values_out_of_bounds_are_refused(path: str, value: object, reason: str) -> None:
    group, key = path.split(".")
    with pytest.raises(ConfigError) as caught:
        check(BY_PATH[group, key], value, f"s.toml: {path}")
    assert str(caught.value).startswith(f"s.toml: {path}")
    assert reason in str(caught.value)


@for_each_row("value", ["sk-abcdef123456", "https://me:hunter2@host/v1"])
def test_a_refusal_does_not_repeat_what_may_be_a_secret(value: str) -> None:
    key = "api_base_url" if value.startswith("https") else "api_key_var"
    with pytest.raises(ConfigError) as caught:
        check(BY_PATH["model", key], value, "s.toml: model.x")
    assert "hunter2" not in str(caught.value)
    assert "abcdef" not in str(caught.value)


def test_values_that_have_two_spellings() -> None:
    assert check(BY_PATH["env", "timeout"], "none", "x") is None
    assert check(BY_PATH["env", "timeout"], 5, "x") == 5.0
    assert check(BY_PATH["env", "env_args"], '{"a": null}', "x") == {"a": None}
    assert check(BY_PATH["model", "api_base_url"], "http://h:1/v1/", "x") == "http://h:1/v1"
    assert check(BY_PATH["model", "api_key_var"], "", "x") == ""


def test_unknown_fields_are_refused_inside_too() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        RunSettings.model_validate({"env": {"env_id": "a", "name": "a", "nmae": 1}, "model": {}, "save": {}})
