"""What of a resolved run is written down, and that it repeats the run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.settings.resolver import ResolvedRun, resolve

Write = Callable[[str, str], Path]

json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab. \"'é", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
json_tables = st.dictionaries(st.text("ab. \"'é", min_size=1, max_size=3), json_values, max_size=3)


def again(run: ResolvedRun, here: Path) -> ResolvedRun:
    (here / "config.toml").write_text(run.to_toml())
    (repeated,) = resolve("config.toml", {}).runs
    return repeated


def test_the_file_of_a_run_repeats_it(here: Path, write: Write) -> None:
    write(
        "suite.toml",
        """
        [[ablation]]
        id = "toy-env"
        args = {a = 1, b = {c = [1, {d = 2}]}}
        state_columns = ["x"]
        scoring_timeout = "none"
        sampling = {temperature = 0.5}
        model = "m"
        url = "https://elsewhere.example/v1"
        headers = {X-Team = "us"}
        save_results = true
        hf_hub_dataset_name = "me/data"
        [ablation.sweep]
        "args.k" = ["v"]
        """,
    )
    (run,) = resolve("suite.toml", {"env_args": ['{"none": null}']}).runs
    repeated = again(run, here)
    assert repeated.settings == run.settings
    assert repeated.endpoints == run.endpoints


def in_order(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(json_tables, json_tables)
def test_any_table_survives_the_file(here: Path, args: dict[str, object], sampling: dict[str, object]) -> None:
    (run,) = resolve("toy-env", {"env_args": args, "sampling_args": sampling, "model": "reference/oracle"}).runs
    assert run.settings.env.env_args == args
    repeated = again(run, here)
    assert repeated.settings == run.settings
    assert in_order(repeated.settings.env.env_args) == in_order(run.settings.env.env_args)  # True is not 1
    assert repeated.is_reference


@pytest.mark.parametrize("flags", [{}, {"max_concurrent": 64}, {"rpm": "none"}, {"extra_headers": ["X: 9"]}])
def test_the_file_of_an_alias_repeats_it_without_the_registry(
    here: Path, write: Write, flags: dict[str, object]
) -> None:
    registry = write(
        "configs/endpoints.toml",
        """
        [[endpoint]]
        endpoint_id = "pair"
        model = "other"
        url = "http://localhost:1/v1"
        rpm = 5
        max_concurrent = 8
        headers = {X-A = "1"}
        price = {input = 1}
        [[endpoint]]
        endpoint_id = "pair"
        model = "other"
        url = "http://localhost:2/v1"
        key = "SECOND_KEY"
        max_concurrent = 4
        [[endpoint]]
        endpoint_id = "other"
        model = "yet-another"
        url = "http://localhost:3/v1"
        """,
    )
    (run,) = resolve("toy-env", {"model": "pair", **flags}).runs
    assert again(run, here).settings == run.settings
    registry.unlink()
    repeated = again(run, here)
    assert repeated.settings == run.settings
    assert repeated.endpoints == run.endpoints


def test_secret_headers_are_not_written_down(here: Path) -> None:
    (run,) = resolve(
        "toy-env", {"extra_headers": ["Authorization: Bearer canary-1", "X-Api-Key: canary-2", "X-A: b"]}
    ).runs
    assert run.endpoints[0].headers["Authorization"] == "Bearer canary-1"
    described = run.described()
    for text in (run.to_toml(), json.dumps(described)):
        assert "canary" not in text
    assert described["model.extra_headers"]["value"] == {"Authorization": "***", "X-Api-Key": "***", "X-A": "b"}
    assert "# header Authorization: not recorded; give it again with --header" in run.to_toml()
    assert tomllib.loads(run.to_toml())["eval"][0]["model"]["extra_headers"] == {"X-A": "b"}


def test_described_is_plain_json(here: Path) -> None:
    (run,) = resolve("toy-env", {"env_args": {"k": {"a": 1, "b.c": []}}, "state_columns": "x,y"}).runs
    described = json.loads(json.dumps(run.described()))
    assert described["env.state_columns"]["value"] == ["x", "y"]
    assert described["env.env_args"]["value"] == {"k": {"a": 1, "b.c": []}}
    assert described["env.env_args.k.a"] == {"value": 1, "origin": "cli", "source": "-a k.a"}
    assert described['env.env_args.k."b.c"']["value"] == []
    order = list(described)
    assert order.index("env.env_args") + 1 == order.index("env.env_args.k.a")
