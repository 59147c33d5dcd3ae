"""The options come from the table of settings; what they mean is tested with the settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.cli.options import command_text, setting_keys
from harness.settings.schema import SETTINGS, SHORTCUTS, Setting

EXAMPLES: dict[str, tuple[str, object]] = {
    "integer": ("7", 7),
    "number": ("7.5", 7.5),
    "table": ('{"k": 1}', {"k": 1}),
    "headers": ("X-A: b", {"X-A": "b"}),
    "list": ("a,b", ["a", "b"]),
    "counts": ("3,1", [1, 3]),
    "string": ("word", "word"),
}
OVERRIDES: dict[str, str] = {"api_base_url": "http://localhost:1/v1"}

NEEDED = {"--gate": ("--margin", "0.1")}
"""Options without which others are errors."""

FLAGS = [(setting, flag) for setting in SETTINGS for flag in setting.door.flags if setting.door.kind != "boolean"]
SWITCHES = [
    (setting, flag, value)
    for setting in SETTINGS
    if setting.door.kind == "boolean"
    for flags, value in ((setting.door.flags, True), (setting.door.off, False))
    for flag in flags
]


def dry(bench: Any, *arguments: str) -> dict[str, Any]:
    done = bench("run", "toy-env", *arguments, "--dry-run", "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)["runs"][0]["settings"]


@pytest.mark.parametrize(("setting", "flag"), FLAGS, ids=[flag for _, flag in FLAGS])
def test_every_flag_sets_its_setting(bench: Any, setting: Setting, flag: str) -> None:
    text, value = EXAMPLES[setting.door.kind]
    text = OVERRIDES.get(setting.key, text)
    needed = NEEDED.get(flag, ())
    line = dry(bench, flag, text, *needed)[setting.dotted]
    assert line["value"] == OVERRIDES.get(setting.key, value)
    assert line["origin"] == "cli"


@pytest.mark.parametrize(("setting", "flag", "value"), SWITCHES, ids=[flag for _, flag, _ in SWITCHES])
def test_every_switch_sets_its_setting(bench: Any, setting: Setting, flag: str, value: bool) -> None:
    line = dry(bench, flag)[setting.dotted]
    assert (line["value"], line["origin"]) == (value, "cli")


def test_short_options_may_be_joined_and_numbers_negative(bench: Any) -> None:
    settings = dry(bench, "-sN", "-n", "-1", "-r4", "-c", "-1")
    assert settings["env.num_examples"]["value"] == -1
    assert settings["env.rollouts_per_example"]["value"] == 4
    assert settings["env.interleave_scoring"]["value"] is False
    assert settings["model.max_concurrent_generation"]["value"] == -1


def test_shortcuts(bench: Any) -> None:
    settings = dry(bench, "-t", "100", "-T", "0", "-S", "temperature=1", "-S", '{"stop": ["x"]}')
    assert settings["model.sampling_args"]["value"] == {"max_tokens": 100, "temperature": 1, "stop": ["x"]}


def test_saying_nothing_is_no_value(bench: Any) -> None:
    assert {line["origin"] for path, line in dry(bench).items() if path != "env.env_id"} == {"builtin"}


def test_every_parameter_is_a_setting_or_a_shortcut() -> None:
    assert len(set(setting_keys())) == len(SETTINGS) - 1 + len(SHORTCUTS)  # the environment is positional


def test_the_command_is_recorded_without_credentials() -> None:
    text = command_text(
        ["run", "toy-env", "--header", "Authorization: Bearer canary", "--header=X-Api-Key: canary",
         "--header", "X-A: b c", "--set", "model.extra_headers.Cookie=canary", "-a", '{"a": 1}']
    )  # fmt: skip
    assert "canary" not in text
    assert text == (
        "bench run toy-env --header 'Authorization: ***' '--header=X-Api-Key: ***' --header 'X-A: b c' "
        "--set 'model.extra_headers.Cookie=***' -a '{\"a\": 1}'"
    )
