"""Where the system that users come from went wrong in silence: one test for each, so that none of it happens here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, HarnessError
from harness.settings.resolver import resolve

Write = Callable[[str, str], Path]

EVAL = '[[eval]]\nid = "toy-env"\n'


def test_a_missing_toml_file_never_becomes_an_environment(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.toml: no such file"):
        resolve("nope.toml", {})


@pytest.mark.parametrize(
    "text",
    [
        "[sav]\nsave_results = true\n" + EVAL,
        EVAL + "num_exmaples = 99\n",
        EVAL + "[eval.modle]\nmodel = 'm'\n",
        "[model.client_config]\ntimeout = 3\n" + EVAL,
        "[model]\nmax_tokens = 3\n" + EVAL,
        "[envs]\n" + EVAL,
    ],
)
def test_no_unknown_name_is_ignored(write: Write, text: str) -> None:
    write("s.toml", text)
    with pytest.raises(ConfigError, match="unknown"):
        resolve("s.toml", {})


def test_a_model_name_beside_eval_is_a_model_name(write: Write) -> None:
    write("s.toml", EVAL + 'model = "x"\n')
    assert resolve("s.toml", {}).runs[0].settings.model.model == "x"


def test_an_empty_model_does_not_fall_through(write: Write) -> None:
    write("s.toml", '[model]\nmodel = ""\n' + EVAL)
    with pytest.raises(ConfigError, match="must not be empty"):
        resolve("s.toml", {"model": "m"})


@pytest.mark.parametrize("text", ['num_examples = "10"\n', 'num_examples = "ten"\n', "num_examples = true\n"])
def test_no_type_is_coerced(write: Write, text: str) -> None:
    write("s.toml", text + EVAL)
    with pytest.raises(ConfigError, match="must be an integer"):
        resolve("s.toml", {})


@pytest.mark.parametrize("flags", [{"num_examples": "0"}, {"num_examples": "-5"}, {"rollouts_per_example": "0"},
                                   {"max_concurrent": "0"}, {"max_concurrent": "-2"}])  # fmt: skip
def test_zero_is_neither_all_nor_unlimited(here: Path, flags: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        resolve("toy-env", flags)


def test_headers_that_differ_in_case_are_one_header(write: Write) -> None:
    write("s.toml", '[model.extra_headers]\nX-A = "1"\n' + EVAL + '[eval.model.extra_headers]\nx-a = "2"\n')
    assert resolve("s.toml", {}).runs[0].settings.model.extra_headers == {"x-a": "2"}


def test_a_url_and_key_for_one_model_never_reach_another(write: Write) -> None:
    write("configs/endpoints.toml", '[[endpoint]]\nendpoint_id = "cloud"\nurl = "https://c.example/v1"\nkey = "C"\n')
    write("s.toml", '[model]\nmodel = "m"\nurl_ = 1\n'.replace("url_ = 1", 'api_base_url = "http://localhost:1/v1"\n'
          'api_key_var = "L"') + EVAL + '[eval.model]\nmodel = "cloud"\n')  # fmt: skip
    (run,) = resolve("s.toml", {}).runs
    assert (run.endpoints[0].url, run.endpoints[0].key_var) == ("https://c.example/v1", "C")


def test_per_eval_sampling_adds_to_the_shared_and_never_wipes_it(write: Write) -> None:
    write(
        "s.toml",
        "sampling = {temperature = 0.5, extra_body = {a = 1}}\n" + EVAL + "sampling = {extra_body = {b = 2}}\n",
    )
    assert resolve("s.toml", {}).runs[0].settings.model.sampling_args == {
        "temperature": 0.5,
        "extra_body": {"a": 1, "b": 2},
    }


def test_sampling_args_hold_nothing_that_nobody_set(here: Path) -> None:
    assert resolve("toy-env", {}).runs[0].settings.model.sampling_args == {}


def test_flags_are_used_with_a_file(write: Write) -> None:
    write("s.toml", EVAL)
    (run,) = resolve("s.toml", {"num_examples": "9", "model": "m"}).runs
    assert (run.settings.env.num_examples, run.settings.model.model) == (9, "m")


def test_the_key_of_an_endpoint_may_be_missing_and_its_url_may_not(write: Write) -> None:
    write(
        "configs/endpoints.py", 'ENDPOINTS = {"a": {"model": "m", "url": "http://localhost:1/v1"}, "b": {"model": "m"}}'
    )
    with pytest.raises(ConfigError, match=r'configs/endpoints\.py: ENDPOINTS\["b"\]\.url: missing'):
        resolve("toy-env", {})


def test_an_environment_named_with_its_owner(here: Path) -> None:
    (run,) = resolve("owner/toy-env", {}).runs
    assert run.settings.env.env_id == "owner/toy-env"
    assert run.found is not None
    assert run.found.module == "toy_env"


def test_resolved_runs_share_no_table(write: Write) -> None:
    write("s.toml", "args = {k = {a = 1}}\n" + EVAL + EVAL)
    one, two = resolve("s.toml", {}).runs
    one.settings.env.env_args["k"]["a"] = 2
    assert two.settings.env.env_args == {"k": {"a": 1}}


@pytest.mark.parametrize("target", ["toy env", "toy-env;rm", "/etc/passwd/", "toy\x1b[31m", "sys", "json", "os.path"])
def test_odd_targets_are_refused_in_words(here: Path, target: str) -> None:
    with pytest.raises(HarnessError) as caught:
        resolve(target, {})
    assert caught.value.exit_code == 2
    assert "\x1b" not in str(caught.value)
