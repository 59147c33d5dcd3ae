from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.settings.endpoints import load_registry
from harness.settings.resolver import resolve

Write = Callable[[str, str], Path]

TOML = """
[[endpoint]]
endpoint_id = "mini"
model = "gpt-4.1-mini"
url = "https://api.example.com/v1"
key = "EXAMPLE_KEY"
headers = {X-Team = "us"}
rpm = 60
tpm = 1000
max_concurrent = 8
price = {input = 0.4, output = 1.6}

[[endpoint]]
endpoint_id = "bare"
url = "http://localhost:1/v1"
"""

E = '[[endpoint]]\nendpoint_id = "a"\nurl = "http://h"\n'

PYTHON = """
import nothing_of_the_kind
KEY = "A" + "B"
ENDPOINTS = {
    "mini": {"model": "gpt-4.1-mini", "url": "https://api.example.com/v1", "key": "EXAMPLE_KEY"},
    "two": [{"url": "http://localhost:1/v1"}, {"url": "http://localhost:2/v1"}],
}
raise RuntimeError("never run")
"""


def test_an_alias_brings_model_url_key_headers_and_limits(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", TOML)
    (run,) = resolve("toy-env", {"model": "mini"}).runs
    model = run.settings.model
    assert (model.model, model.api_base_url, model.api_key_var) == (
        "gpt-4.1-mini", "https://api.example.com/v1", "EXAMPLE_KEY",
    )  # fmt: skip
    assert (model.rpm, model.tpm, model.max_concurrent, model.extra_headers) == (60, 1000, 8, {"X-Team": "us"})
    assert run.alias == "mini"
    (endpoint,) = run.endpoints
    assert (endpoint.url, endpoint.key_var, endpoint.model) == (model.api_base_url, "EXAMPLE_KEY", "gpt-4.1-mini")
    assert (endpoint.rpm, endpoint.tpm, endpoint.max_concurrent) == (60, 1000, 8)
    assert endpoint.price == {"input": 0.4, "output": 1.6}
    assert run.origins["model.model"].layer == "registry"
    assert run.origins["model.model"].source == "configs/endpoints.toml: endpoint[0].model, for mini from -m mini"
    assert run.origins["model.api_base_url"].source == "configs/endpoints.toml: endpoint[0].url"


@pytest.mark.parametrize("name", ["headers", "extra_headers"])
def test_headers_of_an_endpoint_may_be_a_list_as_in_suites(here: Path, write: Write, name: str) -> None:
    write("configs/endpoints.toml", f'{E}{name} = ["X-A: 0", "x-a: 1", "X-B: a:b"]\n')
    (run,) = resolve("toy-env", {"model": "a"}).runs
    assert run.settings.model.extra_headers == {"x-a": "1", "X-B": "a:b"}
    write("suite.toml", 'id = "toy-env"\n[model]\nextra_headers = ["X-C: 1"]\n')
    assert resolve("suite.toml", {}).runs[0].settings.model.extra_headers == {"X-C": "1"}
    for wrong, words in (('["k3y"]', "must be 'Name: Value'"), ("[5]", "must be a list of 'Name: Value' strings")):
        write("configs/endpoints.toml", f"{E}{name} = {wrong}\n")
        with pytest.raises(ConfigError, match=rf"endpoint\[0\]\.{name}: {words}") as caught:
            resolve("toy-env", {"model": "a"})
        assert "k3y" not in str(caught.value)


def test_an_alias_without_a_model_is_the_model(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", TOML)
    (run,) = resolve("toy-env", {"model": "bare"}).runs
    assert run.settings.model.model == "bare"
    assert run.origins["model.model"].layer == "cli"
    assert run.endpoints[0].key_var is None


def test_the_python_registry_is_read_and_never_run(here: Path, write: Write) -> None:
    write("configs/endpoints.py", PYTHON)
    (run,) = resolve("toy-env", {"model": "mini"}).runs
    assert run.endpoints[0].key_var == "EXAMPLE_KEY"
    assert run.origins["model.api_base_url"].source == 'configs/endpoints.py: ENDPOINTS["mini"].url'
    (run,) = resolve("toy-env", {"model": "two"}).runs
    assert [endpoint.url for endpoint in run.endpoints] == ["http://localhost:1/v1", "http://localhost:2/v1"]


def test_toml_comes_before_python_and_a_path_before_both(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", TOML)
    write("configs/endpoints.py", PYTHON.replace("EXAMPLE_KEY", "PYTHON_KEY"))
    write("other/endpoints.py", PYTHON.replace("EXAMPLE_KEY", "OTHER_KEY"))
    keys = [resolve("toy-env", {"model": "mini"}, endpoints_path=path).runs[0].endpoints[0].key_var
            for path in (None, "configs/endpoints.py", "other", "other/endpoints.py", "configs")]  # fmt: skip
    assert keys == ["EXAMPLE_KEY", "PYTHON_KEY", "OTHER_KEY", "OTHER_KEY", "EXAMPLE_KEY"]


def test_a_suite_names_its_registry_relative_to_itself(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", TOML)
    write("suites/mine.toml", TOML.replace("EXAMPLE_KEY", "SUITE_KEY"))
    write("suites/suite.toml", 'endpoints_path = "mine.toml"\nid = "toy-env"\nmodel = "mini"\n')
    resolution = resolve("suites/suite.toml", {}, endpoints_path="configs/endpoints.toml")
    assert resolution.runs[0].endpoints[0].key_var == "SUITE_KEY"
    assert "-e configs/endpoints.toml has no effect" in resolution.notices[0]
    resolution = resolve("suites/suite.toml", {}, ["endpoints_path=configs/endpoints.toml"])
    assert resolution.runs[0].endpoints[0].key_var == "EXAMPLE_KEY"


def test_a_suite_may_carry_endpoints_of_its_own(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", TOML)
    write("suite.toml", '[[endpoint]]\nendpoint_id = "mini"\nurl = "http://localhost:9/v1"\n[[eval]]\nid = "toy-env"\n')
    (mine,) = resolve("suite.toml", {"model": "mini"}).runs
    (theirs,) = resolve("suite.toml", {"model": "bare"}).runs
    assert mine.endpoints[0].url == "http://localhost:9/v1"
    assert theirs.endpoints[0].url == "http://localhost:1/v1"


def test_repeated_ids_are_replicas_whose_bounds_add_up(here: Path, write: Write) -> None:
    write(
        "configs/endpoints.toml",
        "".join(
            f'[[endpoint]]\nendpoint_id = "a"\nurl = "http://localhost:{port}/v1"\nmax_concurrent = {bound}\n'
            for port, bound in ((1, 8), (2, 4))
        ),
    )
    (run,) = resolve("toy-env", {"model": "a"}).runs
    assert [(endpoint.url, endpoint.max_concurrent) for endpoint in run.endpoints] == [
        ("http://localhost:1/v1", 8), ("http://localhost:2/v1", 4),
    ]  # fmt: skip
    assert run.settings.model.max_concurrent == 12
    (run,) = resolve("toy-env", {"model": "a", "max_concurrent": 64}).runs
    assert run.settings.model.max_concurrent == 64
    assert [endpoint.max_concurrent for endpoint in run.endpoints] == [None, None]
    (run,) = resolve("toy-env", {"model": "a", "api_base_url": "http://localhost:3/v1"}).runs
    assert [endpoint.url for endpoint in run.endpoints] == ["http://localhost:3/v1"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("e.toml", "[[endpoints]]\n", 'e.toml: endpoints: unknown table; did you mean "endpoint"?'),
        ("e.toml", "endpoint = 1", "e.toml: endpoint: must be a list of tables: write [[endpoint]]"),
        ("e.toml", "endpoint = [1]", "e.toml: endpoint[0]: must be a table"),
        ("e.toml", '[[endpoint]]\nurl = "http://h"', "e.toml: endpoint[0].endpoint_id: must be a string"),
        ("e.toml", '[[endpoint]]\nendpoint_id = "a"', "e.toml: endpoint[0].url: missing; endpoint 'a' needs"),
        ("e.toml", '[[endpoint]]\nendpoint_id = "a"\nurl = 5', "e.toml: endpoint[0].url: must be a string"),
        ("e.toml", E + 'kye = "K"', "endpoint[0].kye: unknown key; did you mean"),
        ("e.toml", E + 'key = "sk-1"', "name of an environment variable"),
        ("e.toml", E + 'rpm = 0', "endpoint[0].rpm = 0: must be greater"),
        ("e.toml", E + 'price = 1', "endpoint[0].price: must be a table"),
        ("e.toml", E + 'price = {inptu = 1}', 'did you mean "input"?'),
        ("e.toml", E + 'price = {input = -1}', "must be a number, 0 or more"),
        (
            "e.toml",
            '[[endpoint]]\nendpoint_id = "a"\nmodel = "x"\nurl = "http://h"\n'
            '[[endpoint]]\nendpoint_id = "a"\nmodel = "y"\nurl = "http://i"',
            "replicas of 'a' must have the same model",
        ),
        ("e.toml", "= 1", "e.toml: not valid TOML"),
        ("e.py", "ENDPOINTS = {", "e.py: not valid Python"),
        ("e.py", "OTHER = {}", "e.py: ENDPOINTS: missing"),
        ("e.py", "\nENDPOINTS = make()", "e.py: ENDPOINTS (line 2): must be a literal dict; no code is run"),
        ("e.py", "ENDPOINTS = []", "e.py: ENDPOINTS: must be a dict"),
        ("e.py", "ENDPOINTS = {'a': 1}", 'e.py: ENDPOINTS["a"]: must be a dict'),
        ("e.py", "ENDPOINTS = {'a': {'model': 'm'}}", 'e.py: ENDPOINTS["a"].url: missing'),
        ("e.py", "ENDPOINTS: dict = {'a': {'url': 'http://h', 'kee': 'K'}}", 'e.py: ENDPOINTS["a"].kee: unknown key'),
        ("e.json", "{}", "must be a .toml or .py file"),
    ],
)  # fmt: skip
def test_what_a_registry_may_not_say(here: Path, write: Write, name: str, text: str, expected: str) -> None:
    path = write(name, text)
    with pytest.raises(ConfigError) as caught:
        load_registry(path, here)
    assert expected in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_a_registry_that_is_named_must_exist(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.toml: no such endpoint registry"):
        resolve("toy-env", {}, endpoints_path="nope.toml")
    assert resolve("toy-env", {}).runs[0].alias is None


def test_a_name_that_is_no_alias_gets_a_hint(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", TOML)
    (notice,) = resolve("toy-env", {"model": "mimi"}).notices
    assert notice.startswith("'mimi' is not an alias in configs/endpoints.toml")
    assert "did you mean 'mini'?" in notice
    for flags in ({"model": "org/mimi"}, {"model": "mini"}, {"model": "mimi", "api_base_url": "http://localhost:1/v1"}):
        assert resolve("toy-env", flags).notices == ()
