"""Which url, key variable and headers a model ends up with; no key may reach a host that it is not for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback_url
from harness.settings.resolver import ResolvedRun, missing_keys, resolve

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
    assert notice.startswith("no API key is sent to elsewhere.example")
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


VLLM = """
[model]
api_base_url = "https://vllm.example/v1"
api_key_var = "VLLM_KEY"
extra_headers = {X-Api-Key = "v", X-Title = "t"}
"""
AT_VLLM = ("https://vllm.example/v1", "VLLM_KEY")
CLOUD = ("https://cloud.example/v1", "CLOUD_KEY")


@pytest.mark.parametrize(
    ("suite", "flags", "sets", "expected"),
    [
        pytest.param(VLLM + """
            [[eval]]
            env_id = "toy-env"
            [eval.model]
            model = "a"
            [[eval]]
            env_id = "toy-env"
            model = "org/b"
            [[eval]]
            env_id = "toy-env"
            model = "reference/oracle"
            [[eval]]
            env_id = "toy-env"
            endpoint_id = "cloud"
            """, {}, [], [AT_VLLM, AT_VLLM, AT_VLLM, CLOUD], id="several models on one server"),
        pytest.param("""
            url = "https://vllm.example/v1"
            key = "VLLM_KEY"
            [[eval]]
            id = "toy-env"
            model = "a"
            [[eval]]
            id = "toy-env"
            model = "b"
            """, {}, [], [AT_VLLM, AT_VLLM], id="the flat form"),
        pytest.param(VLLM + """
            [[ablation]]
            env_id = "toy-env"
            [ablation.sweep]
            model = ["a", "cloud"]
            """, {}, [], [AT_VLLM, CLOUD], id="a sweep over models"),
        pytest.param("""
            [[ablation]]
            env_id = "toy-env"
            url = "https://vllm.example/v1"
            key = "VLLM_KEY"
            [ablation.sweep]
            model = ["a", "cloud"]
            """, {}, [], [AT_VLLM, CLOUD], id="a sweep over models with its own url"),
        pytest.param(VLLM + "[[eval]]\nenv_id = 'toy-env'\n", {}, ["model.model=b"], [AT_VLLM], id="--set"),
        pytest.param("""
            [[eval]]
            env_id = "toy-env"
            model = "a"
            url = "https://vllm.example/v1"
            key = "VLLM_KEY"
            """, {}, ["model.model=b"], [AT_VLLM], id="--set over [[eval]]"),
        pytest.param(VLLM + """
            model = "cloud"
            [[eval]]
            env_id = "toy-env"
            [[eval]]
            env_id = "toy-env"
            model = "b"
            """, {}, [], [AT_VLLM, AT_VLLM], id="an alias beside the url"),
        pytest.param("""
            [model]
            api_key_var = "SHARED_KEY"
            [[eval]]
            env_id = "toy-env"
            model = "a"
            url = "https://one.example/v1"
            [[eval]]
            env_id = "toy-env"
            model = "b"
            url = "https://two.example/v1"
            """, {}, [], [("https://one.example/v1", "SHARED_KEY"), ("https://two.example/v1", "SHARED_KEY")],
            id="one key variable for all"),
        pytest.param(VLLM + """
            [[eval]]
            env_id = "toy-env"
            url = "https://vllm.example/v2"
            [[eval]]
            env_id = "toy-env"
            url = "http://vllm.example/v1"
            [[eval]]
            env_id = "toy-env"
            url = "https://other.example/v1"
            [[eval]]
            env_id = "toy-env"
            key = "EVAL_KEY"
            """, {}, [], [
                ("https://vllm.example/v2", "VLLM_KEY"), ("http://vllm.example/v1", ""),
                ("https://other.example/v1", ""), ("https://vllm.example/v1", "EVAL_KEY"),
            ], id="a key stays with the host that it was written for"),
        pytest.param("""
            [[eval]]
            env_id = "toy-env"
            [eval.model]
            model = "a"
            api_base_url = "https://vllm.example/v1"
            api_key_var = "VLLM_KEY"
            """, {"api_key_var": "MINE"}, ["model.api_base_url=https://other.example/v1"],
            [("https://other.example/v1", "MINE")], id="--set of the url alone"),
        pytest.param("""
            [model]
            model = "cloud"
            api_key_var = "CLOUD_KEY_2"
            [[eval]]
            env_id = "toy-env"
            [[eval]]
            env_id = "toy-env"
            model = "plain"
            """, {}, [], [("https://cloud.example/v1", "CLOUD_KEY_2"),
            ("https://api.pinference.ai/api/v1", "PRIME_API_KEY")], id="the key of an alias"),
        pytest.param(VLLM + """
            [[eval]]
            env_id = "toy-env"
            model = "cloud"
            """, {"api_base_url": "https://typed.example/v1", "api_key_var": "TYPED"}, [],
            [("https://typed.example/v1", "TYPED")], id="-b and -k for an alias"),
    ],
)  # fmt: skip
def test_where_the_model_of_each_eval_is_asked(
    here: Path, write: Write, suite: str, flags: dict[str, object], sets: list[str], expected: list[tuple[str, str]]
) -> None:
    write("configs/endpoints.toml", REGISTRY)
    write("suite.toml", suite)
    runs = resolve("suite.toml", flags, sets).runs
    assert [where(run)[1:] for run in runs] == expected
    for run in runs:
        host = run.settings.model.api_base_url
        assert "X-Api-Key" not in run.settings.model.extra_headers or host.startswith("https://vllm.example/")


def test_what_is_left_out_is_told(here: Path, write: Write) -> None:
    write("configs/endpoints.toml", REGISTRY)
    write("suite.toml", VLLM + """
        [[eval]]
        env_id = "toy-env"
        name = "elsewhere"
        url = "https://other.example/v1"
        """)  # fmt: skip
    notices = resolve("suite.toml", {}).notices
    assert notices[0] == (
        "suite.toml: model.api_key_var, suite.toml: model.extra_headers.X-Api-Key is not used for elsewhere: it is "
        "for vllm.example, but suite.toml: eval[0].url selects another host"
    )
    assert notices[1].startswith("no API key is sent to other.example")
    write("suite.toml", '[model]\nmodel = "cloud"\n[[eval]]\nenv_id = "toy-env"\nmodel = "org/plain"\n')
    assert resolve("suite.toml", {}).notices == ()
    write("suite.toml", '[[eval]]\nenv_id = "toy-env"\nurl = "https://other.example/v1"\n')
    assert resolve("suite.toml", {"model": "cloud"}).notices == (
        "no API key is sent to other.example; to send one, give its environment variable with -k",
        "requests for cloud are sent to other.example instead of the alias's own URL, because of "
        "suite.toml: eval[0].url",
    )


OF_ALIAS = '[model]\nmodel = "cloud"\n[[eval]]\nenv_id = "toy-env"\n'


@pytest.mark.parametrize(
    ("suite", "flags", "sets", "refused"),
    [
        (OF_ALIAS + 'model = "plain"', {}, [],
         "suite.toml: eval[0].model: plain, the model of toy-env, would be sent to https://api.pinference.ai/api/v1, "
         "the default endpoint, because no setting gives its URL; but suite.toml: model.model sets another "
         "host, cloud.example; give the model's URL (api_base_url in a file, or api_base_url for all models), even if "
         "it is https://api.pinference.ai/api/v1"),
        ('model = "cloud"\n[[eval]]\nid = "toy-env"\nmodel = "plain"', {}, [], "suite.toml: eval[0].model: plain"),
        (OF_ALIAS.replace("eval", "ablation") + '[ablation.sweep]\nmodel = ["plain"]', {}, [], "sweep.model[0]: plain"),
        (VLLM + '[[ablation]]\nenv_id = "toy-env"\nmodel = "cloud"\n[ablation.sweep]\nmodel = ["plain"]', {}, [], ""),
        ('[[ablation]]\nid = "toy-env"\nmodel = "cloud"\n[ablation.sweep]\nmodel = ["plain"]', {}, [],
         "; but suite.toml: ablation[0].model sets another host, cloud.example"),
        (OF_ALIAS, {}, ["model.model=plain"], "--set model.model=plain: plain"),
        ('[[eval]]\nid = "toy-env"\nmodel = "plain"', {"model": "cloud"}, [], "; but -m cloud sets another host"),
        (OF_ALIAS + 'model = "plain"', {}, ["model.api_base_url=https://api.pinference.ai/api/v1"], ""),
        (OF_ALIAS + 'model = "plain"', {"api_base_url": "https://typed.example/v1"}, [], ""),
        (OF_ALIAS + 'model = "reference/oracle"', {}, [], ""),
        (VLLM + '[[eval]]\nenv_id = "toy-env"', {}, ["model.model=reference/oracle"], ""),
        ('[[eval]]\nid = "toy-env"\nmodel = "plain"\n[[eval]]\nid = "toy-env"\nmodel = "cloud"', {}, [], ""),
    ],
)  # fmt: skip
def test_no_model_is_asked_at_the_default_host_where_a_layer_names_another(
    here: Path, write: Write, suite: str, flags: dict[str, object], sets: list[str], refused: str
) -> None:
    write("configs/endpoints.toml", REGISTRY)
    write("suite.toml", suite)
    resolution = resolve("suite.toml", flags, sets)
    environ = dict.fromkeys(["PRIME_API_KEY", "CLOUD_KEY", "VLLM_KEY"], "k")
    if not refused:
        missing_keys(resolution, environ)
        return
    with pytest.raises(ConfigError) as caught:
        missing_keys(resolution, environ)
    assert refused in str(caught.value)


def test_the_key_of_another_provider_needs_a_url(here: Path) -> None:
    flags = {"api_key_var": "OPENAI_API_KEY"}
    environ = {"OPENAI_API_KEY": "x"}
    with pytest.raises(ConfigError, match=r"with OPENAI_API_KEY \(-k OPENAI_API_KEY\), an API key of openai"):
        missing_keys(resolve("toy-env", flags), environ)
    missing_keys(resolve("toy-env", {**flags, "api_base_url": "https://api.pinference.ai/api/v1"}), environ)
    missing_keys(resolve("toy-env", {**flags, "model": "reference/oracle"}), environ)


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
        "CLOUD_KEY, the key of cloud, is sent to gateway.example (-b https://gateway.example/v1); to send "
        "another key, give its environment variable with -k",
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
        "PRIME_API_KEY is not set, but toy-env, other-env at https://api.pinference.ai/api/v1 needs this API key"
    )
    assert "api_key_var" in message
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
    assert asked("http://10.0.0.1:8000/v1").startswith("UNSET is not set, but toy-env at http://10.0.0.1:8000/v1 needs")


@for_each_row(
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
