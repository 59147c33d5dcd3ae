"""Which url, key variable and headers a model ends up with; no key may reach a host that it is not for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.config.resolver import ResolvedRun, missing_keys, resolve
from harness.errors import ConfigError
from harness.loopback import is_loopback_url

Write = Callable[[str, str], Path]

REGISTRY = """
[[endpoint]]
endpoint_id = "cloud"
model = "big"
url = "https://cloud.example/v1"
key = "CLOUD_KEY"
"""


def where(run: ResolvedRun) -> tuple[str, str, str]:
    model = run.settings.model
    return model.model, model.api_base_url, model.api_key_var


def test_the_builtin_key_goes_to_the_builtin_host_only(here: Path) -> None:
    def key(**flags: object) -> str:
        return resolve("toy-env", flags).runs[0].settings.model.api_key_var

    assert key() == "PRIME_API_KEY"
    assert key(api_base_url="https://api.pinference.ai/other") == "PRIME_API_KEY"
    assert key(api_base_url="http://api.pinference.ai/api/v1") == ""
    assert key(api_base_url="https://api.pinference.ai.evil.example/v1") == ""
    assert key(api_base_url="https://api.pinference.ai:8443/v1") == ""
    assert key(api_base_url="https://elsewhere.example/v1") == ""
    assert key(api_base_url="https://elsewhere.example/v1", api_key_var="MINE") == "MINE"


def test_a_host_that_gets_no_key_is_told(here: Path) -> None:
    (notice,) = resolve("toy-env", {"api_base_url": "https://elsewhere.example/v1"}).notices
    assert notice.startswith("no key is sent to elsewhere.example")
    assert resolve("toy-env", {"api_base_url": "http://127.0.0.1:8000/v1"}).notices == ()


def test_a_layer_that_names_a_model_drops_what_lower_file_layers_say_of_another(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", REGISTRY)
    write(
        "suite.toml",
        """
        [model]
        model = "local-model"
        api_base_url = "http://localhost:1/v1"
        api_key_var = "LOCAL_KEY"
        extra_headers = {X-Local = "1"}
        sampling_args = {temperature = 0.5}
        [[eval]]
        id = "toy-env"
        [[eval]]
        id = "toy-env"
        [eval.model]
        model = "cloud"
        """,
    )
    resolution = resolve("suite.toml", {"extra_headers": ["X-Mine: 1"]})
    local, cloud = resolution.runs
    assert where(local) == ("local-model", "http://localhost:1/v1", "LOCAL_KEY")
    assert where(cloud) == ("big", "https://cloud.example/v1", "CLOUD_KEY")
    assert cloud.settings.model.extra_headers == {"X-Mine": "1"}
    assert cloud.settings.model.sampling_args == {"temperature": 0.5}
    assert any("suite.toml: model.api_base_url" in notice and "is not used for toy-env" in notice
               for notice in resolution.notices)  # fmt: skip


def test_set_names_a_model_like_a_file_does(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", REGISTRY)
    write("suite.toml", '[[eval]]\nid = "toy-env"\nmodel = "m"\nurl = "http://localhost:1/v1"\nkey = "LOCAL_KEY"\n')
    (run,) = resolve("suite.toml", {}, ["model.model=cloud"]).runs
    assert where(run) == ("big", "https://cloud.example/v1", "CLOUD_KEY")
    (run,) = resolve("suite.toml", {}, ["model.model=reference/oracle"]).runs
    assert run.is_reference
    (run,) = resolve("suite.toml", {}, ["model.model=other", "model.api_base_url=http://localhost:2/v1"]).runs
    assert where(run) == ("other", "http://localhost:2/v1", "")


def test_flags_say_where_whatever_model_is_asked(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", REGISTRY)
    write("suite.toml", '[model]\nmodel = "a"\n[[eval]]\nid = "toy-env"\n[[eval]]\nid = "toy-env"\nmodel = "cloud"\n')
    flags = {"api_base_url": "http://localhost:9/v1", "api_key_var": "MINE", "extra_headers": ["X: 1"]}
    runs = resolve("suite.toml", flags).runs
    assert [where(run) for run in runs] == [
        ("a", "http://localhost:9/v1", "MINE"), ("big", "http://localhost:9/v1", "MINE"),
    ]  # fmt: skip
    write("suite.toml", '[[eval]]\nid = "toy-env"\nmodel = "a"\nurl = "http://localhost:1/v1"\n')
    (run,) = resolve("suite.toml", flags).runs
    assert where(run) == ("a", "http://localhost:1/v1", "MINE")


def test_an_alias_key_that_is_sent_elsewhere_is_told(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", REGISTRY)
    resolution = resolve("toy-env", {"model": "cloud", "api_base_url": "https://gateway.example/v1"})
    assert where(resolution.runs[0]) == ("big", "https://gateway.example/v1", "CLOUD_KEY")
    assert resolution.notices == (
        "CLOUD_KEY, the key of cloud, is sent to gateway.example (-b https://gateway.example/v1); -k names another",
    )


def test_reference_models_need_no_url_and_no_key(here: Path, write: Write) -> None:
    (run,) = resolve("toy-env", {"model": "reference/noisy?accuracy=0.7&seed=1"}).runs
    assert run.is_reference
    assert where(run) == ("reference/noisy?accuracy=0.7&seed=1", "", "")
    assert (run.endpoints[0].url, run.endpoints[0].key_var) == ("", None)
    missing_keys(resolve("toy-env", {"model": "reference/oracle"}), {})
    (run,) = resolve("toy-env", {"model": "reference/oracle", "api_base_url": "http://localhost:1/v1"}).runs
    assert not run.is_reference
    write("suite.toml", 'id = "toy-env"\nmodel = "reference/oracle"\nurl = "http://localhost:1/v1"\n')
    assert not resolve("suite.toml", {}).runs[0].is_reference


def test_an_unset_key_variable_stops(here: Path) -> None:
    resolution = resolve("toy-env,other-env", {})
    with pytest.raises(ConfigError) as caught:
        missing_keys(resolution, {})
    message = str(caught.value)
    assert message.startswith(
        "PRIME_API_KEY is not set, and toy-env, other-env at https://api.pinference.ai/api/v1 needs it"
    )
    assert "-k" in message
    assert "reference/oracle" in message
    with pytest.raises(ConfigError):
        missing_keys(resolution, {"PRIME_API_KEY": "  "})
    missing_keys(resolution, {"PRIME_API_KEY": "x"})


def test_loopback_needs_no_key(here: Path) -> None:
    def asked(url: str) -> str:
        resolution = resolve("toy-env", {"api_base_url": url, "api_key_var": "UNSET"})
        try:
            missing_keys(resolution, {})
        except ConfigError as error:
            return str(error)
        assert where(resolution.runs[0])[1:] == (url, "UNSET"), "and it is used if it is set"
        return ""

    assert asked("http://localhost:8000/v1") == ""
    assert asked("http://10.0.0.1:8000/v1").startswith("UNSET is not set, and toy-env at http://10.0.0.1:8000/v1 needs")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:8000/v1", True),
        ("http://LOCALHOST/v1", True),
        ("http://a.localhost/v1", True),
        ("http://127.0.0.1:1/v1", True),
        ("http://127.8.8.8/v1", True),
        ("http://[::1]:1/v1", True),
        ("", True),
        ("http://localhost.evil.example/v1", False),
        ("http://127.0.0.1.evil.example/v1", False),
        ("http://10.0.0.1/v1", False),
        ("https://api.openai.com/v1", False),
    ],
)
def test_what_is_loopback(url: str, expected: bool) -> None:
    assert is_loopback_url(url) is expected
