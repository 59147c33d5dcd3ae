"""`--set`, table flags, and the notes about flags that a file beats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.settings.command_line import parse_set
from harness.settings.resolver import resolve

Write = Callable[[str, str], Path]


@for_each_row(
    ("text", "path", "value"),
    [
        ("env.num_examples=5", "env.num_examples", 5),
        ("num_examples = 5", "env.num_examples", 5),
        ("model.model=gpt", "model.model", "gpt"),
        ("model=gpt=4", "model.model", "gpt=4"),
        ("model.model=123", "model.model", "123"),
        ('model.model="quoted"', "model.model", "quoted"),
        ("url=http://localhost:1/v1", "model.api_base_url", "http://localhost:1/v1"),
        ("env.shuffle=true", "env.shuffle", True),
        ("env.timeout=none", "env.timeout", None),
        ("env.state_columns=a, b", "env.state_columns", ("a", "b")),
        ('env.state_columns=["a"]', "env.state_columns", ("a",)),
        ("env.env_args.split=sample", "env.env_args.split", "sample"),
        ("env.env_args.n=5", "env.env_args.n", 5),
        ("env.env_args.day=2024-01-01", "env.env_args.day", "2024-01-01"),
        ("env.env_args.xs=[1, 2]", "env.env_args.xs", [1, 2]),
        ("env.env_args={n = 1}", "env.env_args.n", 1),
        ('env.env_args={"n": null}', "env.env_args.n", None),
        ('model.sampling_args."a.b"=1', 'model.sampling_args."a.b"', 1),
        ("model.extra_headers.X-N=5", "model.extra_headers.X-N", "5"),
        ("sampling.temperature=0", "model.sampling_args.temperature", 0),
    ],
)
def test_set_paths_and_values(text: str, path: str, value: object) -> None:
    from harness.settings.layers import dotted

    (entry,) = parse_set(text).layer.values()
    assert (dotted(entry.path), entry.value, entry.origin.layer) == (path, value, "set")


@for_each_row(
    ("text", "expected"),
    [
        ("env.num_examples", "must be PATH=VALUE"),
        ("=5", "must be PATH=VALUE"),
        ("env.num_exmaples=5", '--set env.num_exmaples: unknown setting; did you mean "num_examples"?'),
        ("emv.num_examples=5", '--set emv.num_examples: unknown setting; did you mean "env"?'),
        ("env=5", "--set env: unknown setting"),
        ("env.num_examples=ten", '--set env.num_examples="ten": num_examples must be an integer'),
        ("env.num_examples=0", "--set env.num_examples=0: num_examples must be -1 (all of them)"),
        ("env.num_examples.x=1", "env.num_examples is not a table"),
        ("env.env_id=other", "the environment of a run cannot be changed"),
        ("env.env_args=5", "must be a table"),
        ("env..x=5", "is not a valid key"),
        ("model.api_key_var=sk-123", "must be the name of an environment variable"),
    ],
)
def test_set_refusals(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_set(text)
    assert expected in str(caught.value)
    assert "sk-123" not in str(caught.value)


def test_set_for_one_environment(here: Path, write: Write) -> None:
    write("suite.toml", '[[eval]]\nid = "toy-env"\n[[eval]]\nid = "other-env"\nname = "second"\n')
    for name in ("other-env", "other_env", "second"):
        first, second = resolve("suite.toml", {}, [f"{name}:env.num_examples=9"]).runs
        assert (first.settings.env.num_examples, second.settings.env.num_examples) == (5, 9)
    with pytest.raises(
        ConfigError,
        match=r"--set otter-env:env\.num_examples=9: no run has the environment or name 'otter-env'; did you " r"mean",
    ):
        resolve("suite.toml", {}, ["otter-env:env.num_examples=9"])


def test_a_later_set_wins(here: Path) -> None:
    (run,) = resolve("toy-env", {}, ["env.num_examples=8", "env.num_examples=9"]).runs
    assert run.settings.env.num_examples == 9
    assert run.origins["env.num_examples"].source == "--set env.num_examples=9"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"env_args": ['{"a": }']}, "-a: not valid JSON: "),
        ({"env_args": ["[1]"]}, "-a: must be a JSON object"),
        ({"env_args": ['"text"']}, "-a: must be a JSON object"),
        ({"env_args": ["word"]}, "-a: must be KEY=VALUE, or a JSON object"),
        ({"extra_env_kwargs": ['{"a": 1, "a": 2}']}, "-x: not valid JSON: the key 'a' occurs twice"),
        ({"sampling_args": ['{"a": NaN}']}, "-S: not valid JSON: NaN is not a valid JSON value"),
        ({"extra_headers": ["no colon"]}, "--header: must be 'Name: Value'"),
        ({"extra_headers": [": value"]}, "--header: must be 'Name: Value'"),
        ({"num_examples": "0"}, "-n 0: num_examples must be -1 (all of them) or at least 1"),
        ({"rollouts_per_example": "0"}, "-r 0: rollouts_per_example must be at least 1"),
        ({"max_concurrent": "0"}, "-c 0: max_concurrent must be -1 (unlimited) or at least 1"),
        ({"num_examples": "ten"}, '-n "ten": num_examples must be an integer'),
        ({"temperature": "hot"}, "-T hot: temperature must be a number"),
        ({"max_tokens": "1.5"}, "-t 1.5: max_tokens must be a number"),
        ({"nmu_examples": 1}, 'nmu_examples: unknown setting; did you mean "num_examples"?'),
    ],
)
def test_flag_refusals(here: Path, flags: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("toy-env", flags)
    assert expected in str(caught.value)


def test_a_header_refusal_does_not_repeat_the_header(here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("toy-env", {"extra_headers": ["Authorization Bearer hunter22"]})
    assert "hunter22" not in str(caught.value)


def test_table_flags_take_pairs_and_objects(here: Path) -> None:
    flags = {"env_args": ["a=1", '{"b": {"c": null}}', "b.d=x y", "e=", "f=true"]}
    (run,) = resolve("toy-env", flags).runs
    assert run.settings.env.env_args == {"a": 1, "b": {"c": None, "d": "x y"}, "e": "", "f": True}


def test_flags_may_be_values_and_dotted_paths(here: Path) -> None:
    flags = {"env.num_examples": -1, "model.extra_headers": {"X": "1"}, "state_columns": ["a"], "timeout": "none"}
    (run,) = resolve("toy-env", flags).runs
    assert run.settings.env.num_examples == -1
    assert run.settings.env.state_columns == ("a",)
    assert run.settings.model.extra_headers == {"X": "1"}


def test_a_flag_that_a_file_beats_is_told_in_these_words(write: Write) -> None:
    write("configs/eval/suite.toml", '[[eval]]\n[eval.env]\nenv_id = "toy-env"\nnum_examples = 100\n')
    resolution = resolve("configs/eval/suite.toml", {"num_examples": "5"})
    assert resolution.runs[0].settings.env.num_examples == 100
    assert resolution.notices == (
        "-n 5 has no effect on toy-env: configs/eval/suite.toml sets eval[0].env.num_examples = 100; "
        "use --set env.num_examples=5",
    )
    assert resolve("configs/eval/suite.toml", {"num_examples": "100"}).notices == ()
    assert resolve("configs/eval/suite.toml", {"num_examples": "5"}, ["env.num_examples=5"]).notices == ()


def test_one_note_names_all_runs_that_a_default_covers(write: Write) -> None:
    write("suite.toml", 'model = "file"\n[[eval]]\nid = "toy-env"\n[[eval]]\nid = "other-env"\n')
    (notice,) = resolve("suite.toml", {"model": "mine"}).notices
    assert (
        notice
        == '-m mine has no effect on toy-env, other-env: suite.toml sets model = "file"; use --set model.model=mine'
    )


def test_notes_about_tables_are_about_keys(write: Write) -> None:
    write(
        "suite.toml",
        """
        [[eval]]
        id = "toy-env"
        sampling = {temperature = 1.0}
        headers = {Authorization = "Bearer file-secret"}
        interleave_scoring = true
        """,
    )
    flags = {
        "sampling_args": ['{"temperature": 0, "top_p": 0.5}'],
        "extra_headers": ["authorization: Bearer flag-secret"],
        "interleave_scoring": False,
    }
    notices = resolve("suite.toml", flags).notices
    assert notices == (
        "-S temperature has no effect on toy-env: suite.toml sets eval[0].sampling.temperature = 1.0; "
        "use --set model.sampling_args.temperature=0",
        "--header authorization has no effect on toy-env: suite.toml sets eval[0].headers.Authorization = ***; "
        "use --set model.extra_headers.authorization=…",
        "-N has no effect on toy-env: suite.toml sets eval[0].interleave_scoring = true; "
        "use --set env.interleave_scoring=false",
    )


def test_an_alias_in_a_file_beats_the_flag_and_says_so(write: Write) -> None:
    write("configs/endpoints.toml", '[[endpoint]]\nendpoint_id = "a"\nmodel = "real"\nurl = "http://localhost:1/v1"\n')
    write("suite.toml", 'id = "toy-env"\nmodel = "a"\n')
    resolution = resolve("suite.toml", {"model": "mine"})
    assert resolution.runs[0].settings.model.model == "real"
    assert [notice for notice in resolution.notices if notice.startswith("-m mine has no effect")]
