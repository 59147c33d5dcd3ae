"""Every group's order of layers, from the closed list: each row puts values into some layers and says who wins."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.settings.resolver import ResolvedRun, resolve
from harness.settings.schema import SETTINGS

Write = Callable[[str, str], Path]

ENV = ("set", "eval", "defaults", "cli", "package", "builtin")
MODEL = ("set", "eval", "defaults", "cli", "registry", "builtin")
SAVE = ("set", "eval", "defaults", "cli", "builtin")

CASES: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "env.num_examples": (ENV, {"set": 11, "eval": 12, "defaults": 13, "cli": 14, "package": 15, "builtin": 5}),
    "env.timeout": (ENV, {"set": 1.0, "eval": 2.0, "defaults": 3.0, "cli": 4.0, "package": 5.0, "builtin": None}),
    "env.shuffle_seed": (ENV, {"set": 11, "eval": 12, "defaults": 13, "cli": 14, "package": 15, "builtin": 0}),
    "model.max_concurrent": (MODEL, {"set": 11, "eval": 12, "defaults": 13, "cli": 14, "registry": 15, "builtin": 32}),
    "model.rpm": (MODEL, {"set": 11, "eval": 12, "defaults": 13, "cli": 14, "registry": 15, "builtin": None}),
    "model.api_key_var": (
        MODEL,
        {"set": "A", "eval": "B", "defaults": "C", "cli": "D", "registry": "E", "builtin": "PRIME_API_KEY"},
    ),
    "save.save_every": (SAVE, {"set": 11, "eval": 12, "defaults": 13, "cli": 14, "builtin": 100}),
    "save.output_dir": (SAVE, {"set": "a", "eval": "b", "defaults": "c", "cli": "d", "builtin": "outputs"}),
}


def subsets(layers: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    given = [layer for layer in layers if layer != "builtin"]
    return itertools.chain.from_iterable(itertools.combinations(given, size) for size in range(len(given) + 1))


ROWS = [(path, layers, True) for path, (order, _) in CASES.items() for layers in subsets(order)]
ROWS += [
    (path, layers, False) for path, layers, _ in ROWS if len(layers) <= 1 or len(layers) == len(CASES[path][0]) - 1
]


@pytest.mark.parametrize(
    ("path", "layers", "grouped"), ROWS, ids=[f"{row[0]}:{'+'.join(row[1]) or 'none'}:{row[2]}" for row in ROWS]
)
def test_the_highest_layer_wins(here: Path, write: Write, path: str, layers: tuple[str, ...], grouped: bool) -> None:
    order, values = CASES[path]
    group, key = path.split(".")
    run = build(here, write, path, {layer: values[layer] for layer in layers}, grouped)
    winner = min((*layers, "builtin"), key=order.index)
    assert getattr(getattr(run.settings, group), key) == values[winner]
    assert run.origins[path].layer == winner


def build(here: Path, write: Write, path: str, given: dict[str, object], grouped: bool) -> ResolvedRun:
    group, key = path.split(".")

    def line(layer: str) -> str:
        return f"{key} = {json.dumps(given[layer])}" if layer in given else ""

    (here.parent / "modules" / "pyproject.toml").write_text(
        f'[project]\nname = "toy-env"\n[tool.harness.eval]\n{line("package")}\n'
    )
    write("configs/endpoints.toml", endpoint(key, given.get("registry")))
    named = 'model = "alias"' if "registry" in given else ""
    if grouped:
        text = f"[{group}]\n{line('defaults')}\n[[eval]]\n[eval.{group}]\n{line('eval')}\n"
        text += 'env_id = "toy-env"\n' if group == "env" else '[eval.env]\nenv_id = "toy-env"\n'
    else:
        text = f'{line("defaults")}\n[[eval]]\nid = "toy-env"\n{line("eval")}\n'
    write("suite.toml", text)
    flags: dict[str, object] = {key: given["cli"]} if "cli" in given else {}
    if named:
        flags["model"] = "alias"
    sets = [f"{path}={given['set']}"] if "set" in given else []
    (run,) = resolve("suite.toml", flags, sets).runs
    return run


def endpoint(key: str, value: object) -> str:
    if value is None:
        return ""
    name = "key" if key == "api_key_var" else key
    return (
        f'[[endpoint]]\nendpoint_id = "alias"\nurl = "https://api.pinference.ai/api/v1"\n{name} = {json.dumps(value)}\n'
    )


def test_tables_merge_key_by_key_through_all_layers(here: Path, write: Write) -> None:
    (here.parent / "modules" / "pyproject.toml").write_text(
        '[project]\nname = "toy-env"\n[tool.harness.eval]\nargs = {package = 1, k = {a = 1}, list = [1, 2]}\n'
    )
    write(
        "suite.toml",
        """
        [env.env_args]
        defaults = 3
        k = {c = 3}
        [[eval]]
        [eval.env]
        env_id = "toy-env"
        [eval.env.env_args]
        eval = 4
        list = [9]
        k = {a = 4}
        """,
    )
    flags = {"env_args": ['{"cli": 2, "k": {"a": 2, "b": 2}}', "more=x"]}
    (run,) = resolve("suite.toml", flags, ["env.env_args.set=5"]).runs
    assert run.settings.env.env_args == {
        "package": 1, "cli": 2, "more": "x", "defaults": 3, "eval": 4, "set": 5, "list": [9],
        "k": {"a": 4, "b": 2, "c": 3},
    }  # fmt: skip
    origins = {
        path.removeprefix("env.env_args."): origin.layer for path, origin in run.origins.items() if "_args." in path
    }
    assert origins == {
        "package": "package", "cli": "cli", "more": "cli", "defaults": "defaults", "eval": "eval", "set": "set",
        "list": "eval", "k.a": "eval", "k.b": "cli", "k.c": "defaults",
    }  # fmt: skip
    assert run.origins["env.env_args"].layer == "set"


def test_headers_merge_whatever_their_case(here: Path, write: Write) -> None:
    write(
        "suite.toml",
        """
        [model.extra_headers]
        X-Team = "file"
        [[eval]]
        env_id = "toy-env"
        [eval.model.extra_headers]
        x-run = "eval"
        """,
    )
    (run,) = resolve("suite.toml", {"extra_headers": ["x-team: cli", "X-Run: cli", "Other: cli"]}).runs
    assert run.settings.model.extra_headers == {"X-Team": "file", "x-run": "eval", "Other": "cli"}
    assert run.endpoints[0].headers == run.settings.model.extra_headers


def test_a_package_may_not_set_a_model(here: Path) -> None:
    (here.parent / "modules" / "pyproject.toml").write_text(
        '[project]\nname = "toy-env"\n[tool.harness.eval]\nmodel = "x"\n'
    )
    with pytest.raises(Exception, match=r"tool\.harness\.eval\.model: unknown key"):
        resolve("toy-env", {})


def test_bounds_follow_max_concurrent_unless_they_are_set(here: Path) -> None:
    (run,) = resolve("toy-env", {"max_concurrent": 8, "max_concurrent_scoring": -1}).runs
    assert run.settings.model.max_concurrent_generation == 8
    assert run.settings.model.max_concurrent_scoring == -1
    assert run.origins["model.max_concurrent_generation"].layer == "cli"


def test_sampling_args_win_over_their_shortcuts(here: Path) -> None:
    flags = {"temperature": "0.5", "max_tokens": "100", "sampling_args": ['{"temperature": 1, "top_p": 0.9}']}
    (run,) = resolve("toy-env", flags).runs
    assert run.settings.model.sampling_args == {"temperature": 1, "max_tokens": 100, "top_p": 0.9}


def test_every_setting_has_an_origin(here: Path) -> None:
    (run,) = resolve("toy-env", {}).runs
    assert {setting.dotted for setting in SETTINGS} <= set(run.origins)
    assert set(run.described()) == {setting.dotted for setting in SETTINGS}


def test_resolving_reads_no_environment_variable(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = resolve("toy-env", {}).runs
    for name in ("PRIME_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "BENCH_NUM_EXAMPLES"):
        monkeypatch.setenv(name, "1")
    (after,) = resolve("toy-env", {}).runs
    assert before == after
