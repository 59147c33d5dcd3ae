from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.settings.resolver import resolve

Write = Callable[[str, str], Path]


def test_a_sweep_is_every_combination_named_by_its_values(write: Write) -> None:
    write(
        "suite.toml",
        """
        [[eval]]
        id = "toy-env"
        [[ablation]]
        env_id = "toy-env"
        sampling = {top_p = 0.9}
        [ablation.sweep]
        "sampling_args.temperature" = [0.0, 1.0]
        "env_args.mode" = ["a", "b"]
        model = ["m", "n"]
        """,
    )
    plain, *runs = resolve("suite.toml", {}).runs
    assert plain.settings.env.name == "toy-env"
    assert [run.settings.env.name for run in runs] == [
        f"toy-env[temperature={t}, mode={mode}, {model}]" for t in (0.0, 1.0) for mode in "ab" for model in "mn"
    ]
    last = runs[-1]
    assert last.settings.model.sampling_args == {"top_p": 0.9, "temperature": 1.0}
    assert last.settings.env.env_args == {"mode": "b"}
    origin = last.origins["model.sampling_args.temperature"]
    assert (origin.layer, origin.source) == ("eval", 'suite.toml: ablation[0].sweep."sampling_args.temperature"[1]')
    assert last.origins["env.name"].layer == "eval"


@pytest.mark.parametrize(
    "sweep",
    [
        '"sampling_args.temperature" = [0.0, 1.0]',
        "sampling_args.temperature = [0.0, 1.0]",
        "sampling.temperature = [0.0, 1.0]",
        "model.sampling_args.temperature = [0.0, 1.0]",
        '"model.sampling_args.temperature" = [0.0, 1.0]',
    ],
)
def test_spellings_of_a_swept_setting(write: Write, sweep: str) -> None:
    write("suite.toml", f'[[ablation]]\nid = "toy-env"\n[ablation.sweep]\n{sweep}\n')
    runs = resolve("suite.toml", {}).runs
    assert [run.settings.model.sampling_args["temperature"] for run in runs] == [0.0, 1.0]
    assert [run.settings.env.name for run in runs] == ["toy-env[temperature=0.0]", "toy-env[temperature=1.0]"]


def test_any_setting_can_be_swept(write: Write) -> None:
    write(
        "suite.toml",
        """
        [[ablation]]
        name = "mine"
        [ablation.sweep]
        env_id = ["toy-env", "other-env"]
        state_columns = [[], ["a", "b"]]
        "env_args" = [{k = 1}, {}]
        timeout = [1.0, "none"]
        """,
    )
    runs = resolve("suite.toml", {}).runs
    assert len(runs) == 16
    assert runs[0].settings.env.name == 'mine[state_columns=[], env_args={"k": 1}, timeout=1.0]'
    assert runs[-1].settings.env.env_id == "other-env"
    assert runs[-1].settings.env.state_columns == ("a", "b")
    assert runs[-1].settings.env.timeout is None


def test_a_swept_model_keeps_the_url_beside_it(write: Write) -> None:
    write(
        "suite.toml",
        """
        [[ablation]]
        id = "toy-env"
        url = "http://localhost:1/v1"
        [ablation.sweep]
        model = ["a", "b"]
        """,
    )
    assert {run.settings.model.api_base_url for run in resolve("suite.toml", {}).runs} == {"http://localhost:1/v1"}


def test_keys_of_the_same_name_are_told_apart(write: Write) -> None:
    write("suite.toml", '[[ablation]]\nid = "toy-env"\n[ablation.sweep]\nenv_args.a.k = [1]\nenv_args.b.k = [2]\n')
    (run,) = resolve("suite.toml", {}).runs
    assert run.settings.env.name == "toy-env[env_args.a.k=1, env_args.b.k=2]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "ablation[0].sweep: missing"),
        ("sweep = 1", "ablation[0].sweep: must be a table of lists"),
        ("[ablation.sweep]\n", "ablation[0].sweep: must be a table of lists"),
        ("[ablation.sweep]\nnum_examples = 3", "ablation[0].sweep.num_examples = 3: must be a list"),
        ("[ablation.sweep]\nnum_examples = []", "ablation[0].sweep.num_examples = []: must be a list"),
        ("[ablation.sweep]\nnum_exmaples = [1]", 'sweep.num_exmaples: unknown key; did you mean "num_examples"?'),
        ("[ablation.sweep]\nnum_examples = [1, 0]", "sweep.num_examples[1] = 0: must be -1"),
        ("[ablation.sweep]\nnum_examples.x = [1]", "sweep.num_examples.x: num_examples is not a table"),
        (
            "[ablation.sweep]\nname = ['a']",
            "sweep.name: cannot be swept, because the runs of a sweep are named after their values",
        ),
        ("[ablation.sweep]\nnum_examples = [1, 1]", "sweep.num_examples: the list contains a value twice"),
        ("[ablation.sweep]\nenv_args = [{}]\nargs.k = [1]", "sweep.args.k: another key of this sweep already varies"),
        ("[ablation.sweep]\n'headers.X' = [1]", 'must be a table of strings (wrong at "X")'),
        ("nme = 'a'\n[ablation.sweep]\nnum_examples = [1]", 'ablation[0].nme: unknown key; did you mean "name"?'),
    ],
)
def test_what_a_sweep_may_not_say(write: Write, text: str, expected: str) -> None:
    write("suite.toml", f'[[ablation]]\nid = "toy-env"\n{text}\n')
    with pytest.raises(ConfigError) as caught:
        resolve("suite.toml", {})
    assert expected in str(caught.value)


def test_set_cannot_undo_a_sweep(write: Write) -> None:
    write("suite.toml", '[[ablation]]\nid = "toy-env"\n[ablation.sweep]\nsampling.temperature = [0.0, 1.0]\n')
    with pytest.raises(ConfigError, match="this setting is already varied"):
        resolve("suite.toml", {}, ["model.sampling_args.temperature=0.5"])
    assert len(resolve("suite.toml", {}, ["model.sampling_args.top_p=0.5"]).runs) == 2


def test_a_flag_that_a_sweep_beats_is_told(write: Write) -> None:
    write("suite.toml", '[[ablation]]\nid = "toy-env"\n[ablation.sweep]\nsampling.temperature = [1.0]\n')
    (notice,) = resolve("suite.toml", {"temperature": "0.5"}).notices
    assert notice.startswith("-T 0.5 has no effect on toy-env[temperature=1.0]")
    assert notice.endswith("change the sweep")
